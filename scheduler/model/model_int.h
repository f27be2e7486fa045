/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_MODEL_INT_H
#define NGD_SCHEDULER_MODEL_MODEL_INT_H

/*
 * What model.c, seq.c, batch.c and their neighbours share.
 *
 * A sequence's fields belong to the model's lock while it is not running. A worker that takes it into a batch sets
 * RUNNING; from then on the worker alone changes position, blocks and tokens, still under the lock because others read
 * them. What others want of a running sequence they write down (cancelled, closed), and the worker obeys after the
 * replay.
 */
#include "scheduler/model/contract.h"
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

struct ngd_seq {
    struct ngd_list link;     /* in a list of the model: ready, or starved */
    struct ngd_list all_link; /* in the model's list of all, until it is closed */
    struct ngd_list giving;   /* in a list of those that would give their blocks up: preempt.c */
    uint64_t claim;           /* when its last operation was asked for, as a number: earlier is smaller */
    int ready_kind;           /* in which of the ready lists */
    struct ngd_model *model;
    _Atomic uint32_t refs; /* the caller's, and one for the operation under way */
    struct ngd_sampling sampling;
    struct ngd_share *share; /* a reference */
    struct ngd_usage *usage; /* a reference, or NULL */
    uint32_t n_prompt;
    struct ngd_charge charge;
    int32_t *tokens; /* room for a whole context; [0, fill) are known */

    ngd_seq_state_t state;
    ngd_seq_op_t op;
    bool cancelled;                /* the operation under way shall end after its replay */
    struct ngd_seq_waiter *waiter; /* for that end; or NULL */
    bool closed;
    bool broken;       /* its prompt was not processed to the end: only close is left; it has no blocks */
    uint32_t position; /* tokens whose keys and values are in the blocks */
    uint32_t fill;     /* tokens that must be there before the next one is chosen */
    uint32_t shared;   /* of the prompt's, found in blocks that others computed */
    uint32_t n_blocks;
    uint32_t n_counted;                    /* for its share: those of its context, whether it has them or not */
    int32_t *blocks;                       /* room for a whole context */
    uint32_t n_named;                      /* of the blocks, from the first on */
    uint32_t tail_way;                     /* how the tokens behind the named blocks were computed: context.c */
    struct ngd_digest root;                /* before the first block: of its owner, so that owners share no names */
    struct ngd_digest name;                /* of the last named one */
    int32_t chosen;                        /* by the last step; not in the context */
    bool delivered;                        /* a generation has delivered `chosen` */
    uint64_t draws;                        /* tokens chosen so far: the offset of the next draw */
    ngd_nsec_t asked;                      /* when the operation began */
    ngd_nsec_t ready;                      /* when it became ready for its next replay */
    ngd_nsec_t turn;                       /* its place in the ready list: batch.c */
    ngd_nsec_t waits_since;                /* the operation began, or its last replay or slice ended */
    struct ngd_split split;                /* where the operation's time went so far */
    ngd_priority_t priority, own_priority; /* of the operation under way; of those that do not say */

    /* The operation under way. */
    int32_t forced;   /* -1: append `chosen` */
    uint32_t n_draft; /* their tokens are in `tokens`, behind the place of the one that is appended */
    uint32_t rows;    /* of the batch that it is in: the appended token's and some of the draft's */
    bool want_logits, want_logprobs, want_split;
    uint32_t top;
    struct ngd_logprobs logprobs; /* of `chosen`, when has_logprobs */
    bool has_logprobs;
    int32_t stop_tokens[NGD_STOP_TOKENS_MAX]; /* of a generation */
    uint32_t n_stop_tokens;
    bool ignore_stop;
    uint32_t remaining;        /* tokens to deliver */
    struct ngd_split *split_p; /* of a generation: for its caller; or NULL */
    ngd_step_fn done;
    ngd_token_fn on_token;
    ngd_generate_done_fn generate_done;
    void *user;
};

/* What an operation's end needs after the sequence has been given back. */
struct ngd_seq_end {
    ngd_seq_op_t op;
    ngd_step_fn done;
    ngd_generate_done_fn generate_done;
    void *user;
    struct ngd_seq_waiter *waiter;
    int32_t token;
    uint32_t position;
};

