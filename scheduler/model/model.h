/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_MODEL_H
#define NGD_SCHEDULER_MODEL_MODEL_H

/*
 * Models and sequences: LLM decode on a contract. The scheduler does not know any architecture. The contract says which
 * inputs of two graphs are tokens, positions, KV slots, block tables, lengths and sampling parameters.
 *
 * The graphs are prefill (symbol T: a chunk of up to T rows of one sequence, or with a second symbol S: chunks of up to
 * S sequences) and decode (symbol B: one row of each of up to B sequences). Both read and write the same paged KV
 * states through block tables.
 *
 * Batching: a sequence with work is in its model's ready list. A model with ready sequences is one item of the device's
 * run queue. The worker that takes it forms one replay: decode steps up to the decode graph's largest bucket, or chunks
 * of prompts; when both wait, they alternate. Rows of a replay are independent, so the tokens of a sequence do not
 * depend on the other sequences.
 *
 * Prefix sharing: full blocks of computed tokens are found by their content. Sequences with the same beginning share
 * them, also after the sequence that computed them is closed, until the blocks are needed for others.
 *
 * Groups and windows: layers that see the same keys form a group with a block table of its own. All groups take blocks
 * of the same states, each other ones. If all layers of a group have a window, a sequence gives its blocks back when
 * the window has passed them (decision 0045).
 *
 * Sampling is part of the graph (temperature, top-k, top-p, seed; offset = number of tokens drawn so far). Penalties
 * and the like are not: sampling.h.
 *
 * Threads: call from any thread. Callbacks run on a worker and must be short. A sequence takes one operation at a time
 * (SEQUENCE_BUSY). close() may come at any time: the operation is answered with CANCELLED, and KV blocks are freed when
 * the replay that uses them has ended.
 */
#include "base/digest.h"
#include "scheduler/model/kv.h"
#include "scheduler/model/sampling.h"
#include "scheduler/run/sched.h"

struct ngd_model;
struct ngd_seq;

/* Inputs of a group of layers with block tables of its own. */
struct ngd_kv_group_labels {
    const char *slot_mapping, *block_table;
};
#define NGD_KV_GROUPS_MAX 8

/* What a model returns of a prompt's hidden states: that of its last row, or the mean of all. */
typedef enum ngd_pooling { NGD_POOLING_LAST, NGD_POOLING_MEAN } ngd_pooling_t;

/* Labels of inputs and outputs; "" = absent. Borrowed during create. Shapes: docs/protocol.md, "The decode contract".
 */
struct ngd_decode_contract {
    const char *tokens, *positions, *slot_mapping, *block_table;
    const char *query_lens, *context_lens;                   /* host parameters */
    const char *logits_rows;                                 /* optional */
    const char *temperature, *top_k, *top_p, *seed, *offset; /* all or none (then token_output is greedy's) */
    const char *token_output;                                /* required */
    const char *logits_output;                               /* optional */
    const char *hidden_output; /* optional, of the prefill graph: hidden states behind the final norm */
    ngd_pooling_t pooling;     /* of hidden_output: MEAN has those of all token rows */
    const char *const *kv_states;
    uint32_t n_kv_states;
    const struct ngd_kv_group_labels *more_groups; /* groups of layers behind the first one */
    uint32_t n_more_groups;
};

struct ngd_model_params {
    const char *name;
    const char *owner; /* for metrics, such as "uid:1000"; NULL: nobody */
    const char *description;
    const char *source;                   /* for clients: where its files are; NULL: not known */
    struct ngd_digest id;                 /* for clients: what it computes with */
    struct ngd_binding *prefill, *decode; /* references are taken */
    bool no_generation;                   /* embeddings alone: there is no decode graph, and `decode` is `prefill` */
    bool unit_embeddings;                 /* for clients: embeddings have the length 1 */
    struct ngd_decode_contract contract;
    uint32_t block_size, num_blocks, max_context, vocab;
    const int32_t *stop_tokens;
    uint32_t n_stop_tokens;
    uint64_t parameters;
    uint64_t weight_bytes, kv_bytes; /* for people */
    uint32_t max_sequences;          /* default 1024 */
    bool no_prefix_sharing;
    bool share_all_prefixes;  /* between owners too; else only within each owner */
    struct ngd_payers payers; /* references are taken */
    bool preempt; /* when KV blocks run out, take those of another sequence, which recomputes them later; else refuse */
};

/* Checks the contract against both graphs (MODEL_CONTRACT says what does not fit) and captures them. Blocks. */
ngd_status_t ngd_model_create(struct ngd_sched *sched, const struct ngd_model_params *params,
                              struct ngd_model **model_p, struct ngd_diag *diag);
