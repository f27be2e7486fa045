/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_H2_STREAMS_H
#define NGD_DAEMON_FRONT_H2_STREAMS_H

/* Table of the open streams of one connection, by number. The caller synchronises, and bounds their number. */
#include "base/clock.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ngd_h2_stream {
    uint32_t id;         /* 0: an empty place */
    uint8_t prefix_have; /* known bytes of the message's prefix, 0 to 5 */
    uint8_t prefix[5];   /* flag, length */
    bool taken;          /* the call is charged */
    bool unfinished;     /* a part of a message has arrived, and more must follow */
    bool half_closed;    /* the client has sent all */
    bool answered;       /* gRPC has sent headers */
    uint64_t left;       /* bytes of the message that are still to come */
    uint64_t charged;    /* bytes charged for the unfinished message */
    int64_t window;      /* bytes that the client may send */
    ngd_nsec_t moved;    /* time of the last bytes, or of the last grant of window */
};

struct ngd_h2_streams {
    struct ngd_h2_stream *table; /* open addressing; NULL: empty */
    uint32_t cap, count;
};

void ngd_h2_streams_fini(struct ngd_h2_streams *streams);
/* Finds a stream; NULL: there is none. Valid until the next add or remove. */
struct ngd_h2_stream *ngd_h2_streams_find(const struct ngd_h2_streams *streams, uint32_t id);
/* Adds a stream, zeroed except for the id, which must be new; NULL: out of memory. */
struct ngd_h2_stream *ngd_h2_streams_add(struct ngd_h2_streams *streams, uint32_t id);
void ngd_h2_streams_remove(struct ngd_h2_streams *streams, struct ngd_h2_stream *stream);

#endif
