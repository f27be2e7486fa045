/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_CONTRACT_H
#define NGD_SCHEDULER_MODEL_CONTRACT_H

/*
 * Checks the decode contract against a graph: which input or output has which role. Pure functions. A mismatch is
 * NGD_ERR_MODEL_CONTRACT, with the role, the label, what the graph has and what it must have.
 */
#include "scheduler/model/model.h"

typedef enum ngd_role {
    NGD_ROLE_TOKENS,
    NGD_ROLE_POSITIONS,
    NGD_ROLE_SLOTS,
    NGD_ROLE_TABLE,
    NGD_ROLE_QUERY_LENS,
    NGD_ROLE_CONTEXT_LENS,
    NGD_ROLE_LOGITS_ROWS,
    NGD_ROLE_TEMPERATURE,
    NGD_ROLE_TOP_K,
    NGD_ROLE_TOP_P,
    NGD_ROLE_SEED,
    NGD_ROLE_OFFSET,
    NGD_ROLE_TOKEN,
    NGD_ROLE_LOGITS,
    NGD_ROLE_HIDDEN,
    NGD_ROLE_GROUPS, /* slots and table of the second group of layers, then those of the third, ... */
    NGD_ROLE_MAX = NGD_ROLE_GROUPS + 2 * (NGD_KV_GROUPS_MAX - 1)
} ngd_role_t;

/* The roles of a group's slots and of its block table. */
static inline ngd_role_t ngd_role_slots(uint32_t group)
{
    return group ? (ngd_role_t)(NGD_ROLE_GROUPS + 2 * (group - 1)) : NGD_ROLE_SLOTS;
}
static inline ngd_role_t ngd_role_table(uint32_t group)
{
    return group ? (ngd_role_t)(NGD_ROLE_GROUPS + 2 * (group - 1) + 1) : NGD_ROLE_TABLE;
}

typedef enum ngd_role_kind { NGD_ROLE_INPUT, NGD_ROLE_HOST, NGD_ROLE_OUTPUT } ngd_role_kind_t;

typedef enum ngd_role_shape {
    NGD_PER_ROW,       /* one for each token row */
    NGD_PER_SEQ,       /* one for each sequence */
    NGD_PER_SEQ_TABLE, /* a row of the block table for each sequence */
    NGD_PER_RESULT,    /* one for each row of logits */
    NGD_PER_RESULT_VOCAB,
    NGD_PER_POOLED, /* hidden states: of each result, or of each token row if all are pooled */
} ngd_role_shape_t;

struct ngd_role_info {
    const char *name; /* the contract's field */
    ngd_role_kind_t kind;
    ngd_role_shape_t shape;
    ngd_dtype_t dtype;
};
extern const struct ngd_role_info ngd_role_infos[NGD_ROLE_MAX];

/* The roles of a contract in one of the two graphs. */
struct ngd_roles {
    int index[NGD_ROLE_MAX]; /* ordinal of the user input, host parameter or output; -1 = absent */
    bool result_per_row;     /* there are logits for each token row, not for each sequence */
    bool hidden_per_row;     /* the same of hidden states */
    uint32_t hidden_size;    /* elements of a hidden state; 0: the graph returns none */
    uint32_t n_symbols;      /* 2: the second one is the number of sequences */
    uint32_t max_rows;       /* largest value of the first symbol */
    uint32_t max_seqs;       /* sequences that a replay takes rows of: of a step, max_rows */
    uint32_t table_width;    /* of each group's block table */
};

ngd_status_t ngd_contract_resolve(const struct ngd_model_params *params, bool decode, struct ngd_roles *roles_p,
                                  struct ngd_diag *diag);
/* Sets the roles of a graph that a model does not have. */
void ngd_contract_no_roles(struct ngd_roles *roles_p);
/*
 * Returns true if the decode graph writes each KV state before it reads it. Then a replay may have several rows of one
 * sequence: each finds the keys and values of the rows before it.
 */
bool ngd_contract_writes_first(const struct ngd_model_params *params);
/*
 * Returns how many keys a row of the group's layers sees at most, itself among them, in either graph; 0: all. The
 * graphs say so: every node that has the group's block table must be an attention with a window.
 */
uint32_t ngd_contract_window(const struct ngd_model_params *params, uint32_t group);
/* Checks that the KV states are the same buffers in both bindings. */
ngd_status_t ngd_contract_check_states(const struct ngd_model_params *params, struct ngd_diag *diag);

#endif