struct ngd_model *ngd_model_ref(struct ngd_model *model);
struct ngd_model *ngd_model_unref(struct ngd_model *model); /* returns NULL */

/* Gets the bindings of both graphs, borrowed from the model. *decode_p is NULL if it only embeds. */
void ngd_model_bindings(const struct ngd_model *model, struct ngd_binding **prefill_p, struct ngd_binding **decode_p);

struct ngd_model_stats {
    const char *name, *description, *source;
    struct ngd_digest id;
    uint64_t parameters, weight_bytes, kv_bytes;
    uint32_t block_size, num_blocks, blocks_used, blocks_cached, max_context, vocab, max_batch, sequences;
    uint64_t tokens_prefill, tokens_shared, tokens_decode, batches, preemptions;
    struct ngd_program *prefill, *decode; /* borrowed from the model; decode is NULL if it only embeds */
    struct ngd_group *group;              /* on whose devices it runs, borrowed; NULL: one device */
    uint32_t windows[NGD_KV_GROUPS_MAX];  /* of each group of layers: keys that a row sees; 0: all */
    uint32_t n_groups;
    uint32_t blocks_per_sequence; /* the most that a sequence holds */
    const int32_t *stop_tokens;   /* borrowed from the model */
    uint32_t n_stop_tokens;
    uint32_t prefill_seqs; /* prompts of which a replay takes rows */
    uint32_t hidden_size;  /* elements of an embedding; 0: it returns none */
    ngd_pooling_t pooling;
    bool unit_embeddings;
};
void ngd_model_stats(struct ngd_model *model, struct ngd_model_stats *stats_p);

#define NGD_LOGPROBS_MAX 20 /* most probable tokens, beside the chosen one, that a caller can ask for */

/* Log probabilities by the logits alone, before temperature, top-k and top-p. */
struct ngd_logprobs {
    int32_t token; /* chosen */
    float logprob;
    uint32_t n_top; /* the most probable tokens, in order; of equal ones the smaller token first */
    struct {
        int32_t token;
        float logprob;
    } top[NGD_LOGPROBS_MAX];
};

/* Result of an open, step or fork. logits are valid during the callback only; NULL unless wanted. */
struct ngd_step_result {
    ngd_status_t status;
    const struct ngd_diag *diag;
    int32_t token;     /* chosen, not yet in the context */
    bool stop;         /* one of the stop tokens */
    uint32_t position; /* tokens in the context */
    const float *logits;
    uint32_t accepted; /* tokens of the draft that were appended */
    const struct ngd_logprobs
        *logprobs;       /* of the accepted tokens and of `token`; valid as logits are; NULL unless wanted */
    const float *hidden; /* hidden_size elements, finite; valid as logits are; NULL unless the open embeds */
    uint32_t vocab;
    uint32_t batch;  /* sequences in the replay */
    uint32_t shared; /* open: tokens of the prompt that were found in shared blocks */
    ngd_nsec_t queue, device;
    /* Where the whole operation's time went: waits and replays; NULL unless wanted. */
    const struct ngd_split *split;
};
typedef void (*ngd_step_fn)(void *user, struct ngd_seq *seq, const struct ngd_step_result *result);

struct ngd_seq_params {
    const int32_t *prompt;
    uint32_t n_prompt;
    struct ngd_sampling sampling; /* copied */
    const uint8_t *allowed;       /* a mask of tokens that the first one may be (sampling.h), copied; NULL: all */
    uint64_t allowed_bytes;
    /* The open returns the prompt's pooled hidden state and chooses no token: the sequence is good for nothing but to
     * be closed. It takes no sampling, mask, logits or logprobs. */
    bool embed;
    bool want_logits;   /* of the prompt's last token, in the open's result */
    bool want_logprobs; /* of the first token */
    bool want_split;
    uint32_t top;            /* most probable tokens wanted with the logprobs; at most NGD_LOGPROBS_MAX */
    ngd_priority_t priority; /* default priority of its operations */
    uint64_t owner;          /* sequences of one owner share prefixes; 0 counts as an owner too */
    struct ngd_share *share; /* charged with device time; a reference is taken; NULL: the scheduler's own */
    struct ngd_usage *usage; /* counts its device time; a reference is taken; NULL: none */
    struct ngd_payer *payer; /* pays for its host memory; NULL: none */
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
     * Tokens that are appended instead of the one chosen last, all but the last as a prompt is: what a user says behind
     * an answer. They count as given, not as generated. Neither forced nor draft goes with them. If the step fails
     * after it began, some of them may be in the context.
     */
    const int32_t *append;
    uint32_t n_append;
    /*
     * Speculative tokens. Those that the model would have chosen too, from the first one on and up to a stop token, are
     * appended as well (`accepted`). Fewer are tried if the batch has no room. The sequence's tokens are the same with
     * any draft.
     */
    const int32_t *draft;
    uint32_t n_draft;
    const uint8_t *allowed; /* a mask of tokens that the next one may be, copied; NULL: all. Not with a draft */
    uint64_t allowed_bytes;
    bool want_logits, want_logprobs; /* logits: those that the last token was chosen from */
    bool want_split;
    uint32_t top;
    ngd_priority_t priority;
};
void ngd_step_params_init(struct ngd_step_params *params);
/* Appends a token, then the tokens of the draft that are right, and chooses the next one. */
ngd_status_t ngd_seq_step(struct ngd_seq *seq, const struct ngd_step_params *params, ngd_step_fn done, void *user,
                          struct ngd_diag *diag);
