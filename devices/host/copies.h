/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_COPIES_H
#define NGD_DEVICES_HOST_COPIES_H

/*
 * Copies of a launch's inputs and results.
 *
 * Why: one thread copies about 6 GB/s, which is less than the memory gives, and 16 MiB are a few milliseconds.
 * Threads: as for ngd_team_share. The team must not be inside ngd_team_begin.
 */
#include "devices/host/team.h"
#include <stdint.h>

/* Like memcpy; the team shares what is large. team may be NULL. bytes may be 0, with any addresses. */
void ngd_host_copy(struct ngd_team *team, void *to, const void *from, uint64_t bytes);

#endif
