/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_MODEL_H
#define NGD_SCHEDULER_MODEL_MODEL_H

/*
 * Models and sequences: LLM decode on a contract. The scheduler knows no model; the contract says which inputs
 * of two graphs are tokens, positions, KV slots, block tables, lengths and sampling parameters.
 *
 * Two graphs: prefill (symbol T, one sequence's chunk of up to T rows, S = 1) and decode (symbol B, one row for each of
 * up to B sequences). Both write and read the same paged KV states through block tables.
 *
 * Engine: a sequence that wants a step is on its model's ready list; a model with ready sequences is one item of the
 * device's run queue. A worker that takes it forms one batch: all ready decode steps up to the decode graph's largest
 * bucket, or one prefill chunk; prefill and decode alternate when both wait. Rows of a batch are independent, so a
 * sequence's tokens do not depend on who else is in it.
 *
 * Prefixes: full blocks of computed tokens are found again by their content, so sequences with the same beginning share
 * them, also after the one that computed them is closed, until the blocks are needed for others.
 *
 * Sampling is in the graph (temperature, top-k, top-p, seed, offset = number of tokens drawn so far).
 *
 * Threads: calls from any thread; callbacks run on a worker and must be short. One step of a sequence at a time
 * (SEQUENCE_BUSY). close() may come at any time: a step under way is answered with CANCELLED, and its KV blocks are
 * freed when the replay that uses them is over.
 */
#include "scheduler/model/kv.h"
#include "scheduler/run/sched.h"

struct ngd_model;
struct ngd_seq;

/* Labels of inputs and outputs; "" = absent. Borrowed during create. Shapes: docs/protocol.md, "The decode contract".
 */
struct ngd_decode_contract {
    const char *tokens, *positions, *slot_mapping, *block_table;
    const char *query_lens, *context_lens;                   /* host parameters */
    const char *logits_rows;                                 /* optional */
    const char *temperature, *top_k, *top_p, *seed, *offset; /* all or none (then token_output is greedy's) */
    const char *token_output;                                /* required */
    const char *logits_output;                               /* optional */
    const char *const *kv_states;
    uint32_t n_kv_states;
};

struct ngd_model_params {
    const char *name;
    const char *owner; /* for metrics, such as "uid:1000"; NULL: nobody */
    const char *description;
    struct ngd_binding *prefill, *decode; /* references are taken */
    struct ngd_decode_contract contract;
    uint32_t block_size, num_blocks, max_context, vocab;
    const int32_t *stop_tokens;
    uint32_t n_stop_tokens;
    uint64_t parameters;
    uint64_t weight_bytes, kv_bytes; /* for people */
    uint32_t max_sequences;          /* default 1024 */
    bool no_prefix_sharing;
    bool share_all_prefixes;  /* of all owners; else of each owner apart */
    struct ngd_payers payers; /* references are taken */
    bool preempt; /* when KV blocks run out, take another sequence's, which computes them again; else refuse */
};

/* Checks the contract against both graphs (MODEL_CONTRACT says what does not fit) and captures them: blocks. */
ngd_status_t ngd_model_create(struct ngd_sched *sched, const struct ngd_model_params *params,
                              struct ngd_model **model_p, struct ngd_diag *diag);
struct ngd_model *ngd_model_ref(struct ngd_model *model);
struct ngd_model *ngd_model_unref(struct ngd_model *model); /* returns NULL */

struct ngd_model_stats {
    const char *name, *description;
    uint64_t parameters, weight_bytes, kv_bytes;
    uint32_t block_size, num_blocks, blocks_used, blocks_cached, max_context, vocab, max_batch, sequences;
    uint64_t tokens_prefill, tokens_shared, tokens_decode, batches, preemptions;
    struct ngd_program *prefill, *decode; /* borrowed from the model */
};
void ngd_model_stats(struct ngd_model *model, struct ngd_model_stats *stats_p);

