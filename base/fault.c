/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define NGD_FAULT_POINT(ID, name, help) [NGD_FAULT_##ID] = name,
#include "base/fault.def"
#undef NGD_FAULT_POINT
};

/* One word for each point: passes to skip << 32 | failures left. So a pass is one atomic step. */
static _Atomic uint64_t points[NGD_FAULT_MAX];

void ngd_fault_arm(ngd_fault_t point, uint32_t after, uint32_t times)
{
    atomic_store(&points[point], (uint64_t)after << 32 | times);
}

void ngd_fault_disarm_all(void)
{
    for (int i = 0; i < NGD_FAULT_MAX; i++)
        atomic_store(&points[i], 0);
}

bool ngd_fault_hit(ngd_fault_t point)
{
    uint64_t old = atomic_load_explicit(&points[point], memory_order_relaxed), new;

    do {
        if ((uint32_t)old == 0)
            return false;
        new = old >> 32 ? old - (UINT64_C(1) << 32) : old - 1;
    } while (!atomic_compare_exchange_weak(&points[point], &old, new));
    return old >> 32 == 0;
}

static bool parse_count(const char **text, uint32_t *n_p)
{
    unsigned long n;
    char *end;

    if (**text < '0' || **text > '9')
        return false;
    n = strtoul(*text, &end, 10);
    if (n > UINT32_MAX)
        return false;
    *text = end;
    *n_p = (uint32_t)n;
    return true;
}

static bool parse_point(const char **text)
{
    size_t n = strcspn(*text, ":,");
    uint32_t after = 0, times = 1;

    for (int i = 0; i < NGD_FAULT_MAX; i++) {
        if (strlen(names[i]) != n || memcmp(names[i], *text, n) != 0)
            continue;
        *text += n;
        if (**text == ':') {
            ++*text;
            if (!parse_count(text, &after))
                return false;
        }
        if (**text == ':') {
            ++*text;
            if (!parse_count(text, &times))
                return false;
        }
        if (**text != ',' && **text != '\0')
            return false;
        ngd_fault_arm((ngd_fault_t)i, after, times);
        return true;
    }
    return false;
}

ngd_status_t ngd_fault_init(struct ngd_diag *diag)
{
    const char *text = getenv("NPUGRAPHD_FAULT");

    if (!text || !*text)
        return NGD_OK;
    if (!NGD_FAULT_COMPILED)
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "NPUGRAPHD_FAULT is set, but this build has no fault points; configure with --enable-fault");
    for (;;) {
        if (!parse_point(&text))
            return ngd_diag_set(diag, NGD_ERR_CONFIG,
                                "NPUGRAPHD_FAULT: \"%s\" is not name[:after[:times]] of a point in base/fault.def",
                                text);
        if (!*text)
            return NGD_OK;
        text++;
    }
}
