/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_H2_GUARD_H
#define NGD_DAEMON_FRONT_H2_GUARD_H

/*
 * The frame checker: what a client and gRPC say to each other over one connection, in HTTP/2.
 *
 * Why: gRPC keeps, parses again and answers more than a stranger should be able to make it. Frames are counted and
 * bounded here before it sees them; header blocks are never decoded.
 *
 *   client's bytes -> ngd_h2_guard_input  -> to_server, unchanged but for calls that are refused
 *   gRPC's bytes   -> ngd_h2_guard_output -> to_client, with the refusals put between two frames
 *
 * All frames but DATA are kept back until they are whole, header blocks until their last CONTINUATION. What an honest
 * client does not do ends the connection. What it may do, but not without end (resets, pings, ...), is counted by
 * buckets, of the connection and of its identity, and an empty bucket makes the connection wait. A message that is too
 * large, that takes more than its identity's part of the memory of unfinished messages, or that does not go on, ends
 * its own call: the client gets a status with a sentence, gRPC gets a reset, and the connection goes on. Such a refusal
 * counts as a reset that the client sent.
 *
 * Threads: one at a time. Time is passed in. Memory: a few hundred bytes, a frame that is not whole yet, and 64 bytes
 * for each open stream; `destroy` gives back what was charged.
 */
#include "base/clock.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ngd_h2_reason {
#define NGD_H2_REASON(ID, name, text) NGD_H2_WHY_##ID,
#include "daemon/front/h2_reasons.def"
#undef NGD_H2_REASON
    NGD_H2_WHY_N
} ngd_h2_reason_t;

#define NGD_H2_BLOCK_MAX   24576 /* bytes of a header block, frames' heads included */
#define NGD_H2_BLOCK_PARTS 8     /* frames of a header block */
#define NGD_H2_CONTROL_MAX 16384 /* bytes of any other frame but DATA */
#define NGD_H2_PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define NGD_H2_PREFACE_LEN 24u
/* What a DATA frame of an unfinished message costs gRPC beside its bytes. */
#define NGD_H2_FRAME_COST  64

/* Kinds of frames that are counted by buckets. */
#define NGD_H2_BUCKETS 9

#define NGD_H2_PAUSE_TIME   (10 * NGD_MSEC) /* the shortest pause */
#define NGD_H2_FRAME_TIME   (10 * NGD_SEC)  /* a frame that was begun */
#define NGD_H2_ACK_TIME     (20 * NGD_SEC)  /* the answer to SETTINGS */
#define NGD_H2_MESSAGE_TIME (30 * NGD_SEC)  /* without progress of a message that may go on */

/* Of its owner; called from inside the other functions, and never after destroy. */
struct ngd_h2_ops {
    void (*to_server)(void *ctx, const uint8_t *bytes, size_t n);
    void (*to_client)(void *ctx, const uint8_t *bytes, size_t n);
    /* Charges an open call, or bytes of unfinished messages. False: refused, and nothing is charged. */
    bool (*take_stream)(void *ctx);
    bool (*take_bytes)(void *ctx, uint64_t n);
    void (*give_stream)(void *ctx);
    void (*give_bytes)(void *ctx, uint64_t n);
    /* NGD_H2_BUCKETS times, zero at first, which all connections of the client's identity share. */
    ngd_nsec_t *(*shared_buckets)(void *ctx);
    /* A call was ended; for a line of the log and a counter. */
    void (*refused)(void *ctx, const char *sentence);
};

struct ngd_h2_params {
    const struct ngd_h2_ops *ops;
    void *ctx;
    uint32_t max_streams;
    uint64_t max_message; /* bytes */
};

typedef enum ngd_h2_verdict {
    NGD_H2_GO_ON,
    NGD_H2_PAUSE, /* come again at `until` with the rest */
    NGD_H2_CLOSE, /* for `reason`; nothing may be called any more but goodbye and destroy */
} ngd_h2_verdict_t;

struct ngd_h2_result {
    ngd_h2_verdict_t verdict;
    size_t used; /* bytes that were taken; all of them unless it pauses or closes */
    ngd_nsec_t until;
    ngd_h2_reason_t reason;
};

struct ngd_h2_guard;

struct ngd_h2_guard *ngd_h2_guard_create(const struct ngd_h2_params *params); /* NULL: out of memory */
void ngd_h2_guard_destroy(struct ngd_h2_guard *guard);                        /* NULL is fine */

/* Looks at bytes of the client, in any portions. */
struct ngd_h2_result ngd_h2_guard_input(struct ngd_h2_guard *guard, const uint8_t *bytes, size_t n, ngd_nsec_t now);
/* Takes bytes of gRPC, in any portions. */
void ngd_h2_guard_output(struct ngd_h2_guard *guard, const uint8_t *bytes, size_t n, ngd_nsec_t now);
/* Looks at what is late, once a second say: ends calls whose messages do not go on. GO_ON, or CLOSE. */
struct ngd_h2_result ngd_h2_guard_tick(struct ngd_h2_guard *guard, ngd_nsec_t now);
/* True while something could get late. */
bool ngd_h2_guard_timed(const struct ngd_h2_guard *guard);
/* The client was not listened to until now, so it is not late. */
void ngd_h2_guard_resume(struct ngd_h2_guard *guard, ngd_nsec_t now);
/* Tells the client why the connection ends (GOAWAY), if the output is between two frames; fault: it is the client's. */
void ngd_h2_guard_goodbye(struct ngd_h2_guard *guard, bool fault, const char *text);

/* True once the client's first bytes and its SETTINGS were good. */
bool ngd_h2_guard_begun(const struct ngd_h2_guard *guard);
uint32_t ngd_h2_guard_streams(const struct ngd_h2_guard *guard); /* open calls */

const char *ngd_h2_reason_name(ngd_h2_reason_t reason);
const char *ngd_h2_reason_text(ngd_h2_reason_t reason);

#endif
