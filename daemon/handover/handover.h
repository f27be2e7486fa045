/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_HANDOVER_H
#define NGD_DAEMON_HANDOVER_HANDOVER_H

/*
 * npugraphd --replace: one daemon takes over from another, and no call of a client fails (docs/decisions/0056).
 *
 * The old one gives its sockets and locks away as descriptors, and describes what it has promised to keep. The new one
 * makes that ready, and only then do new connections go to it. Until that moment, every failure leaves the old one
 * serving. Behind it, the old one serves its sessions to their end; if the new one dies meanwhile, it serves all again.
 *
 *   old:  NONE --Hello--> DESCRIBING --> OFFERED --Ready, nothing changed--> FREEZING --> PASSING --Serving--> PASSED
 * --> it ends ^                  |             |                                   |            |                    |
 *          +------------------+-------------+---- the new one is gone ----------+------------+--------------------+
 *
 * Threads: the loop's, and a job's for the description. take, restore and enter run on the main thread before the loop,
 * and block.
 */
#include "base/status.h"
#include <stddef.h>

struct ngd_daemon;

/* Makes d->handover. With --replace, takes the gift of the daemon that runs into d->gift, if there is one. BUSY: it
 * refuses. */
ngd_status_t ngd_handover_take(struct ngd_daemon *d, struct ngd_diag *diag);
/* Makes what the old daemon has described. */
ngd_status_t ngd_handover_restore(struct ngd_daemon *d, struct ngd_diag *diag);
/* Tells the old daemon that we can serve, and waits until it has stopped accepting. */
ngd_status_t ngd_handover_enter(struct ngd_daemon *d, struct ngd_diag *diag);
/* Listens for the next daemon, and for the end of the old one. The last step: without it, the old one comes back. */
ngd_status_t ngd_handover_listen(struct ngd_daemon *d, struct ngd_diag *diag);
void ngd_handover_stop(struct ngd_daemon *d); /* before the listeners stop */
void ngd_handover_destroy(struct ngd_daemon *d);

#endif
