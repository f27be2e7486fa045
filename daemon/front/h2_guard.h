/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_H2_GUARD_H
#define NGD_DAEMON_FRONT_H2_GUARD_H

/*
 * The frame checker. It checks what a client and gRPC send each other over one HTTP/2 connection.
 *
 * Why: a stranger can make gRPC keep, parse again and answer too much. Here frames are counted and bounded before gRPC
 * sees them. Header blocks are never decoded.
 *
 *   client's bytes -> ngd_h2_guard_input  -> to_server, unchanged except for refused calls
 *   gRPC's bytes   -> ngd_h2_guard_output -> to_client, with the refusals inserted between two frames
 *
 * Frames other than DATA are kept back until they are complete, and header blocks until their last CONTINUATION. A
 * frame that no honest client sends ends the connection. Frames that a client may send, but not without limit (resets,
 * pings, ...), are counted by buckets of the connection and of its identity; an empty bucket makes the connection wait.
 *
 * A message ends its call if it is too large, if it exceeds its identity's part of the memory for unfinished messages,
 * or if it makes no progress. The client gets a status with a sentence, gRPC gets a reset, and the connection
 * continues. Such a refusal counts as a reset by the client.
 *
 * Threads: one at a time. Time is passed in. Memory: a few hundred bytes, an incomplete frame, and 64 bytes for each
 * open stream; `destroy` returns what was charged.
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

#define NGD_H2_BLOCK_MAX   24576 /* bytes of a header block, with the frames' heads */
#define NGD_H2_BLOCK_PARTS 8     /* frames of a header block */
#define NGD_H2_CONTROL_MAX 16384 /* bytes of any other frame except DATA */
#define NGD_H2_PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define NGD_H2_PREFACE_LEN 24u
/* Bytes that a DATA frame of an unfinished message costs gRPC in addition to its content. */
#define NGD_H2_FRAME_COST  64

/* Number of kinds of frames that buckets count. */
#define NGD_H2_BUCKETS 9

#define NGD_H2_PAUSE_TIME   (10 * NGD_MSEC) /* the shortest pause */
#define NGD_H2_FRAME_TIME   (10 * NGD_SEC)  /* to complete a frame that was begun */
#define NGD_H2_ACK_TIME     (20 * NGD_SEC)  /* to answer SETTINGS */
#define NGD_H2_MESSAGE_TIME (30 * NGD_SEC)  /* without progress, for a message that may continue */

/* The owner's callbacks. They are called from inside the other functions, and never after destroy. */
struct ngd_h2_ops {
    void (*to_server)(void *ctx, const uint8_t *bytes, size_t n);
    void (*to_client)(void *ctx, const uint8_t *bytes, size_t n);
    /* Charge an open call, or bytes of unfinished messages. False: refused, and nothing is charged. */
    bool (*take_stream)(void *ctx);
    bool (*take_bytes)(void *ctx, uint64_t n);
    void (*give_stream)(void *ctx);
    void (*give_bytes)(void *ctx, uint64_t n);
    /* Returns NGD_H2_BUCKETS times, initially zero, which all connections of the client's identity share. */
    ngd_nsec_t *(*shared_buckets)(void *ctx);
    /* Reports that a call was refused; for a log line and a counter. */
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
    NGD_H2_PAUSE, /* call again at `until` with the rest */
    NGD_H2_CLOSE, /* for `reason`; afterwards only goodbye and destroy may be called */
} ngd_h2_verdict_t;

struct ngd_h2_result {
    ngd_h2_verdict_t verdict;
    size_t used; /* bytes that were taken: all of them unless it pauses or closes */
    ngd_nsec_t until;
    ngd_h2_reason_t reason;
};

struct ngd_h2_guard;

struct ngd_h2_guard *ngd_h2_guard_create(const struct ngd_h2_params *params); /* NULL: out of memory */
void ngd_h2_guard_destroy(struct ngd_h2_guard *guard);                        /* NULL is fine */

/* Checks bytes of the client, in any portions. */
struct ngd_h2_result ngd_h2_guard_input(struct ngd_h2_guard *guard, const uint8_t *bytes, size_t n, ngd_nsec_t now);
/* Takes bytes of gRPC, in any portions. */
void ngd_h2_guard_output(struct ngd_h2_guard *guard, const uint8_t *bytes, size_t n, ngd_nsec_t now);
/*
 * Returns how many bytes of gRPC's present DATA frame are still to come. The owner may send them to the client itself,
 * and report them by moved, instead of passing them to output.
 */
size_t ngd_h2_guard_payload(const struct ngd_h2_guard *guard);
void ngd_h2_guard_moved(struct ngd_h2_guard *guard, size_t n); /* n <= payload */
/* Returns how many bytes of the front's own wait for the end of gRPC's present frame. Each refusal adds some, so the
 * owner bounds them: it gives no more input while there are many. */
size_t ngd_h2_guard_late(const struct ngd_h2_guard *guard);
/* Checks time limits, about once a second: ends calls whose messages make no progress. GO_ON, or CLOSE. */
struct ngd_h2_result ngd_h2_guard_tick(struct ngd_h2_guard *guard, ngd_nsec_t now);
/* True while something can become late. */
bool ngd_h2_guard_timed(const struct ngd_h2_guard *guard);
/* Restarts the client's time limits, because it was not read until now. */
void ngd_h2_guard_resume(struct ngd_h2_guard *guard, ngd_nsec_t now);
/* Tells the client why the connection ends (GOAWAY), if the output is between two frames. fault: the client's fault. */
void ngd_h2_guard_goodbye(struct ngd_h2_guard *guard, bool fault, const char *text);

/* True once the client's first bytes and its SETTINGS were good. */
bool ngd_h2_guard_begun(const struct ngd_h2_guard *guard);
uint32_t ngd_h2_guard_streams(const struct ngd_h2_guard *guard); /* open calls */

const char *ngd_h2_reason_name(ngd_h2_reason_t reason);
const char *ngd_h2_reason_text(ngd_h2_reason_t reason);

#endif
