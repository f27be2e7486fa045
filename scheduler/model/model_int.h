/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_MODEL_INT_H
#define NGD_SCHEDULER_MODEL_MODEL_INT_H

/*
 * Shared by the files of scheduler/model.
 *
 * The model's lock protects the fields of a sequence. A worker that takes a sequence into a batch sets RUNNING. From
 * then on only that worker changes position, blocks and tokens, under the lock, since others read them. Others set
 * flags (cancelled, closed), which the worker obeys after the replay.
 */
#include "scheduler/model/contract.h"
#include "scheduler/model/seq_move.h"
#include "scheduler/program/group.h"
#include "scheduler/model/prompt_pace.h"
#include "scheduler/replay/replay.h"
#include "scheduler/run/usage.h"

typedef enum ngd_seq_op { NGD_SEQ_NONE, NGD_SEQ_OPEN, NGD_SEQ_STEP, NGD_SEQ_GENERATE, NGD_SEQ_FORK } ngd_seq_op_t;

/*
 *   IDLE --step, generate--> READY --batch--> RUNNING --done--> IDLE
 *   (open starts in READY)     ^                 |
 *                              +-- next token, --+
 *                                  next chunk
 */
typedef enum ngd_seq_state { NGD_SEQ_IDLE, NGD_SEQ_READY, NGD_SEQ_RUNNING, NGD_SEQ_STARVED } ngd_seq_state_t;

/* A sequence's blocks in a group of layers, by number of the block in its context. */
struct ngd_seq_table {
    int32_t *blocks;   /* room for max_context tokens */
    uint32_t first, n; /* it holds [first, n); those before `first` a window has passed */
};

/* A copy of a mask of allowed tokens, and what it is charged. */
struct ngd_seq_mask {
    uint8_t *bits; /* NULL: any token is allowed */
    struct ngd_charge charge;
};

struct ngd_seq {
    struct ngd_list link;     /* in a list of the model: ready, or starved */
    struct ngd_list all_link; /* in the model's list of all, until it is closed */
    struct ngd_list giving;   /* in a list of candidates for preemption: preempt.c */
    uint64_t claim;           /* serial number of its last operation: earlier is smaller */
    int ready_kind;           /* the ready list that it is in */
    struct ngd_model *model;
    _Atomic uint32_t refs;         /* the caller's, and one for the operation under way */
    struct ngd_sampling sampling;  /* a copy */
    struct ngd_seq_mask next_mask; /* of the operation under way */
    struct ngd_seq_mask allowed;   /* under which `chosen` was chosen */
    struct ngd_share *share;       /* a reference */
    struct ngd_usage *usage;       /* a reference, or NULL */
    uint32_t n_prompt;
    uint32_t n_given; /* the first so many tokens are its client's; those behind them were generated */
    struct ngd_charge charge;
    int32_t *tokens; /* max_context entries, of which [0, fill) are set */

    ngd_seq_state_t state;
    ngd_seq_op_t op;
    bool cancelled;                /* end the operation after its replay */
    struct ngd_seq_waiter *waiter; /* for that end; or NULL */
    bool closed;
    bool broken;       /* its prompt failed, so it can only be closed; it has no blocks */
    bool nameless;     /* blocks that become full get no names: the one before them has none that is known here */
    uint8_t *ways;     /* a bit for each token: how its row was computed, and is again (context.c) */
    uint32_t computed; /* the first so many tokens have been in the blocks, and have their bits in `ways` */
    uint32_t part;     /* where what a step appended begins, of which those behind `computed` are the rest */
    uint32_t position; /* tokens whose keys and values are in the blocks */
    uint32_t fill;     /* tokens that must be in the blocks before the next one is chosen */
    uint32_t shared;   /* tokens of the prompt that were found in blocks of other sequences */
    struct ngd_seq_table tables[NGD_KV_GROUPS_MAX];
    uint32_t n_counted;                    /* blocks charged to its share: those of its context, allocated or not */
    uint32_t n_named;                      /* the first so many blocks of its context have names */
    struct ngd_digest root;                /* name before the first block: of its owner, so owners share no names */
    struct ngd_digest name;                /* of the last named block */
    int32_t chosen;                        /* token chosen by the last step; not in the context yet */
    bool delivered;                        /* a generation has delivered `chosen` */
    uint64_t draws;                        /* tokens drawn so far: the offset of the next draw */
    ngd_nsec_t asked;                      /* when the operation began */
    ngd_nsec_t ready;                      /* when it became ready for its next replay */
    ngd_nsec_t turn;                       /* its place in the ready list: batch.c */
    ngd_nsec_t waits_since;                /* the operation began, or its last replay or slice ended */
    struct ngd_split split;                /* where the operation's time went so far */
    ngd_priority_t priority, own_priority; /* of the operation; the default of its operations */