/*
 * Generates up to max_tokens tokens. on_token gets each token as it is chosen; done is called exactly once. finish is
 * "length", "stop" or "context", or NULL with a status if the generation failed or was cancelled. A step in flight at a
 * cancel completes first. The first token is the one that the last operation chose; it has logprobs if that operation
 * was asked for them.
 */
typedef void (*ngd_token_fn)(void *user, struct ngd_seq *seq, int32_t token, uint32_t position,
                             const struct ngd_logprobs *logprobs);
typedef void (*ngd_generate_done_fn)(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status,
                                     const struct ngd_diag *diag);
#define NGD_STOP_TOKENS_MAX 16
#define NGD_FROM_CHOSEN     0
struct ngd_generate_params {
    /* For a generation that was interrupted: the first token is the one that was chosen behind so many. Those that the
     * context has already are delivered again, without logprobs. NGD_FROM_CHOSEN: the one that the last operation
     * chose, unless a generation has delivered it. INVALID_ARGUMENT: the sequence has fewer tokens. */
    uint32_t from;
    uint32_t max_tokens;
    bool ignore_stop;           /* go on past the model's stop tokens */
    const int32_t *stop_tokens; /* in addition to the model's; copied */
    uint32_t n_stop_tokens;
    bool want_logprobs;
    uint32_t top;
    ngd_priority_t priority;
    struct ngd_split
        *split; /* NULL, or written before each callback: where the time went so far; must live until done */
};
void ngd_generate_params_init(struct ngd_generate_params *params);
ngd_status_t ngd_seq_generate(struct ngd_seq *seq, const struct ngd_generate_params *params, ngd_token_fn on_token,
                              ngd_generate_done_fn done, void *user, struct ngd_diag *diag);
void ngd_seq_cancel(struct ngd_seq *seq); /* stops a generation or a waiting step; the sequence stays usable */
/* The same if the operation under way was begun with that `user`, and not by who came after it. A call that comes while
 * the operation is being begun may do nothing. */
void ngd_seq_cancel_of(struct ngd_seq *seq, const void *user);
/*
 * Waits for a cancelled operation that still runs. AWAITED: `ended` is called once, without a lock, when the operation
 * has been answered, which is at the end of the step in flight; another caller may begin one first. BUSY: the operation
 * was not cancelled, or there is a waiter already. FREE: there is no operation.
 */
struct ngd_seq_waiter {
    void (*ended)(struct ngd_seq_waiter *waiter);
};
typedef enum ngd_seq_await { NGD_SEQ_FREE, NGD_SEQ_AWAITED, NGD_SEQ_BUSY } ngd_seq_await_t;
ngd_seq_await_t ngd_seq_await(struct ngd_seq *seq, struct ngd_seq_waiter *waiter);
void ngd_seq_close(struct ngd_seq *seq); /* takes the caller's reference */
bool ngd_seq_is_closed(struct ngd_seq *seq);
/*
 * Copies an idle sequence: full blocks are shared, the last one is copied. With other sampling parameters its next
 * token is drawn again from the same logits, and under the same mask. done is called as by open.
 */
struct ngd_fork_params {
    struct ngd_sampling sampling;
    bool want_logits, want_logprobs, want_split;
    uint32_t top;
};
ngd_status_t ngd_seq_fork(struct ngd_seq *seq, const struct ngd_fork_params *params, ngd_step_fn done, void *user,
                          struct ngd_seq **seq_p, struct ngd_diag *diag);
/* Keeps the memory of a sequence that another thread may close: calls on a closed sequence answer STALE_ID. */
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
