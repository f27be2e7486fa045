/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_DESCRIBE_H
#define NGD_DAEMON_HANDOVER_DESCRIBE_H

/*
 * Describes what this daemon has promised to keep, so that another process can make it again: kept models, and
 * registered patterns. A weight that was loaded is described by its file, if the file is still the same; the bytes of
 * other weights are copied. KV states are described by their size: what is in them belongs to sequences.
 * Threads: any; reads files and devices.
 */
#include "base/digest.h"
#include "base/status.h"

struct ngd_daemon;

struct ngd_description {
    int fd, uploads_fd; /* sealed memfds; -1: none */
    uint64_t bytes, upload_bytes;
    struct ngd_digest digest; /* the same as long as nothing changes */
};
/* UNIMPLEMENTED names what cannot be handed over, and what to do. */
ngd_status_t ngd_describe(struct ngd_daemon *d, struct ngd_description *description_p, struct ngd_diag *diag);
void ngd_description_close(struct ngd_description *description);

#endif