    /* The operation under way. */
    int32_t forced;   /* -1: append `chosen` */
    uint32_t n_draft; /* draft tokens, which are in `tokens` behind the appended one */
    bool embed;       /* the open's result is the prompt's hidden state */
    double *pool;     /* sums of the hidden states of the first n_pooled rows; NULL: the last one is enough */
    uint32_t n_pooled;
    uint32_t rows; /* in its replay: of a chunk, or the appended token and some of the draft */
    bool want_logits, want_logprobs, want_split;
    bool samples; /* the replay under way returns its logits, and the worker chooses: sample.c */
    uint32_t top;
    struct ngd_logprobs logprobs; /* of `chosen`, when has_logprobs */
    bool has_logprobs;
    int32_t stop_tokens[NGD_STOP_TOKENS_MAX]; /* of a generation */
    uint32_t n_stop_tokens;
    bool ignore_stop;
    uint32_t remaining;        /* tokens to deliver */
    uint32_t from;             /* of a generation that catches up: the first token to deliver; else NGD_FROM_CHOSEN */
    struct ngd_split *split_p; /* of a generation: for its caller; or NULL */
    ngd_step_fn done;
    ngd_token_fn on_token;
    ngd_generate_done_fn generate_done;
    void *user;
};

/* What is needed to answer an operation after its sequence may have been freed. */
struct ngd_seq_end {
    ngd_seq_op_t op;
    ngd_step_fn done;
    ngd_generate_done_fn generate_done;
    void *user;
    struct ngd_seq_waiter *waiter;
    int32_t token;
    uint32_t position;
};

/* Ready lists: one for each of the two graphs, and one for sequences that a cap holds (lineup/cap.h). */
enum { NGD_PREFILL, NGD_DECODE, NGD_HELD, NGD_READY_KINDS };

/* Host memory that replays read and write, allocated once: an array for each role. */
struct ngd_staging {
    void *data[NGD_ROLE_MAX];
    uint32_t rows, seqs, results; /* room */
};
#define NGD_STAGED(mg, role, type) ((type *)(mg)->staging.data[NGD_ROLE_##role])

/* Rows of a context that are to be computed next. */
struct ngd_chunk {
    int kind; /* the graph: NGD_PREFILL; NGD_DECODE for rows that only steps compute in their way (again.c) */
    uint32_t rows;
    uint32_t planned; /* rows of the executable that computes them */
    uint32_t most;    /* likewise, if others that are computed again join them */
};

/* One of the two graphs and its launch. A prompt's launch may be paused while steps run. */
struct ngd_model_graph {
    struct ngd_binding *binding;
    struct ngd_roles roles;
    struct ngd_staging staging;
    struct ngd_span *inputs;
    struct ngd_host_value *hosts;
    struct ngd_out *outputs;
    int64_t symbols[2]; /* rows; sequences, if the graph has a symbol for them */
    struct ngd_launch launch;
};

/* The chunks of prompts whose replay is under way, slice by slice: prompt.c. */
struct ngd_prompt {
    struct ngd_seq **seqs;           /* RUNNING; room for all that the prefill graph takes. seq->rows: of its chunk */
    uint32_t n;                      /* 0: none is under way. Both are written under the model's lock */
    struct ngd_gcache_entry *entry;  /* pinned until the replay ends */
    struct ngd_chunk chunk;          /* rows of all; planned rows of the executable */
    ngd_nsec_t begin, time, longest; /* start; device time so far; longest time between two stopping points */
    /* Kept between replays. The instance has a pool of its own, since others use the slots' pools between slices. */
    struct ngd_pool *pool;
    struct ngd_instance *inst;
    bool no_room; /* no memory for that pool: chunks run whole, in the slot's */
};

