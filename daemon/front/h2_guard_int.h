/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_H2_GUARD_INT_H
#define NGD_DAEMON_FRONT_H2_GUARD_INT_H

/* What the two sides of the frame checker share. h2_guard.c reads the client, h2_output.c reads gRPC. */
#include "daemon/front/h2_guard.h"
#include "daemon/front/h2_streams.h"

#define H2_HEAD 9 /* bytes of a frame's head */

enum {
    H2_DATA,
    H2_HEADERS,
    H2_PRIORITY,
    H2_RST_STREAM,
    H2_SETTINGS,
    H2_PUSH_PROMISE,
    H2_PING,
    H2_GOAWAY,
    H2_WINDOW_UPDATE,
    H2_CONTINUATION
};
enum { H2_ACK = 1, H2_END_STREAM = 1, H2_END_HEADERS = 4, H2_PADDED = 8 };
enum { H2_RESOURCE_EXHAUSTED = 8, H2_ABORTED = 10 }; /* gRPC's status codes */

typedef enum h2_bucket {
    H2_BUCKET_RESET,
    H2_BUCKET_STRAY,
    H2_BUCKET_BARE,
    H2_BUCKET_PING,
    H2_BUCKET_SETTINGS,
    H2_BUCKET_PRIORITY,
    H2_BUCKET_EMPTY,
    H2_BUCKET_WINDOW,
    H2_BUCKET_OTHER
} h2_bucket_t;

/* State of gRPC's side: its position in the present frame. */
struct h2_output {
    uint8_t head[H2_HEAD];
    uint32_t n_head, type, flags, id, left;
    uint8_t value[6]; /* bytes of one setting, or of a window update */
    uint32_t n_value;
    bool in_block, block_ends;
    uint32_t block_id;
};

struct ngd_h2_guard {
    const struct ngd_h2_ops *ops;
    void *ctx;
    uint32_t max_streams;
    uint64_t max_message;

    /* The client's side: the frame that is being read. */
    uint32_t preface; /* bytes of it that have arrived */
    bool begun;       /* the preface and the first SETTINGS were good */
    uint8_t head[H2_HEAD];
    uint32_t n_head, length, type, flags, id, left;
    bool in_body; /* the head is complete */
    bool pad_next;
    uint8_t pad;
    uint32_t content; /* of a DATA frame: bytes of messages that are still to come */
    bool frame_cost;  /* the frame's cost is not charged yet */
    uint8_t *held;
    size_t n_held, held_cap;

    bool in_block, block_ends, block_opens;
    uint32_t block_id, block_bytes, block_parts;

    uint32_t last_id;
    struct ngd_h2_streams streams;
    uint32_t unfinished; /* streams */
    int64_t window, initial_window;
    const char *refusal; /* why this frame's stream is refused; NULL: it is not */
    int refusal_status;

    ngd_nsec_t buckets[NGD_H2_BUCKETS];
    ngd_nsec_t frame_began;            /* time of a frame that is kept back; NEVER: none */
    ngd_nsec_t data_began, data_moved; /* times of the DATA frame */
    ngd_nsec_t stall_base;             /* no stream is late before this time */
    ngd_nsec_t ack_due;
    uint32_t unacked;       /* gRPC's SETTINGS without an answer */
    bool acked;             /* the first of them was answered */
    uint32_t window_credit; /* window updates that gRPC's DATA explains */

    struct h2_output out;
    uint8_t *late; /* for the client, after gRPC's present frame */
    size_t n_late, late_cap;
};

static inline uint32_t h2_get32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static inline void h2_put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

/* h2_guard.c: removes a stream that has ended, and returns its charges. */
void h2_forget(struct ngd_h2_guard *guard, struct ngd_h2_stream *stream);
/* h2_output.c: sends the client the end of a call, now or after gRPC's present frame. */
void h2_answer_refused(struct ngd_h2_guard *guard, const struct ngd_h2_stream *stream, int status,
                       const char *sentence);

#endif
