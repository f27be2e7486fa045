/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_OIP_REQUEST_H
#define NGD_DAEMON_HANDLERS_OIP_REQUEST_H

/*
 * Reads a ModelInferRequest. Raw contents stay in the message, which must live as long as the request; the rest is
 * unpacked into the arena. Pure: knows neither calls nor models. Bounds: daemon/rpc/wire_bounds.def.
 */
#include "base/mem.h"
#include "devices/device.h"
#include "proto/inference.pb-c.h"
#include "scheduler/model/sampling.h"
#include "scheduler/run/sched.h"

typedef Inference__ModelInferRequest__InferInputTensor ngd_oip_tensor_t;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor ngd_oip_wanted_t;

#define NGD_OIP_SEQUENCE_ID_MAX 128 /* bytes of a sequence's id that is text */

/* Parameters of a request; one that is not given is 0. */
struct ngd_oip_params {
    int64_t timeout_us, priority;
    char sequence[NGD_OIP_SEQUENCE_ID_MAX + 2]; /* "#" and a number, or "$" and text; "": none */
    int64_t sequence_start, sequence_end;       /* 0 or 1 */
    int64_t empty_final, ignore_stop;           /* 0 or 1 */
    int64_t max_tokens, min_tokens, top_k, seed;
    double temperature, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t given;         /* a bit for each row of the table in oip_request.c */
    const char *of_opening; /* a parameter that was given and counts for a whole sequence of tokens; or NULL */
};

struct ngd_oip_request {
    const Inference__ModelInferRequest *m; /* without raw contents */
    struct ngd_span *raw;
    uint32_t n_raw;
    struct ngd_oip_params params;
};

/* Fails with MALFORMED_MESSAGE, MESSAGE_TOO_LARGE, INVALID_ARGUMENT or NO_MEMORY. */
ngd_status_t ngd_oip_request_read(struct ngd_arena *arena, const uint8_t *data, size_t n, struct ngd_oip_request *q,
                                  struct ngd_diag *diag);
/*
 * Reads the request's parameters. language_model: also those of generations. A parameter "symbol.NAME" is left to the
 * graph. INVALID_ARGUMENT: one is not known, or has a value of another type or outside its range.
 */
ngd_status_t ngd_oip_request_params(struct ngd_oip_request *q, bool language_model, struct ngd_diag *diag);
#define NGD_OIP_SYMBOL "symbol."

/* Reads an integer that may come as either of two types. False: it is none. */
bool ngd_oip_integer(const Inference__InferParameter *p, int64_t *value_p);
ngd_priority_t ngd_oip_priority(int64_t priority);
/* The earlier of the call's deadline and the request's. */
ngd_nsec_t ngd_oip_deadline(const struct ngd_oip_params *params, ngd_nsec_t arrived, ngd_nsec_t deadline);

/* Where a tensor lies in shared memory, by its parameters. region NULL: it does not. */
struct ngd_oip_place {
    const char *region;
    uint64_t offset, bytes;
};
/* INVALID_ARGUMENT: a parameter is not known or not valid, or region and byte_size do not come together. what: "input"
 * or "output". */
ngd_status_t ngd_oip_place_of_input(const ngd_oip_tensor_t *t, struct ngd_oip_place *place_p, struct ngd_diag *diag);
ngd_status_t ngd_oip_place_of_output(const ngd_oip_wanted_t *t, struct ngd_oip_place *place_p, struct ngd_diag *diag);

#endif
