/* SPDX-License-Identifier: Apache-2.0 */
/* The families that are built in: the files of client/hf/families. */
#include "client/hf/family.h"

#include <string.h>

static const struct {
    const char *name, *source;
} builtin_families[] = {
#include "client/hf/families_text.inc"
};

#define N_FAMILIES (sizeof(builtin_families) / sizeof(builtin_families[0]))

const char *npugraph__family_builtin(const char *name)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(builtin_families[i].name, name) == 0)
            return builtin_families[i].source;
    return NULL;
}

/* Files that are included have names in lower case. */
void npugraph__family_names(struct ngd_strbuf *sb)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (builtin_families[i].name[0] < 'a')
            ngd_strbuf_printf(sb, "%s%s", sb->len > 0 ? ", " : "", builtin_families[i].name);
}
