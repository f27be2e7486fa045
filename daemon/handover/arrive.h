/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_ARRIVE_H
#define NGD_DAEMON_HANDOVER_ARRIVE_H

/*
 * Makes the sessions that another daemon gives away (depart.h), under their identities, which pay for them, and with
 * their ids. All that the record says is checked. A session that cannot be made is left out, and stays where it is.
 * Threads: any, before the daemon serves; blocks.
 */
#include "daemon/handover/restore.h"
#include <stddef.h>

/* taken: room for `most` ids, in the order of the record; *n_p: how many were made. */
void ngd_arrive(struct ngd_daemon *d, const struct ngd_handed *handed, uint64_t *taken, size_t most, size_t *n_p);

#endif
