/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_DESCRIBE_INT_H
#define NGD_DAEMON_HANDOVER_DESCRIBE_INT_H

/* Shared by describe.c (models, patterns) and depart.c (sessions). */
#include "base/mem.h"
#include "daemon/handover/describe.h"
#include "daemon/handover/packet.h"
#include "scheduler/program/group.h"

typedef Npugraph__Handover__V1__Graph handed_graph;
typedef Npugraph__Handover__V1__Buffer handed_buffer;

struct describing {
    struct ngd_daemon *daemon;
    struct ngd_arena arena;
    int uploads; /* memfd; -1: none yet */
    uint64_t upload_bytes;
    bool is_once; /* sessions, while they wait: NGD_DEPART_BYTES at most, and no digests */
    struct ngd_diag *diag;
};

/* Buffers that are described together, each once. */
struct described {
    handed_buffer **list;
    struct ngd_buffer **buffers; /* borrowed */
    size_t n;
    uint32_t *table; /* open addressing by generation: number of a buffer plus 1; 0: free */
    uint32_t room;   /* of the table, a power of two */
};

/* Makes room for n buffers. False: no memory. */
bool ngd_described_init(struct describing *w, struct described *all, uint32_t n);
/* Returns the number of the buffer plus 1, and describes it when it is the first time. empty: without its contents. */
ngd_status_t ngd_describe_buffer(struct describing *w, struct described *all, struct ngd_buffer *buffer, bool empty,
                                 uint32_t *number_p);
/* Describes a graph with its buffers. kv: its states are a model's, and have no contents. */
ngd_status_t ngd_describe_graph(struct describing *w, struct described *all, const struct ngd_binding *binding, bool kv,
                                handed_graph **g_p);
uint32_t ngd_count_bound(const struct ngd_binding *binding); /* NULL: 0 */
/* Appends bytes to the uploads. */
ngd_status_t ngd_describe_upload(struct describing *w, const void *data, uint64_t n);
/* Packs and checks a message, as the next daemon will, into out->fd; and seals the uploads. */
ngd_status_t ngd_describe_pack(struct describing *w, const ProtobufCMessage *message, struct ngd_description *out);

#endif
