/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_INT_H
#define NGD_SCHEDULER_MODEL_INT_H

/*
 * What model.c, seq.c and batch.c share.
 *
 * A sequence's fields belong to the model's lock while it is not running. A worker that takes it into a batch sets
 * RUNNING; from then on the worker alone changes position, blocks and tokens, still under the lock because others read
 * them. What others want of a running sequence they write down (cancelled, closed), and the worker obeys after the
 * replay.
 */
#include "scheduler/contract.h"
#include "scheduler/program_int.h"

typedef enum ngd_seq_op { NGD_SEQ_NONE, NGD_SEQ_OPEN, NGD_SEQ_STEP, NGD_SEQ_GENERATE } ngd_seq_op_t;

/*
 *   IDLE --step, generate--> READY --batch--> RUNNING --done--> IDLE
 *   (open starts in READY)     ^                 |
 *                              +-- next token, --+
 *                                  next chunk
 */
typedef enum ngd_seq_state { NGD_SEQ_IDLE, NGD_SEQ_READY, NGD_SEQ_RUNNING } ngd_seq_state_t;

struct ngd_seq {
    struct ngd_list link; /* in a ready list of the model */
    struct ngd_model *model;
    _Atomic uint32_t refs; /* the caller's, and one for the operation under way */
    struct ngd_sampling sampling;
    struct ngd_share *share; /* a reference */
    uint32_t n_prompt;
    int32_t *prompt;

    ngd_seq_state_t state;
    ngd_seq_op_t op;
    bool cancelled; /* the operation under way shall end after its replay */
    bool closed;
    bool broken;       /* its prompt was not processed to the end: only close is left */
    uint32_t position; /* tokens in the context */
    uint32_t n_blocks;
    int32_t *blocks;  /* room for a whole context */
    int32_t chosen;   /* by the last step; not in the context */
    bool delivered;   /* a generation has delivered `chosen` */
    uint64_t draws;   /* tokens chosen so far: the offset of the next draw */
    ngd_nsec_t asked; /* when the operation began */
    ngd_nsec_t ready; /* when it became ready for its next replay */

    /* The operation under way. */
    int32_t forced; /* -1: append `chosen` */
    bool want_logits;
    bool ignore_stop;
    uint32_t remaining; /* tokens to deliver */
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
    int32_t token;
    uint32_t position;
};

enum { NGD_PREFILL, NGD_DECODE };

struct ngd_model_graph {
    struct ngd_binding *binding;
    struct ngd_roles roles;
    struct ngd_span *inputs;
    struct ngd_host_value *hosts;
    struct ngd_out *outputs;
};

/* Host memory that a replay reads and writes, made once: one array for each role. */
struct ngd_staging {
    void *data[NGD_ROLE_MAX];
    uint32_t rows, seqs, results, table_width; /* room */
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
    struct ngd_metric_row *blocks_used_row, *blocks_row;
    _Atomic uint32_t refs;
    _Atomic uint64_t tokens_prefill, tokens_decode, batches;

    /* Of the worker that runs the item. */
    struct ngd_staging staging;
    struct ngd_launch launch;
    struct ngd_seq **batch; /* max_batch */
    int last_kind;

    struct ngd_mutex lock; /* rank MODEL */
    struct ngd_list ready[2] NGD_GUARDED_BY(lock);
    uint32_t n_ready[2] NGD_GUARDED_BY(lock);
    uint32_t n_seqs NGD_GUARDED_BY(lock);
    /* The item is queued or running, or its capture is; then it holds a reference. */
    bool scheduled NGD_GUARDED_BY(lock);
};

extern const struct ngd_sched_item_ops ngd_model_item_ops;

/* ---- batch.c ---- */

/* Makes a sequence ready and sees to it that a worker will come. Call without the lock. */
void ngd_model_enqueue(struct ngd_model *model, struct ngd_seq *seq);
void ngd_model_capture_run(struct ngd_capture_job *job);
void ngd_model_capture_abort(struct ngd_capture_job *job);

/* ---- seq.c ---- */

/* Takes a READY sequence out of its list. */
void ngd_seq_unready_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock);
/* Makes sure that there is a block for the next token. */
ngd_status_t ngd_seq_grow(struct ngd_seq *seq, struct ngd_diag *diag);
/* Ends the operation of a sequence that no list has, and answers it; diag is for a failure. May free the sequence. */
void ngd_seq_fail(struct ngd_seq *seq, ngd_status_t status, const struct ngd_diag *diag);
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