/* Ready lists: for the two graphs; and sequences whose share has had its part of the device's time (cap.h). */
enum { NGD_PREFILL, NGD_DECODE, NGD_HELD, NGD_READY_KINDS };

/* Host memory that a replay reads and writes, made once: one array for each role. */
struct ngd_staging {
    void *data[NGD_ROLE_MAX];
    uint32_t rows, seqs, results; /* room */
};
#define NGD_STAGED(mg, role, type) ((type *)(mg)->staging.data[NGD_ROLE_##role])

struct ngd_chunk {
    uint32_t rows;    /* to compute next */
    uint32_t planned; /* rows of the executable that computes them */
};

/* One of the two graphs, and its launch: a prompt's may be paused while steps are made. */
struct ngd_model_graph {
    struct ngd_binding *binding;
    struct ngd_roles roles;
    struct ngd_staging staging;
    struct ngd_span *inputs;
    struct ngd_host_value *hosts;
    struct ngd_out *outputs;
    int64_t symbol;
    struct ngd_launch launch;
};

/* A chunk of a prompt under way, which goes on slice by slice: prompt.c. */
struct ngd_prompt {
    struct ngd_seq *seq;            /* RUNNING; NULL: none is under way. Written under the model's lock */
    struct ngd_gcache_entry *entry; /* pinned until it is over */
    struct ngd_chunk chunk;
    bool last;                       /* of its prompt */
    ngd_nsec_t begin, time, longest; /* when, device time so far, and the longest stretch without a place to stop */
    /* Kept from chunk to chunk: an instance apart from the slots' pools, which others use between slices. */
    struct ngd_pool *pool;
    struct ngd_instance *inst;
    bool no_room; /* for the pool: chunks run in one piece, in the slot's */
};

struct ngd_model {
    struct ngd_sched_item item;
    struct ngd_share *item_share;   /* in whose name the item is queued; of who pushes it */
    struct ngd_capture_job capture; /* while an executable is missing */
    int capture_kind;
    struct ngd_key capture_key;
    struct ngd_sched *sched;
    struct ngd_queue *queue;
    char *name, *description;
    struct ngd_model_params params; /* without what it only borrowed */
    int32_t *stop_tokens;
    struct ngd_model_graph graphs[2];
    struct ngd_kv *kv;
    uint32_t max_batch;
    bool drafts; /* one replay can take several rows of one sequence: contract.c */
    struct ngd_metric_row *blocks_used_row, *blocks_row;
    struct ngd_charge charge; /* of host memory */
    _Atomic uint32_t refs;
    _Atomic uint64_t tokens_prefill, tokens_shared, tokens_decode, batches, preemptions;

    /* Of the worker that runs the item. */
    struct ngd_seq **batch;        /* max_batch */
    struct ngd_logprobs *logprobs; /* max_batch: of the rows of one sequence's step */
    struct ngd_prompt prompt;
    struct ngd_pace pace;
    int last_kind;
    _Atomic int64_t row_time; /* device time of a prompt's row, a moving average */

    struct ngd_mutex lock; /* rank MODEL */
    struct ngd_list ready[NGD_READY_KINDS] NGD_GUARDED_BY(lock);
    struct ngd_list starved NGD_GUARDED_BY(lock); /* sequences that wait for blocks: preempt.c */
    struct ngd_list seqs NGD_GUARDED_BY(lock);    /* all that are not closed, the oldest first */
    uint64_t next_claim NGD_GUARDED_BY(lock);
    uint32_t n_ready[NGD_READY_KINDS] NGD_GUARDED_BY(lock);
    uint32_t n_seqs NGD_GUARDED_BY(lock);
    /* The item is queued or running, or its capture is; then it holds a reference. */
    bool scheduled NGD_GUARDED_BY(lock);
};

extern const struct ngd_sched_item_ops ngd_model_item_ops;

/* ---- context.c ---- */

#define NGD_WAY_MIXED UINT32_MAX /* a block that was computed in more than one way gets no name */