struct ngd_sampling {
    float temperature; /* 0 = greedy; 0..100 */
    int32_t top_k;     /* 0 = off */
    float top_p;       /* 0 or 1 = off; 0..1 */
    uint64_t seed;
};

#define NGD_LOGPROBS_MAX 20 /* most probable tokens that can be asked for beside the chosen one */

/* How probable tokens were by the logits alone, before temperature, top-k and top-p. */
struct ngd_logprobs {
    int32_t token; /* chosen */
    float logprob;
    uint32_t n_top; /* the most probable ones, in order; of equals the smaller token first */
    struct {
        int32_t token;
        float logprob;
    } top[NGD_LOGPROBS_MAX];
};

/* What a step gives. logits are valid during the callback only; NULL unless wanted. */
struct ngd_step_result {
    ngd_status_t status;
    const struct ngd_diag *diag;
    int32_t token;     /* chosen, not yet in the context */
    bool stop;         /* one of the stop tokens */
    uint32_t position; /* tokens in the context */
    const float *logits;
    uint32_t accepted; /* tokens of the draft that are in the context now */
    const struct ngd_logprobs
        *logprobs; /* of the accepted tokens and of `token`; valid as logits are; NULL unless wanted */
    uint32_t vocab;
    uint32_t batch;  /* sequences in the replay */
    uint32_t shared; /* open: tokens of the prompt that others had computed */
    ngd_nsec_t queue, device;
    /* Of the whole operation: what it waited in all, and the replays that it had a part in; NULL unless wanted. */
    const struct ngd_split *split;
};
typedef void (*ngd_step_fn)(void *user, struct ngd_seq *seq, const struct ngd_step_result *result);

struct ngd_seq_params {
    const int32_t *prompt;
    uint32_t n_prompt;
    struct ngd_sampling sampling;
    bool want_logits;   /* of the prompt's last token, in the open's result */
    bool want_logprobs; /* of the first token */
    bool want_split;
    uint32_t top;            /* with n_top so many, at most NGD_LOGPROBS_MAX */
    ngd_priority_t priority; /* of what does not say otherwise; 0 is the most urgent class */
    uint64_t owner;          /* sequences of one owner share the beginnings of their prompts; 0: those without */
    struct ngd_share *share; /* who asks; a reference is taken; NULL: the scheduler's own */
    struct ngd_usage *usage; /* counts what it gets; a reference is taken; NULL: nobody does */
    struct ngd_payer *payer; /* of its host memory; NULL: nobody */
};

/*
 * Opens a sequence: checks the prompt (TOKEN_RANGE, PROMPT_TOO_LONG), takes KV blocks for it (KV_EXHAUSTED) and queues
 * its prefill. *seq_p is set before done can run. The caller owns one reference and gives it up with close.
 */
ngd_status_t ngd_seq_open(struct ngd_model *model, const struct ngd_seq_params *params, ngd_step_fn done, void *user,
                          struct ngd_seq **seq_p, struct ngd_diag *diag);
#define NGD_PRIORITY_OWN NGD_PRIORITIES /* that of the sequence */

struct ngd_step_params {
    int32_t forced; /* >= 0: appended instead of the token chosen last; else -1 */
    /*
     * What the caller thinks comes next. The longest beginning of it that the model would have chosen, token by token,
     * is appended as well (`accepted`), up to a stop token; fewer are looked at when the batch has no room. What the
     * sequence says is the same with any draft.
     */
    const int32_t *draft;
    uint32_t n_draft;
    bool want_logits, want_logprobs; /* logits: those that the last token was chosen from */
    bool want_split;
    uint32_t top;
    ngd_priority_t priority;
};
void ngd_step_params_init(struct ngd_step_params *params);
/* Appends a token, and those of the draft that are right, and chooses the next. */
ngd_status_t ngd_seq_advance_by(struct ngd_seq *seq, const struct ngd_step_params *params, ngd_step_fn done, void *user,
                                struct ngd_diag *diag);
