/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/host/copies.h"

#include <string.h>

#define SHARE_FROM ((uint64_t)1 << 20) /* bytes that are worth waking helpers */
#define PART_BYTES ((uint64_t)256 << 10)
#define PARTS_MAX  4096u /* parts of larger copies are longer */

struct copy {
    char *to;
    const char *from;
    uint64_t bytes, each; /* each: bytes of a part, but for the last ones */
};

static void copy_of_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct copy *c = call->params;
    const uint64_t at = part * c->each;

    (void)run;
    (void)parts;
    if (at < c->bytes)
        memcpy(c->to + at, c->from + at, c->bytes - at < c->each ? c->bytes - at : c->each);
}

void ngd_host_copy(struct ngd_team *team, void *to, const void *from, uint64_t bytes)
{
    const uint32_t parts = bytes / PART_BYTES < PARTS_MAX ? (uint32_t)(bytes / PART_BYTES) : PARTS_MAX;
    struct ngd_host_run run = {0}; /* a copy does not end early: a part that is missing would go unnoticed */
    struct copy c = {to, from, bytes, 0};
    const struct ngd_host_call call = {.fn = copy_of_part, .params = &c};

    if (bytes == 0)
        return;
    if (!team || bytes < SHARE_FROM) {
        memcpy(to, from, bytes);
        return;
    }
    c.each = (bytes / parts + 64) & ~(uint64_t)63; /* whole cache lines, and parts * each >= bytes */
    ngd_team_begin(team);
    ngd_team_share(team, &call, &run, parts);
    ngd_team_end(team);
}
