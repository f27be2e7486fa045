/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_SEQ_MOVE_H
#define NGD_SCHEDULER_MODEL_SEQ_MOVE_H

/*
 * A sequence between two operations, as another process can go on with it: its tokens, how its next ones are chosen,
 * and the keys and values of its KV blocks.
 *
 * Keys and values are the blocks that the groups' tables hold, group by group and in the order of the tables; of each
 * block, its part of each KV state. The other process may leave them out: it then computes the context again, as after
 * a preemption.
 *
 * Threads: any. Memory: an exported image borrows from the sequence, which must have no operation meanwhile. An
 * imported one is copied. What is imported is checked: it may come from anywhere.
 */
#include "scheduler/model/model.h"

struct ngd_seq_image {
    const int32_t *tokens; /* fill */
    uint32_t fill, n_prompt, n_given, position, shared;
    int32_t chosen;
    bool delivered;
    uint64_t draws;
    struct ngd_sampling sampling;
    const uint8_t *allowed; /* under which `chosen` was chosen; NULL: all tokens were */
    uint64_t allowed_bytes;
    ngd_priority_t priority;
    const struct ngd_logprobs *logprobs; /* of `chosen`; NULL: there are none */
    uint32_t n_tables;                   /* 0: keys and values are left out */
    const uint8_t *ways;                 /* a bit for each token: how it was computed; NULL: all as by steps */
    uint64_t ways_bytes;
    uint32_t uncomputed, part; /* tokens of a part that a step appended which were never computed; where it begins */
    struct {
        uint32_t first, n;
    } tables[NGD_KV_GROUPS_MAX];
    uint64_t kv_bytes;
};

/* Takes keys and values; called several times, in order. */
typedef ngd_status_t (*ngd_seq_put_fn)(void *ctx, const void *data, uint64_t n, struct ngd_diag *diag);

/* Describes an idle sequence, and gives its keys and values to `put`. SEQUENCE_BUSY: it has an operation. */
ngd_status_t ngd_seq_export(struct ngd_seq *seq, struct ngd_seq_image *image_p, ngd_seq_put_fn put, void *ctx,
                            struct ngd_diag *diag);

/* Who has an imported sequence: as in struct ngd_seq_params. */
struct ngd_seq_owner {
    uint64_t key;
    struct ngd_share *share;
    struct ngd_usage *usage;
    struct ngd_payer *payer;
};
/*
 * Makes an idle sequence of an image and its keys and values. Without room for its blocks it has none. The caller owns
 * one reference and gives it up with close. INVALID_ARGUMENT: the image fits no sequence of the model.
 */
ngd_status_t ngd_seq_import(struct ngd_model *model, const struct ngd_seq_image *image, const uint8_t *kv,
                            const struct ngd_seq_owner *owner, struct ngd_seq **seq_p, struct ngd_diag *diag);
/*
 * Sets the bits in `ways`, for an image of `fill` tokens, of parts that steps appended to the context and that were
 * computed as prompts are: n numbers, the begin and the end of each. INVALID_ARGUMENT: they are not parts of a context
 * behind n_prompt tokens.
 */
ngd_status_t ngd_model_ways_of_parts(const struct ngd_model *model, const uint32_t *parts, size_t n, uint32_t n_prompt,
                                     uint32_t fill, uint8_t *ways, struct ngd_diag *diag);

/*
 * Looks whether a step that a client sends is one that was done before, and whose answer was lost: the client says that
 * the sequence had `at` tokens. *done_p: it was done, and *result_p is the answer. INVALID_ARGUMENT: the sequence has
 * other tokens than this step can explain. ANSWER_LOST: it was done, and the answer had logits, which are not kept.
 */
ngd_status_t ngd_seq_look_back(struct ngd_seq *seq, const struct ngd_step_params *params, uint32_t at,
                               struct ngd_step_result *result_p, bool *done_p, struct ngd_diag *diag);

#endif