/* Of a sequence with position < fill. */
struct ngd_chunk ngd_seq_chunk(const struct ngd_seq *seq);
/* How so many rows of a graph are computed: numbers that differ where bits may. */
uint32_t ngd_model_way(const struct ngd_model *model, int kind, uint32_t rows);
/* The tokens [position, position + rows) are in the blocks now. */
void ngd_seq_advance(struct ngd_seq *seq, uint32_t rows, uint32_t way);
/* Takes the blocks of the prompt's beginning that somebody has computed; the sequence has none yet. */
void ngd_seq_share_prefix_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Blocks for so many tokens: KV_EXHAUSTED takes none. */
ngd_status_t ngd_seq_reserve_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens,
                                    struct ngd_diag *diag) NGD_REQUIRES(model->lock);
static inline bool ngd_seq_has_blocks(const struct ngd_seq *seq, uint32_t tokens)
{
    return tokens <= (uint64_t)seq->n_blocks * seq->model->params.block_size;
}
/* Gives back the blocks behind those that so many tokens need. */
void ngd_seq_trim(struct ngd_seq *seq, uint32_t tokens);
/*
 * So many tokens count for its share: QUOTA, when that may not have so many blocks. uncount leaves those that the
 * context needs, or none of a sequence that is over.
 */
ngd_status_t ngd_seq_count_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens, struct ngd_diag *diag)
    NGD_REQUIRES(model->lock);
void ngd_seq_uncount_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* The context is forgotten, its tokens are not. */
void ngd_seq_release_blocks_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
uint32_t ngd_model_blocks_for(const struct ngd_model *model, uint32_t tokens);
/* Keys and values of a block that nobody writes to, into one that only the caller knows. */
ngd_status_t ngd_model_copy_block(struct ngd_model *model, int32_t from, int32_t to, struct ngd_diag *diag);
/* For the fault point kv-poison: what they hold is all ones. */
void ngd_model_poison_blocks(struct ngd_model *model, const int32_t *blocks, uint32_t n);

/* ---- preempt.c: of models whose policy is `preempt` ---- */

/* So many tokens are in its blocks when its next one is chosen. */
static inline uint32_t ngd_seq_tokens_wanted(const struct ngd_seq *seq)
{
    return seq->op == NGD_SEQ_OPEN || seq->fill == seq->model->params.max_context ? seq->fill : seq->fill + 1;
}
/* It needs more blocks than the model has. */
bool ngd_seq_asks_too_much(const struct ngd_seq *seq);
/* By the item's worker: the blocks that a sequence needs until its next token is chosen; others may give up theirs. */
bool ngd_seq_get_blocks_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* By anyone: blocks for so many tokens that are free, and that nobody waits for. */
ngd_status_t ngd_seq_take_spare_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t tokens,
                                       struct ngd_diag *diag) NGD_REQUIRES(model->lock);
