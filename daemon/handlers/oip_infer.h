/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_OIP_INFER_H
#define NGD_DAEMON_HANDLERS_OIP_INFER_H

/*
 * One infer request to a graph, from its message to its response. ModelInfer and ModelStreamInfer both run it, and
 * differ in the memory that it uses and in how they answer.
 *
 * Memory: the message, the arena and the call live until done(); ngd_oip_infer_end releases what the request holds.
 * Threads: those of ngd_sched_submit.
 */
#include "base/charge.h"
#include "daemon/blocks.h"
#include "daemon/handlers/oip.h"
#include "daemon/handlers/oip_request.h"
#include "daemon/oip_sequences.h"

struct ngd_shm_region;

/* A result that goes into shared memory. */
struct ngd_oip_target {
    struct ngd_shm_region *region; /* a reference */
    uint64_t offset;
    const struct ngd_out *out;
};

struct ngd_oip_infer {
    /* The caller's, set before the start. */
    struct ngd_call *call;
    struct ngd_arena *arena;
    bool streamed; /* the response is a ModelStreamInferResponse */
    ngd_nsec_t arrived;
    struct ngd_oip_request q;
    struct ngd_oip_model model;     /* a graph; references */
    struct ngd_trace_record *trace; /* NULL: the request is not traced */
    /* Reserves the response's memory, of exactly `bytes`. */
    uint8_t *(*reserve)(struct ngd_oip_infer *x, size_t bytes, ngd_status_t *status_p, struct ngd_diag *diag);
    /* Called once after a successful start. OK: the response is complete. */
    void (*done)(struct ngd_oip_infer *x, ngd_status_t status, const struct ngd_diag *diag);

    /* The request's own. */
    struct ngd_request request;
    struct ngd_request_times times; /* of a traced one */
    uint8_t *response;
    size_t n_response;
    struct ngd_oip_target *targets;
    uint32_t n_targets;
    struct ngd_block *block, *out_block; /* of inputs, and of results, in shared memory */
    struct ngd_charge charge, out_charge;
    struct ngd_oip_sequence *sequence; /* a reference; NULL: the request belongs to none */
};

/* Starts the request. If it fails, done() has not been and will not be called. */
ngd_status_t ngd_oip_infer_start(struct ngd_oip_infer *x, struct ngd_diag *diag);
void ngd_oip_infer_cancel(struct ngd_oip_infer *x); /* after a successful start, before done() has returned */
void ngd_oip_infer_end(struct ngd_oip_infer *x);

/* Names the sequence that the request belongs to. UNAUTHENTICATED: nothing proves whose it would be. */
ngd_status_t ngd_oip_infer_sequence(const struct ngd_oip_infer *x, struct ngd_oip_sequence_name *name_p,
                                    struct ngd_diag *diag);

/* oip_inputs.c: fill request.launch with inputs, host parameters and symbols, and request.types. */
ngd_status_t ngd_oip_read_inputs(struct ngd_oip_infer *x, struct ngd_diag *diag);
/* oip_outputs.c: lays the response out, and points the launch's outputs into it. The symbols are in their ranges. */
ngd_status_t ngd_oip_lay_out(struct ngd_oip_infer *x, struct ngd_diag *diag);

#endif
