/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_RESTORE_INT_H
#define NGD_DAEMON_HANDOVER_RESTORE_INT_H

/* Shared by restore.c (models, patterns) and arrive.c (sessions). */
#include "base/mem.h"
#include "daemon/handover/packet.h"
#include "daemon/handover/restore.h"
#include "scheduler/program/group.h"

typedef Npugraph__Handover__V1__Graph handed_graph;
typedef Npugraph__Handover__V1__Buffer handed_buffer;

struct restoring {
    struct ngd_daemon *daemon;
    struct ngd_arena arena; /* of the description */
    const uint8_t *uploads; /* NULL: none */
    uint64_t upload_bytes;
    struct ngd_diag *diag;
};

/* Buffers on their way, and who pays for them. */
struct restored {
    handed_buffer *const *list;
    size_t n;
    struct ngd_arena arena;
    struct ngd_identity *owner;  /* a reference */
    struct ngd_share *share;     /* a reference */
    struct ngd_buffer **buffers; /* references; as in list */
};

ngd_status_t ngd_restore_malformed(struct restoring *w, const char *what);
/* Makes all buffers of the list, with their contents. */
ngd_status_t ngd_restore_buffers(struct restoring *w, struct restored *r);
/* Registers a graph, and binds its buffers. */
ngd_status_t ngd_restore_graph(struct restoring *w, struct restored *r, const handed_graph *g,
                               struct ngd_binding **binding_p);
/* Returns a range of the uploads; NULL: it is outside of them. */
const uint8_t *ngd_restore_upload(const struct restoring *w, const Npugraph__Handover__V1__Upload *u, uint64_t bytes);
void ngd_restored_fini(struct restored *r);
/* Maps the uploads, and unpacks a message behind whose n bytes there is one more. fini in any case. */
ngd_status_t ngd_restoring_init(struct restoring *w, struct ngd_daemon *d, const ProtobufCMessageDescriptor *type,
                                const struct ngd_handed *handed, const void **message_p, struct ngd_diag *diag);
void ngd_restoring_fini(struct restoring *w);

#endif
