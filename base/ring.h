/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_RING_H
#define NGD_BASE_RING_H

/*
 * The layout of a ring: memory that a client and the daemon share for requests which must not take a way through the
 * kernel. It has lanes. A lane is like a stream of gRPC with one request under way: the client writes a message into
 * its request, sets its bit in `pending`, and waits until `answered` of the lane is the request's number.
 *
 * Everything here may be changed by the client at any time, so the daemon takes each word once, checks it, and copies a
 * message before it looks at it. There are no indices: a lane is a bit, and a lane that has no request under way is
 * known to the daemon without this memory. What a client does wrong ends its ring.
 *
 * Sleeping. Before the daemon sleeps, it sets `sleeping` and looks at `pending` once more; a client that has set a bit
 * and finds `sleeping` set writes to the ring's eventfd. Before a client sleeps, it sets `waits` of its lane and looks
 * at `answered` once more; the daemon that has answered and finds `waits` set wakes the futex `answered`. Each side
 * says on which CPU it ran last: who looks for the other one on its own CPU only keeps it from running.
 */
#include <stdatomic.h>
#include <stdint.h>

#define NGD_RING_MAGIC   0x31474e52u /* of this layout */
#define NGD_RING_LANES   16u
#define NGD_RING_MESSAGE (32u << 10) /* bytes of a request or an answer; larger ones go over gRPC */

/* What a lane's request is. */
enum { NGD_RING_REPLAY, NGD_RING_STEP, NGD_RING_METHODS };

/* What a lane's answer is. */
enum {
    NGD_RING_ANSWER,    /* a ReplayResponse or StepResponse */
    NGD_RING_FAILED,    /* a ReplayError: why the request failed, as the status of a call */
    NGD_RING_ELSEWHERE, /* nothing was done: the answer does not fit; send the request over gRPC */
};

struct ngd_ring_lane_words {
    /* The client's. */
    _Alignas(64) uint32_t number; /* of the request; another one than the last */
    uint32_t method, n_request, cpu;
    _Atomic uint32_t waits;
    /* The daemon's. */
    _Alignas(64) _Atomic uint32_t answered; /* number of the last answered request; a futex */
    uint32_t kind, n_answer;
};

struct ngd_ring_words {
    uint32_t magic;
    _Alignas(64) _Atomic uint32_t pending; /* a bit for each lane with a new request */
    _Atomic uint32_t cancelled; /* a bit for each lane whose request, or whose last graph, is not wanted any more */
    _Alignas(64) _Atomic uint32_t sleeping;
    _Atomic uint32_t cpu;
    _Atomic uint32_t ended; /* the daemon does not look at this ring any more */
    struct ngd_ring_lane_words lanes[NGD_RING_LANES];
    _Alignas(64) uint8_t requests[NGD_RING_LANES][NGD_RING_MESSAGE];
    _Alignas(64) uint8_t answers[NGD_RING_LANES][NGD_RING_MESSAGE];
};

#endif