struct ngd_model {
    struct ngd_sched_item item;
    struct ngd_share *item_share; /* a reference: pays for the item. Written only by the thread that queues the item */
    struct ngd_capture_job capture; /* queued while an executable is missing */
    int capture_kind, capture_for;  /* the graph, and the ready list that waits */
    struct ngd_key capture_key;
    struct ngd_sched *sched;
    struct ngd_queue *queue;
    char *name, *description, *source;
    struct ngd_model_params params; /* borrowed pointers are cleared */
    int32_t *stop_tokens;
    struct ngd_model_graph graphs[2];
    struct ngd_kv *kv;
    uint32_t n_groups;
    uint32_t windows[NGD_KV_GROUPS_MAX]; /* keys that a row sees in the group's layers; 0: all */
    uint32_t spans[NGD_KV_GROUPS_MAX]; /* blocks that a replay's rows of one sequence and a window before them touch */
    uint32_t most_rows;                /* that a replay has of one sequence */
    bool slides;                       /* a group has a window */
    int32_t passed;                    /* what a table has for a block that a window has passed */
    uint32_t max_batch;
    bool drafts; /* a replay may have several rows of one sequence: contract.c */
    struct ngd_metric_row *blocks_used_row, *blocks_row;
    struct ngd_charge charge; /* of host memory */
    _Atomic uint32_t refs;
    _Atomic uint64_t tokens_prefill, tokens_shared, tokens_decode, batches, preemptions;

    /* Only the worker that runs the item uses these. */
    struct ngd_seq **batch;        /* max_batch */
    struct ngd_logprobs *logprobs; /* max_batch: for the rows of one sequence's step */
    struct ngd_sampler sampler;
    struct ngd_prompt prompt;
    struct ngd_pace pace;
    bool oldest_prompt_next; /* the next chunk is of the first prompt in the list, whoever pays for the turn */
    int last_kind;
    _Atomic int64_t row_time; /* device time of a prompt's row, a moving average */

    struct ngd_mutex lock; /* rank MODEL */
    struct ngd_list ready[NGD_READY_KINDS] NGD_GUARDED_BY(lock);
    struct ngd_list starved NGD_GUARDED_BY(lock); /* sequences that wait for blocks: preempt.c */
    struct ngd_list seqs NGD_GUARDED_BY(lock);    /* all sequences that are not closed, oldest first */
    uint64_t next_claim NGD_GUARDED_BY(lock);
    uint32_t n_ready[NGD_READY_KINDS] NGD_GUARDED_BY(lock);
    uint32_t n_seqs NGD_GUARDED_BY(lock);
    /* The item or its capture is queued or running. It has a reference on the model then. */
    bool scheduled NGD_GUARDED_BY(lock);
};

extern const struct ngd_sched_item_ops ngd_model_item_ops;

/* ---- context.c ---- */

/* Returns the next chunk of a sequence with position < fill. */
struct ngd_chunk ngd_seq_chunk(const struct ngd_seq *seq);
/* Returns how a replay of so many rows computes now, as 0 or 1: they differ where result bits may. */
uint32_t ngd_model_way(const struct ngd_model *model, int kind, uint32_t rows);
/* Returns how an executable computes. */
uint32_t ngd_model_way_of(const struct ngd_model *model, struct ngd_gcache_entry *entry);
/* Returns how many bytes `ways` has. */
static inline uint64_t ngd_model_ways_bytes(const struct ngd_model *model)
{
    return ((uint64_t)model->params.max_context + 7) / 8;
}
/* Sets the bits of the first `end` tokens as those that single steps compute. */
void ngd_model_step_ways(const struct ngd_model *model, uint32_t end, uint8_t *ways);
/* Sets the bits of tokens [begin, end) as those of a part that is appended to a context. */
void ngd_model_part_ways(const struct ngd_model *model, uint32_t begin, uint32_t end, uint8_t *ways);
/* Notes that the tokens [position, position + rows) are in the blocks now. */
void ngd_seq_advance(struct ngd_seq *seq, uint32_t rows, uint32_t way);
/* Returns true if the beginning of the prompt need not be computed if its blocks are there: a mean needs all rows. */
static inline bool ngd_seq_may_share(const struct ngd_seq *seq)
{
    return !seq->model->params.no_prefix_sharing && !seq->pool;
}
/* Shares computed blocks that hold the prompt's beginning. The sequence has no blocks yet. */
void ngd_seq_share_prefix_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Copies keys and values of a block that is read only into one that only the caller uses. */
ngd_status_t ngd_model_copy_block(struct ngd_model *model, int32_t from, int32_t to, struct ngd_diag *diag);
/* Bytes of a block in all states; and its contents, of which `put` gets the part of each state in their order. For
 * models on one device. */