/* The same without a draft. */
ngd_status_t ngd_seq_step(struct ngd_seq *seq, int32_t forced, bool want_logits, ngd_step_fn done, void *user,
                          struct ngd_diag *diag);
/*
 * Up to max_tokens steps without the caller between: each token goes to on_token as it is made; finish is "length",
 * "stop", "context", or NULL with a status when it failed or was cancelled; exactly one done. The step in flight at a
 * cancel completes first. The first token delivered is the one chosen last, before any new step; it has logprobs if
 * what chose it was asked for them.
 */
typedef void (*ngd_token_fn)(void *user, struct ngd_seq *seq, int32_t token, uint32_t position,
                             const struct ngd_logprobs *logprobs);
typedef void (*ngd_generate_done_fn)(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status,
                                     const struct ngd_diag *diag);
#define NGD_STOP_TOKENS_MAX 16
struct ngd_generate_params {
    uint32_t max_tokens;
    bool ignore_stop;           /* go on past the model's stop tokens */
    const int32_t *stop_tokens; /* of this generation, beside the model's; copied */
    uint32_t n_stop_tokens;
    bool want_logprobs;
    uint32_t top;
    ngd_priority_t priority;
    struct ngd_split
        *split; /* NULL, or where the time went, in all so far: written before each callback; kept until done */
};
void ngd_generate_params_init(struct ngd_generate_params *params);
ngd_status_t ngd_seq_generate_by(struct ngd_seq *seq, const struct ngd_generate_params *params, ngd_token_fn on_token,
                                 ngd_generate_done_fn done, void *user, struct ngd_diag *diag);
ngd_status_t ngd_seq_generate(struct ngd_seq *seq, uint32_t max_tokens, bool ignore_stop, ngd_token_fn on_token,
                              ngd_generate_done_fn done, void *user, struct ngd_diag *diag);
void ngd_seq_cancel(struct ngd_seq *seq); /* stops a generation or a waiting step; the sequence stays usable */
/*
 * For who comes while an operation that was cancelled still runs. AWAITED: ended is called when that one has been
 * answered, at the end of the step in flight, once and without a lock; others may be quicker then. BUSY: the operation
 * goes on, or somebody waits already.
 */
struct ngd_seq_waiter {
    void (*ended)(struct ngd_seq_waiter *waiter);
};
typedef enum ngd_seq_await { NGD_SEQ_FREE, NGD_SEQ_AWAITED, NGD_SEQ_BUSY } ngd_seq_await_t;
ngd_seq_await_t ngd_seq_await(struct ngd_seq *seq, struct ngd_seq_waiter *waiter);
void ngd_seq_close(struct ngd_seq *seq); /* takes the caller's reference */
/*
 * A copy of an idle sequence, which goes its own way: the full blocks are shared, the last one is copied. With other
 * sampling its next token is drawn anew, from the same logits. done is called as by open.
 */
struct ngd_fork_params {
    struct ngd_sampling sampling;
    bool want_logits, want_split;
};
ngd_status_t ngd_seq_fork_by(struct ngd_seq *seq, const struct ngd_fork_params *params, ngd_step_fn done, void *user,
                             struct ngd_seq **seq_p, struct ngd_diag *diag);
/* The same without its split. */
ngd_status_t ngd_seq_fork(struct ngd_seq *seq, const struct ngd_sampling *sampling, bool want_logits, ngd_step_fn done,
                          void *user, struct ngd_seq **seq_p, struct ngd_diag *diag);
/* For who may still call on it while another closes it: calls on a closed sequence answer STALE_ID. */
struct ngd_seq *ngd_seq_ref(struct ngd_seq *seq);
void ngd_seq_unref(struct ngd_seq *seq);
struct ngd_model *ngd_seq_model(const struct ngd_seq *seq);

struct ngd_seq_info {
    uint32_t position, blocks, shared;
    const char *state; /* "prefill", "idle", "queued", "running", "stopping", "starved" */
    uint64_t tokens;
};
void ngd_seq_info(struct ngd_seq *seq, struct ngd_seq_info *info_p);

#endif