/* A sequence of no list, which got no blocks, waits aside for them. */
void ngd_seq_starve_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* The best claim of those; NULL: there is none. */
struct ngd_seq *ngd_model_first_starved_locked(struct ngd_model *model) NGD_REQUIRES(model->lock);
/* True if the sequence has blocks and a better claim than one that waits for blocks: its cap does not hold it. */
bool ngd_seq_is_in_the_way_locked(struct ngd_model *model, const struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Between batches, by the item's worker: those that wait for blocks become ready as far as there are any now. */
void ngd_model_unstarve(struct ngd_model *model);

/* ---- batch_rows.c ---- */

/* One token row of a sequence: where it stands, and where its key and value go. */
void ngd_rows_put(struct ngd_model_graph *mg, uint32_t row, const struct ngd_seq *seq, uint32_t position,
                  int32_t token);
/* Sequence i of the launch, whose rows end with last_row and see so much context with them. */
void ngd_rows_put_seq(struct ngd_model_graph *mg, uint32_t i, const struct ngd_seq *seq, uint32_t last_row,
                      uint32_t context);
/* The token of this result is the sequence's draw number `draws`. */
void ngd_rows_put_sampling(struct ngd_model_graph *mg, uint32_t result, const struct ngd_seq *seq, uint64_t draws);
/* How long the inputs and outputs are this time, and which outputs are wanted. */
void ngd_rows_size(struct ngd_model *model, struct ngd_model_graph *mg, uint32_t rows, uint32_t seqs, bool token,
                   bool logits);

/* ---- logprobs.c ---- */

void ngd_logprobs_of(const float *logits, uint32_t vocab, int32_t token, uint32_t top, struct ngd_logprobs *lp);

/* ---- decode.c, prompt.c: by the item's worker ---- */

/* One decode step of up to max ready sequences, with an executable for so many. */
void ngd_model_decode(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry, uint32_t max);
/* Begins the next chunk of the first prompt, with an executable of so many rows, and runs its first slice. */
void ngd_model_prefill(struct ngd_model *model, struct ngd_slot *slot, struct ngd_gcache_entry *entry, uint32_t planned,
                       bool steps_wait);
/* The next slice of the chunk that is under way. */
void ngd_model_prefill_on(struct ngd_model *model, struct ngd_slot *slot, bool steps_wait);
/* Gives the chunk that is under way up, and its sequence to the caller, who answers it. NULL: there was none. */
struct ngd_seq *ngd_model_prefill_abort(struct ngd_model *model);
void ngd_prompt_fini(struct ngd_prompt *prompt);

/* ---- batch.c ---- */

/* The first that is ready, RUNNING now; NULL: none. */
struct ngd_seq *ngd_model_take(struct ngd_model *model, int kind);
/* A RUNNING sequence waits again, if nobody has stopped it meanwhile. */
void ngd_seq_requeue(struct ngd_seq *seq);
/* It has had so much of the device: its own replay, or its part of one. */
void ngd_seq_charge(struct ngd_seq *seq, ngd_nsec_t time);
/* It has waited until began, and had a part in what took `parts` (without a queue) since then. */
void ngd_seq_note_split(struct ngd_seq *seq, ngd_nsec_t began, const struct ngd_split *parts);
/* The token is in the graph's hands, and one outside the vocabulary would fail the next batch for all. */
ngd_status_t ngd_model_check_chosen(const struct ngd_model *model, int32_t token, struct ngd_diag *diag);
/* The next token of a RUNNING sequence, draw number draws, from these logits (NULL: not known). */
void ngd_seq_choose(struct ngd_seq *seq, int32_t token, uint64_t draws, const float *logits);
/* Rows that it has for a decode step. */
static inline uint32_t ngd_seq_rows_wanted(const struct ngd_seq *seq)
{
    return seq->op == NGD_SEQ_STEP && seq->model->drafts ? 1 + seq->n_draft : 1;
}

void ngd_seq_ready_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Sees to it that a worker comes, if something is ready. Call without the lock. */
void ngd_model_kick(struct ngd_model *model);

/* Makes a sequence ready and sees to it that a worker will come. Call without the lock. */
void ngd_model_enqueue(struct ngd_model *model, struct ngd_seq *seq);
void ngd_model_capture_run(struct ngd_capture_job *job);
void ngd_model_capture_abort(struct ngd_capture_job *job);

/* ---- seq.c ---- */

/* Takes a READY sequence out of its list. */
void ngd_seq_unready_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/*
 * The block for one token more of a RUNNING sequence, or its operation has failed (answered), or it waits aside for
 * one: false then.
 */
bool ngd_seq_grow(struct ngd_seq *seq);
/* Ends the operation of a sequence that no list has, and answers it; diag is for a failure. May free the sequence. */
void ngd_seq_fail(struct ngd_seq *seq, ngd_status_t status, const struct ngd_diag *diag);
/* The same, of one that somebody has stopped. */
void ngd_seq_fail_cancelled(struct ngd_seq *seq);
/* The prompt's last chunk or a step is over, its token is seq->chosen. result has logits, batch and times. */
void ngd_seq_finish_step(struct ngd_seq *seq, struct ngd_step_result *result);
/*
 * A generation's next move, between replays: delivers the chosen token if nobody has had it, and ends the generation
 * when it is over. True: it wants one more step.
 */
bool ngd_seq_generate_on(struct ngd_seq *seq);

/* ---- model.c ---- */

void ngd_model_show_blocks(struct ngd_model *model);
bool ngd_model_is_stop(const struct ngd_model *model, int32_t token);

#endif