uint64_t ngd_model_block_bytes(const struct ngd_model *model);
ngd_status_t ngd_model_read_block(struct ngd_model *model, int32_t block, ngd_seq_put_fn put, void *ctx,
                                  struct ngd_diag *diag);
ngd_status_t ngd_model_write_block(struct ngd_model *model, int32_t block, const uint8_t *data, struct ngd_diag *diag);
/* Fills blocks with ones (NaN), for the fault point kv-poison. */
void ngd_model_poison_blocks(struct ngd_model *model, const int32_t *blocks, uint32_t n);

/* ---- seq_blocks.c ---- */

/* Blocks that a context of so many tokens holds at most, in all groups. */
uint32_t ngd_model_blocks_for(const struct ngd_model *model, uint32_t tokens);
/* Blocks without which a row at `position` could not be computed begin with this one. */
uint32_t ngd_model_first_block(const struct ngd_model *model, uint32_t group, uint32_t position);
/* Returns the blocks that the sequence holds. */
uint32_t ngd_seq_held(const struct ngd_seq *seq);
/* Returns the blocks that it lacks so that it can compute its context up to `tokens`, and give back others meanwhile.
 */
uint32_t ngd_seq_lacks(const struct ngd_seq *seq, uint32_t tokens);
static inline bool ngd_seq_has_blocks(const struct ngd_seq *seq, uint32_t tokens)
{
    return ngd_seq_lacks(seq, tokens) == 0;
}
/* Allocates the blocks that it lacks. KV_EXHAUSTED allocates none. */
ngd_status_t ngd_seq_reserve_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens,
                                    struct ngd_diag *diag) NGD_REQUIRES(model->lock);
/*
 * Gives back blocks that windows have passed, but for the last `keep` of each group, which the next reservation takes
 * instead of others.
 */
void ngd_seq_slide_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t keep) NGD_REQUIRES(model->lock);
/* Frees the blocks behind those that `tokens` need. */
void ngd_seq_trim(struct ngd_seq *seq, uint32_t tokens);
/*
 * Charges the sequence's share with the blocks of `tokens`; QUOTA if the share may not have so many. uncount reduces
 * the charge to what the context needs, or to nothing if the sequence has ended.
 */
ngd_status_t ngd_seq_count_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens, struct ngd_diag *diag)
    NGD_REQUIRES(model->lock);
void ngd_seq_uncount_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Frees the sequence's blocks and keeps its tokens. */
void ngd_seq_release_blocks_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* The blocks of all groups, for ngd_kv_assume_released and ngd_kv_unassume. */
uint32_t ngd_seq_assume_released(struct ngd_seq *seq);
uint32_t ngd_seq_unassume(struct ngd_seq *seq);

/* ---- preempt.c: for models whose policy is `preempt` ---- */

/* Returns the tokens that are in its blocks when its next token is chosen. */
static inline uint32_t ngd_seq_tokens_wanted(const struct ngd_seq *seq)
{
    return seq->op == NGD_SEQ_OPEN || seq->fill == seq->model->params.max_context ? seq->fill : seq->fill + 1;
}
/* Returns true if it needs more blocks than the model has. */
bool ngd_seq_asks_too_much(const struct ngd_seq *seq);
/* Gets the blocks that a sequence needs until its next token is chosen; may preempt others. Item's worker only. */
bool ngd_seq_get_blocks_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* As ngd_seq_get_blocks_locked, but only blocks that are free: no sequence gives any up, or waits longer for them. */
bool ngd_seq_get_spare_blocks_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Allocates free blocks for `tokens`, unless a sequence waits for blocks. Any thread. */
ngd_status_t ngd_seq_take_spare_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens,
                                       struct ngd_diag *diag) NGD_REQUIRES(model->lock);
