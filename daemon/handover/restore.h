/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_RESTORE_H
#define NGD_DAEMON_HANDOVER_RESTORE_H

/*
 * Makes what another daemon has described (describe.h): registers patterns and models under their owners, reads weights
 * from their files, and captures. Each owner pays as if it had registered the model here.
 * Threads: any, before the daemon serves; blocks for as long as it takes.
 */
#include "base/status.h"
#include <stdint.h>

struct ngd_daemon;

/* What the other daemon handed over, mapped. Borrowed. */
struct ngd_handed {
    const void *data; /* a message, and one more byte */
    uint64_t bytes;
    int uploads_fd; /* -1: none */
    uint64_t upload_bytes;
};
/* Makes a Description. The diagnosis names the model. After an error some models may be registered. */
ngd_status_t ngd_restore(struct ngd_daemon *d, const struct ngd_handed *handed, struct ngd_diag *diag);

#endif
