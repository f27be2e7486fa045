/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files that commands take. "-" is standard input, so pipes and devices are read too, up to the limit. */
#include "client/ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 65536

/* Reads all of f, which is named for errors. One byte more than max is room to see that there is more. */
static char *read_all(FILE *f, const char *name, size_t max, size_t *n_p)
{
    size_t room = max < FIRST_ROOM ? max + 1 : FIRST_ROOM, n = 0;
    char *data = malloc(room + 1);

    while (data != NULL) {
        char *more;

        n += fread(data + n, 1, room - n, f);
        if (n < room || n > max)
            break;
        room = room > max / 2 ? max + 1 : 2 * room;
        more = realloc(data, room + 1);
        if (more == NULL)
            free(data);
        data = more;
    }
    if (data == NULL || ferror(f))
        ctl_error("%s: %s", name, strerror(errno));
    else if (n > max)
        ctl_error("%s has more than %" PRIu64 " bytes", name, (uint64_t)max);
    if (data == NULL || ferror(f) || n > max) {
        free(data);
        return NULL;
    }
    data[n] = '\0';
    *n_p = n;
    return data;
}

char *ctl_read_file(const char *path, size_t max, size_t *n_p)
{
    bool given = strcmp(path, "-") == 0;
    FILE *f = given ? stdin : fopen(path, "re");
    char *data;

    if (f == NULL) {
        ctl_error("%s: %s", path, strerror(errno));
        return NULL;
    }
    data = read_all(f, given ? "standard input" : path, max, n_p);
    if (!given)
        fclose(f);
    return data;
}