/* Lets a sequence that is in no list and got no blocks wait for them. */
void ngd_seq_starve_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Returns the one with the best claim of those that wait for blocks, or NULL. */
struct ngd_seq *ngd_model_first_starved_locked(struct ngd_model *model) NGD_REQUIRES(model->lock);
/* Returns true if it has blocks and a better claim than one that waits for blocks: its cap does not hold it then. */
bool ngd_seq_is_in_the_way_locked(struct ngd_model *model, const struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Makes sequences that wait for blocks ready, as far as there are blocks. Item's worker, between batches. */
void ngd_model_unstarve(struct ngd_model *model);

/* ---- batch_rows.c ---- */

/* Fills in one token row of a sequence: the token, its position, and the slot of its key and value. */
void ngd_rows_put(struct ngd_model_graph *mg, uint32_t row, const struct ngd_seq *seq, uint32_t position,
                  int32_t token);
/* Fills in sequence i of the launch: its rows end with last_row and see `context` tokens, themselves included. */
void ngd_rows_put_seq(struct ngd_model_graph *mg, uint32_t i, const struct ngd_seq *seq, uint32_t last_row,
                      uint32_t context);
/* Fills in the sampling parameters of a result; draws: number of the draw. */
void ngd_rows_put_sampling(struct ngd_model_graph *mg, uint32_t result, const struct ngd_seq *seq, uint64_t draws);
/* Which outputs of a replay are wanted. */
struct ngd_rows_want {
    bool token, logits, hidden;
};
/* Sets the sizes of inputs and outputs for this replay. */
void ngd_rows_size(struct ngd_model *model, struct ngd_model_graph *mg, uint32_t rows, uint32_t seqs,
                   struct ngd_rows_want want);

/* ---- sample.c ---- */

/* Checks sampling parameters and a mask (NULL: none) against the model. */
ngd_status_t ngd_model_check_sampling(const struct ngd_model *model, const struct ngd_sampling *s,
                                      const uint8_t *allowed, uint64_t allowed_bytes, struct ngd_diag *diag);
/* Copies a mask for a sequence's operation, or NULL, and charges it to the sequence's payer. */
ngd_status_t ngd_seq_copy_mask(const struct ngd_seq *seq, const uint8_t *allowed, struct ngd_seq_mask *mask_p,
                               struct ngd_diag *diag);
/* Frees the mask `to`, and puts `from` in its place, which is empty then. NULL: an empty one. */
void ngd_seq_move_mask(struct ngd_seq_mask *to, struct ngd_seq_mask *from);
/* Decides whether the worker chooses the token behind a context of n tokens (seq->samples). Returns that. */
bool ngd_seq_plan_sampling(struct ngd_seq *seq, uint32_t n);
/*
 * Returns the token behind a context of n tokens: the graph's, or if the worker chooses, that from these logits. Checks
 * it. step: the time counts as a step's.
 */
ngd_status_t ngd_seq_sample(struct ngd_seq *seq, uint32_t n, uint64_t draw, const float *logits, bool step,
                            int32_t *token_p, struct ngd_diag *diag);

/* ---- logprobs.c ---- */

void ngd_logprobs_of(const float *logits, uint32_t vocab, int32_t token, uint32_t top, struct ngd_logprobs *lp);

/* ---- hidden.c ---- */

/* Makes room for the sums of hidden states, if the model pools all rows, and charges it to the sequence. */
ngd_status_t ngd_seq_make_pool(struct ngd_seq *seq, struct ngd_diag *diag);
/* Returns true if the chunk under way must return hidden states. last: it is the prompt's last one. */
static inline bool ngd_seq_wants_hidden(const struct ngd_seq *seq, bool last)
{
    return seq->embed && (last || seq->pool);
}
/* Adds the hidden states of the rows of a chunk that has run. Its first row is row `first` of the replay. */
void ngd_seq_pool(struct ngd_seq *seq, uint32_t first);
/* Answers an open that embeds. at: the row of the prompt's hidden state if it is not pooled. */
void ngd_seq_finish_embedding(struct ngd_seq *seq, uint32_t at, struct ngd_step_result *result);

/* ---- go_on.c: of rows of contexts, before and after the replay that computes them ---- */

/* Returns true if the sequence may compute rows of its context in a replay that begins with another one's. */
static inline bool ngd_seq_may_join(const struct ngd_seq *seq, const struct ngd_seq *first)
{
    return seq != first && seq->priority <= first->priority && seq->position < seq->fill;
}
/* Adds which outputs the sequence wants of the replay that computes its next seq->rows rows. */
void ngd_seq_want(struct ngd_seq *seq, struct ngd_rows_want *want);
/*
 * Goes on behind rows that were computed; `at`: the row of results of the last one. Answers an open whose context is
 * complete, with what *result has of the replay; queue: when it began. Otherwise makes the sequence ready for its next
 * chunk, or for the step that needed the context again.
 */
void ngd_seq_go_on(struct ngd_seq *seq, const struct ngd_model_graph *mg, uint32_t at, struct ngd_step_result *result);

/* ---- decode.c, again.c, prompt.c, prompt_pack.c: by the item's worker ---- */

/* Runs one decode step of up to max ready sequences, with an executable for max rows. */
void ngd_model_decode(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry, uint32_t max);
/* Returns the rows to plan for what `first` and others like it compute again by the decode graph. chunk: its own. */
uint32_t ngd_again_rows_locked(struct ngd_model *model, const struct ngd_seq *first, const struct ngd_chunk *chunk)
    NGD_REQUIRES(model->lock);
/* Computes rows again that steps had computed, with an executable for max rows. */
void ngd_model_compute_again(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry,
                             uint32_t max);
/* Returns the rows for which to plan the replay of the first prompt's chunk and of what others have beside it. */
uint32_t ngd_prompt_rows_locked(struct ngd_model *model, const struct ngd_seq *first) NGD_REQUIRES(model->lock);
/* Returns true if the prefill graph computes the chunk, and an executable of `planned` rows does so with the bits that
 * it has alone. */
bool ngd_prompt_fits(const struct ngd_model *model, const struct ngd_chunk *chunk, uint32_t planned);
/* Takes prompts beside the first one, model->prompt.seqs[0]. Returns how many. */
uint32_t ngd_prompt_take_others(struct ngd_model *model, uint32_t planned);
/* Begins the next chunk of the first prompt and of those beside it, with an executable of `planned` rows, and runs the
 * first slice. */
void ngd_model_prefill(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry, uint32_t planned,
                       bool steps_wait);
/* Runs the next slice of the replay that is under way. */
void ngd_model_prefill_on(struct ngd_model *model, struct ngd_slot *slot, bool steps_wait);
/* Abandons the replay that is under way, if there is one: its sequences' operations fail. */
void ngd_model_prefill_abort(struct ngd_model *model, ngd_status_t status, const struct ngd_diag *diag);
void ngd_prompt_fini(struct ngd_prompt *prompt);

/* ---- batch.c ---- */

/* Takes the first ready sequence and sets it RUNNING; NULL: none. */
struct ngd_seq *ngd_model_take(struct ngd_model *model, int kind);
/* Takes the one that a turn begins with: of the share that pays for it, if there is one. */
struct ngd_seq *ngd_model_take_first(struct ngd_model *model, int kind);
/* Makes a RUNNING sequence ready again, or ends its operation if it has been cancelled or closed. */
void ngd_seq_requeue(struct ngd_seq *seq);
/* Charges the sequences of a replay, of a decode step or of prompts, for device time, ns. */
void ngd_model_charge(struct ngd_model *model, struct ngd_seq *const *seqs, uint32_t n, bool step, ngd_nsec_t time);
/* Adds to the operation's split: the wait until `began`, then `parts` (which have no queue time). */
void ngd_seq_note_split(struct ngd_seq *seq, ngd_nsec_t began, const struct ngd_split *parts);
/* Sets the next token of a RUNNING sequence; draws: number of the draw; logits it was chosen from, or NULL. */
void ngd_seq_choose(struct ngd_seq *seq, int32_t token, uint64_t draws, const float *logits);
/* Returns the rows that it has in a decode step: the appended token and its draft. */
static inline uint32_t ngd_seq_rows_wanted(const struct ngd_seq *seq)
{
    return seq->op == NGD_SEQ_STEP && seq->model->drafts ? 1 + seq->n_draft : 1;
}

void ngd_seq_ready_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Queues the model's item if something is ready and it is not queued. Call without the lock. */
void ngd_model_kick(struct ngd_model *model);

/* Makes a sequence ready and queues the model's item. Call without the lock. */
void ngd_model_enqueue(struct ngd_model *model, struct ngd_seq *seq);
void ngd_model_capture_run(struct ngd_capture_job *job);
void ngd_model_capture_abort(struct ngd_capture_job *job);

/* ---- seq_check.c ---- */

ngd_status_t ngd_seq_check_open(const struct ngd_model *model, const struct ngd_seq_params *params,
                                struct ngd_diag *diag);
ngd_status_t ngd_seq_check_fork(const struct ngd_model *model, const struct ngd_fork_params *params,
                                struct ngd_diag *diag);
ngd_status_t ngd_seq_check_step(const struct ngd_model *model, const struct ngd_step_params *p, struct ngd_diag *diag);
ngd_status_t ngd_seq_check_generate(const struct ngd_model *model, const struct ngd_generate_params *p,
                                    struct ngd_diag *diag);

/* ---- seq.c ---- */

/* Creates a sequence of n tokens, of which none is computed yet, and discards one that nobody else has. */
ngd_status_t ngd_seq_new(struct ngd_model *model, const int32_t *tokens, uint32_t n,
                         const struct ngd_sampling *sampling, struct ngd_share *share, struct ngd_usage *usage,
                         struct ngd_payer *payer, struct ngd_seq **seq_p, struct ngd_diag *diag);
void ngd_seq_discard(struct ngd_seq *seq);
/*
 * Takes the sequence for an operation, whose fields the caller sets next. A cancel meanwhile is only noted. room: most
 * tokens that it may append; sure: those that it will. NGD_SEQ_FORK: nothing changes the sequence until it is given
 * back.
 */
ngd_status_t ngd_seq_begin(struct ngd_seq *seq, ngd_seq_op_t op, uint64_t room, uint32_t sure, ngd_priority_t priority,
                           struct ngd_diag *diag);
/* Frees the sequence for its next operation. *end_p: what the answer needs. Returns true if the sequence was closed. */
bool ngd_seq_give_back(struct ngd_seq *seq, bool failed, struct ngd_seq_end *end_p);
/* Ends an operation after its last callback. */
void ngd_seq_end(struct ngd_seq *seq, const struct ngd_seq_end *end);
/* RESOURCE_EXHAUSTED: the model has as many sequences as it may have. */
ngd_status_t ngd_model_check_count_locked(const struct ngd_model *model, struct ngd_diag *diag)
    NGD_REQUIRES(model->lock);
void ngd_model_enlist_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Removes a READY sequence from its list. */
void ngd_seq_unready_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/*
 * Gets the block for one more token of a RUNNING sequence. False: its operation has failed and is answered, or it waits
 * for a block.
 */
bool ngd_seq_grow(struct ngd_seq *seq);
/* Ends and answers the operation of a sequence that is in no list, with this failure. May free the sequence. */
void ngd_seq_fail(struct ngd_seq *seq, ngd_status_t status, const struct ngd_diag *diag);
/* Ends and answers an operation that was cancelled, or whose sequence was closed. */
void ngd_seq_fail_cancelled(struct ngd_seq *seq);
/* Answers an open or a step; its token is seq->chosen. The caller has set logits, batch and times in result. */
void ngd_seq_finish_step(struct ngd_seq *seq, struct ngd_step_result *result);
/*
 * Continues a generation between replays: delivers the chosen token if it has not been delivered, then ends the
 * generation if it is complete or was cancelled. True: it wants one more step.
 */
bool ngd_seq_generate_on(struct ngd_seq *seq);

/* ---- model.c ---- */

void ngd_model_show_blocks(struct ngd_model *model);
bool ngd_model_is_stop(const struct ngd_model *model, int32_t token);

#endif
