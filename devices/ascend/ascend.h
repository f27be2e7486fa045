/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_ASCEND_H
#define NGD_DEVICES_ASCEND_ASCEND_H

/*
 * The `ascend` backend's own parts: NPUs through CANN.
 *
 * ascend.c has the tables of backend.h, device.c a device's life, memory.c and range.c its memory, stream.c a context
 * of its own for each stream, exec.c turns plans into executables and instances, replay.c captures and replays them,
 * issue.c gives operators to CANN, op_*.c build their calls (ascend_ops.def), check.c reads indices before the device
 * does, tail.c runs on the CPU what ends a graph and has no operator on the device, nz.c keeps copies of weights in
 * the matrix unit's layout.
 *
 * An instance is captured when a stream first launches it: a graph belongs to one context, and each stream has its own.
 * Captured graphs take streams of the device, of which there are few; when none is left, the graph that was not used
 * for the longest time is given up and captured again at its next launch (budget.c).
 */
#include "base/list.h"
#include "base/lock.h"
#include "base/mem.h"
#include "devices/ascend/acl.h"
#include "devices/ascend/chips.h"
#include "devices/ascend/nz.h"
#include "devices/ascend/visible.h"
#include "devices/backend.h"
#include "devices/cpu_op.h"
#include "devices/serial.h"
#include <stdatomic.h>

/* How attention over a paged cache is given to CANN (op_attention.c). */
enum ascend_way { ASCEND_WAY_ROWS, ASCEND_WAY_PREFILL, ASCEND_WAY_RAGGED, ASCEND_WAY_PARTS, ASCEND_WAY_MAX };
const char *ngd_ascend_way_name(enum ascend_way way);

/* A stream that runs nothing: a thread that uses its limits of cores makes first phases within them. */
struct ascend_limits {
    void *stream;
    uint32_t now[2];
};

/* Whether a communicator of a device is being made, and whether that waits for other daemons. */
enum ascend_joining { ASCEND_NOT_JOINING, ASCEND_JOINING_HERE, ASCEND_JOINING_SPAN };

struct ascend_facts;
#define ASCEND_CHOICES 16

struct ascend_device {
    const struct ngd_acl *acl;
    int32_t index;
    struct ngd_ascend_numbers numbers;
    char libs[512]; /* the option ascend-libs */
    char name[32];
    char arch[96];
    char description[192];
    void *context; /* for what belongs to no stream: memory, copies, first phases while planning */
    ngd_chip_t chip;
    int cann;                       /* version of CANN: 81 is 8.1 */
    struct ascend_probe_hold *hold; /* probe.h; NULL: this is no probe */
    struct ascend_facts *facts;     /* facts.h; NULL: there are none about this chip and version */
    char facts_text[400];           /* for people: which file, and whether it is about this device; "": no file */
    const char *no_decoder;         /* why the chip serves no paged decoder; "": it does */
    uint32_t kv_block;
    bool skips_slots;            /* an operator writes rows to a paged cache, and leaves out those with slot -1 */
    uint32_t cores[2];           /* cube, vector; 0: not known */
    struct ascend_limits limits; /* for planning; under capture_lock */
    void *mask;   /* causal mask that attention over a paged cache takes, 2048 x 2048 bytes; made when first needed */
    int limit_ms; /* of one replay */
    struct ngd_mutex capture_lock;                 /* one capture at a time; no replay takes it that needs no capture */
    struct ngd_mutex lock;                         /* of what follows, for a few instructions */
    struct ngd_list captured NGD_GUARDED_BY(lock); /* instances with a graph, least recently used first */
    uint32_t streams_used NGD_GUARDED_BY(lock);    /* by this process, as counted */
    uint32_t events_used NGD_GUARDED_BY(lock);
    uint32_t streams_total;                            /* what the chip has, when it cannot be asked */
    uint64_t memory_total;                             /* all of the chip's */
    uint64_t page;                                     /* of memory that is mapped; 0: there is none */
    struct ascend_shared *shared NGD_GUARDED_BY(lock); /* of communicators that are made next; NULL: a new one */
    enum ascend_joining joining;                       /* under a lock of group.c */
    struct ngd_list ranges NGD_GUARDED_BY(lock);
    struct ascend_nz_state nz;
    _Atomic uint64_t captures, given_up, replays, eager, updates;
    _Atomic uint64_t ways[ASCEND_WAY_MAX]; /* attentions of executables, by the way that they take */
    uint32_t n_choices NGD_GUARDED_BY(lock);
    char choices[ASCEND_CHOICES][320] NGD_GUARDED_BY(lock); /* kinds of attention, with the way and why it was chosen */
};

/* A context that the communicators of a device share (stream.c). */
struct ascend_shared {
    void *context;
    uint32_t refs; /* of streams; under the device's lock */
};

struct ascend_inst;
struct ascend_group;
struct ascend_rows;

struct ascend_stream {
    struct ascend_device *dev;
    char name[64];
    void *context, *stream;
    void *update;  /* stream for task updates; made with the first graph that has host parameters */
    void **events; /* external events, one for each task group of the graph that runs; shared by the stream's graphs */
    uint32_t n_events;
    void **sides; /* streams that captures fork, one for each side stream of the plan that has most */
    uint32_t n_sides;
    struct ascend_limits limits;
    bool of_group;                /* runs a group's launches: the context is shared with the device's other groups */
    struct ascend_shared *shared; /* that context, if of_group */
    bool broken;                  /* the context is spoiled and has to be made anew */
    struct ngd_list captured;     /* instances whose graph lives in this context; under dev->lock */
};

/* What is read on the host, because the device would fault on it. */
enum ascend_check_kind { ASCEND_CHECK_INDEX, ASCEND_CHECK_SLOT, ASCEND_CHECK_TABLE };
struct ascend_check {
    enum ascend_check_kind kind;
    uint32_t input;   /* ordinal of the user input that holds the values, unless they are computed */
    uint32_t operand; /* of the call */
    uint32_t tensor;  /* the operand, or what it is a copy of: a view of that input */
    uint32_t node;
    uint64_t at, bytes; /* in the staging memory: where the values' storage begins; computed ones' bytes */
    int64_t limit;      /* values are 0 .. limit-1 */
    bool from_end;      /* and -limit .. -1 */
    bool computed;      /* on the device: read after the launch */
    bool fold;          /* those below 0 are made others in the staging memory */
    bool guarded;       /* the device uses them modulo the dimension */
    bool unguarded;     /* it cannot: computed ones are refused */
    uint8_t limit_sym;  /* NGD_NO_ROW_SYM, or the limit is symbols[limit_sym] * limit_mult */
    int64_t limit_mult;
    bool repeated;                    /* an earlier one checks the same table and lengths */
    const struct ngd_plan_call *call; /* TABLE: its host parameters */
};

/* An operator of the graph's end that runs on the CPU. */
struct ascend_tail {
    const struct ngd_cpu_op *op;
    const struct ngd_plan_call *call;
    uint64_t *at; /* offsets of operands, then results, in the staging memory; UINT64_MAX = absent */
};

struct ascend_exec {
    struct ascend_device *dev;
    const struct ngd_plan *plan; /* the device's executable holds the reference */
    struct ngd_arena arena;
    uint32_t n_checks, n_tails, n_task_groups;
    struct ascend_check *checks;
    struct ascend_check **computed_of; /* per call: the indices that it takes from the device; NULL = none */
    bool *guarded;                     /* per call: ascend_check.guarded */
    struct ascend_tail *tails;
    struct ascend_tail **tail_of; /* per call; NULL = the device runs it */
    uint64_t *in_at;              /* per input: offset in the staging memory */
    uint64_t *out_at;             /* per output, as *tail->at */
    bool *out_on_host;            /* per output: a tail makes it */
    bool *is_slot;                /* per input: padding is -1 */
    uint32_t *mark_of;            /* per call: the event that others wait for, or NGD_PLAN_NONE; NULL: one stream */
    uint32_t n_marks;             /* with those of the fork and the joins */
    bool *forked;                 /* per stream of the plan: it has calls */
    uint64_t *rowmap_at;          /* per input that is_slot: ngd_ascend_map_rows; UINT64_MAX = not needed */
    uint64_t staging_bytes, scratch_bytes;
    enum ascend_way *way_of; /* per call: of attention; ASCEND_WAY_MAX: it is another operator, or empty */
    const char *note;        /* why an attention is made of other operators, or NULL */
    uint32_t n_rows;
    struct ascend_rows *rows; /* attention_rows.h */
    uint32_t n_weights;
    struct ascend_nz_weight *weights; /* that may be in NZ */
    uint32_t *weight_of;              /* per call: number of its weight, or NGD_PLAN_NONE; NULL: there are none */
    uint32_t n_comms;
    struct ascend_group *comms; /* group.h */
};

/* What a capture has made. */
struct ascend_captured {
    void *model;
    void **task_groups; /* of host parameters */
    void **marks;       /* events between the streams of the graph */
    uint32_t n_marks;
    uint32_t cost; /* streams that the graph took, as measured */
};

struct ascend_inst {
    struct ascend_exec *exec;
    char *pool;
    void **bound;
    uint32_t n_bound;
    char *staging;         /* pinned */
    char *scratch;         /* of tails */
    struct ascend_nz **nz; /* per weight: its copy, or NULL */
    uint64_t nz_epoch;     /* of the device's copies, when these were all current */
    struct ngd_list nz_writer;
    /* The captured graph, under dev->lock; nobody takes it away while `busy`. */
    struct ascend_stream *owner;
    struct ascend_captured graph;
    uint64_t stamp; /* of its communicators */
    bool busy;
    struct ngd_list lru; /* in dev->captured */
    struct ngd_list of_stream;
};

/* device.c */
ngd_status_t ngd_ascend_open(const struct ngd_device_params *params, void **dev_p, struct ngd_device_info *info_p,
                             struct ngd_diag *diag);
void ngd_ascend_close(void *dev);
void ngd_ascend_describe(void *dev, struct ngd_strbuf *sb);
ngd_status_t ngd_ascend_enter(const struct ascend_device *dev, void *context, struct ngd_diag *diag);
/* For releasing something: what is not released now never will be, so once more is tried. */
bool ngd_ascend_enter_to_release(const struct ascend_device *dev, void *context);
/* What CANN answered to a call by that name, as a status with the device's name in the diagnosis. */
ngd_status_t ngd_ascend_fail(const struct ascend_device *dev, ngd_acl_error_t code, const char *name,
                             struct ngd_diag *diag);

/* memory.c */
ngd_status_t ngd_ascend_alloc(void *dev, uint64_t bytes, void **mem_p, struct ngd_diag *diag);
void ngd_ascend_free(void *dev, void *mem, uint64_t bytes);
ngd_status_t ngd_ascend_write(void *dev, void *mem, uint64_t offset, const void *src, uint64_t n);
ngd_status_t ngd_ascend_read(void *dev, void *mem, uint64_t offset, void *dst, uint64_t n);
ngd_status_t ngd_ascend_mask(struct ascend_device *dev, struct ngd_diag *diag); /* makes it, if need be */

/* range.c: memory of pools. The granularity, 0: CANN or its driver has no such memory. */
uint64_t ngd_ascend_page(const struct ascend_device *dev);
ngd_status_t ngd_ascend_grow(void *dev, void **mem_p, uint64_t held, uint64_t bytes, struct ngd_diag *diag);
bool ngd_ascend_free_range(struct ascend_device *dev, const void *mem); /* false: it is not of a range */
void ngd_ascend_describe_ranges(struct ascend_device *dev, struct ngd_strbuf *sb);

/* nodes.c: adds to why a device does not open what is wrong with its nodes, if anything is. */
void ngd_ascend_explain_nodes(const struct ascend_device *dev, struct ngd_diag *diag);
void ngd_ascend_driver_version(char *version, size_t room); /* "unknown": it is not found */
/* As ngd_backend_lifecycle.doctor. */
void ngd_ascend_doctor(uint32_t index, bool open, struct ngd_doctor_device_report *report);

/* telemetry.c: as struct ngd_backend_telemetry. */
void ngd_ascend_telemetry_numbers(void *dev, struct ngd_telemetry *t);
void *ngd_ascend_telemetry_open(void *dev);
void ngd_ascend_telemetry_sample(void *source, struct ngd_telemetry *t);
void ngd_ascend_telemetry_close(void *source);

/* exec.c */
ngd_status_t ngd_ascend_instantiate(void *dev, const struct ngd_plan *plan, const struct ngd_backend_group *groups,
                                    uint32_t n_groups, void **exec_p, uint64_t *bytes_p, struct ngd_diag *diag);
void ngd_ascend_destroy(void *dev, void *exec);
/* The call's operator is in a task group of the captured graph. */
bool ngd_ascend_has_task_group(const struct ascend_exec *exec, uint32_t call);
const char *ngd_ascend_note(const void *exec);
ngd_status_t ngd_ascend_bind(void *dev, void *exec, void *pool_mem, void *const *bound_mem, uint32_t n, void **inst_p,
                             struct ngd_diag *diag);
void ngd_ascend_unbind(void *dev, void *inst);

/* rules.c: the call of npu.scatter_pa_kv_cache is made of other operators, by a map of its rows. */
bool ngd_ascend_scatters_by_rows(const struct ascend_device *dev, const struct ngd_plan *plan,
                                 const struct ngd_plan_call *call);

/* check.c */
/* A copy in that dtype has each number that can be an index, as it was. */
bool ngd_ascend_keeps_indices(ngd_dtype_t from, ngd_dtype_t to);
/* Mixtures of experts: no number that CANN follows may be wrong, and padding may not show (routing.c). */
bool ngd_ascend_is_chosen(const struct ngd_plan *plan, uint32_t tensor, int64_t experts);
ngd_status_t ngd_ascend_check_routing(struct ascend_exec *exec, struct ngd_diag *diag);
ngd_status_t ngd_ascend_find_checks(struct ascend_exec *exec, struct ngd_diag *diag);
ngd_status_t ngd_ascend_check_inputs(const struct ascend_inst *inst, struct ngd_launch *launch);
/* When the device has finished: INDEX_RANGE, if a computed index was out of range. */
ngd_status_t ngd_ascend_check_computed(const struct ascend_inst *inst, struct ngd_launch *launch);
/* How many rows of the tensor are the launch's; the others are padding. */
int64_t ngd_ascend_launch_rows(const struct ngd_plan_tensor *t, const struct ngd_launch *launch);
/* Element n, row-major, of the values that the check reads, whatever integer they are. */
int64_t ngd_ascend_staged_index(const struct ascend_inst *inst, const struct ascend_check *check, int64_t n);
/*
 * For versions of CANN without an operator that skips slot -1: rows that shall write nothing write what a row that is
 * valid writes, to its slot. The row map says whose keys and values each row takes; slots are changed in the staging
 * memory.
 */
ngd_status_t ngd_ascend_map_rows(const struct ascend_inst *inst, struct ngd_launch *launch);

/* tail.c */
bool ngd_ascend_is_tail(const struct ngd_plan_call *call);
ngd_status_t ngd_ascend_select_tail(const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                    struct ngd_diag *diag);
ngd_status_t ngd_ascend_find_tails(struct ascend_exec *exec, struct ngd_diag *diag);
ngd_status_t ngd_ascend_run_tails(const struct ascend_inst *inst, struct ngd_launch *launch);

/* stream.c */
/* As ngd_ascend_fail, with the stream's name too. */
ngd_status_t ngd_ascend_stream_fail(const struct ascend_stream *s, ngd_acl_error_t code, const char *name,
                                    struct ngd_diag *diag);
ngd_status_t ngd_ascend_stream_create(void *dev, const char *name, void **stream_p, struct ngd_diag *diag);
/* Makes the context anew: what ran in it is gone. A group's stream leaves its context, if it is broken, to the streams
 * that are in it, and takes one in which nothing has failed. */
ngd_status_t ngd_ascend_stream_renew(struct ascend_stream *s, struct ngd_diag *diag);
/* A stream for the launches of a group's rank, in the caller's memory. Its context comes with the first renew. */
void ngd_ascend_stream_init_in_group(struct ascend_stream *s, struct ascend_device *dev, const char *name);
void ngd_ascend_stream_close(struct ascend_stream *s);
/* The update stream and n external events. */
ngd_status_t ngd_ascend_stream_task_groups(struct ascend_stream *s, uint32_t n, struct ngd_diag *diag);
/* At least n side streams. */
ngd_status_t ngd_ascend_stream_sides(struct ascend_stream *s, uint32_t n, struct ngd_diag *diag);

/* replay.c */
ngd_status_t ngd_ascend_launch(void *stream, void *inst, struct ngd_launch *launch);
/* True if the instance has a graph on this stream, and that is of the communicators and weights' copies of now. */
bool ngd_ascend_ready(void *stream, void *inst);

/* budget.c: graphs that are captured, and the streams they take. */
uint32_t ngd_ascend_streams_free(struct ascend_device *dev);
void ngd_ascend_count_streams(struct ascend_device *dev, int n);
void ngd_ascend_count_events(struct ascend_device *dev, int n);
/* The instance has a graph on this stream: it is busy until ngd_ascend_put_graph. */
bool ngd_ascend_get_graph(struct ascend_inst *inst, const struct ascend_stream *s);
void ngd_ascend_put_graph(struct ascend_inst *inst);
/* The instance takes what the capture has made. */
void ngd_ascend_set_graph(struct ascend_inst *inst, struct ascend_stream *s, const struct ascend_captured *captured);
/* Events of a capture that came to nothing, in the current context. */
void ngd_ascend_drop_marks(struct ascend_device *dev, void **marks, uint32_t n);
/* Gives up the least recently used graph that does not run; false: there is none. The calling thread's context is
 * another one afterwards, as after the next two. */
bool ngd_ascend_give_up_one(struct ascend_device *dev);
void ngd_ascend_drop_graph(struct ascend_inst *inst);
/* All of a stream whose context goes. */
void ngd_ascend_drop_graphs(struct ascend_stream *s);

/* Of a tensor: where its storage begins, and how many bytes before it. */
struct ascend_place {
    char *base;
    uint64_t before;
};
static inline struct ascend_place ngd_ascend_place(const struct ascend_inst *inst, uint32_t tensor)
{
    const struct ngd_plan_tensor *t = &inst->exec->plan->tensors[tensor], *root = &inst->exec->plan->tensors[t->root];
    char *begin = t->space == NGD_SPACE_POOL ? inst->pool : (char *)inst->bound[t->bound];

    return (struct ascend_place){begin + root->offset, t->offset - root->offset};
}

static inline uint64_t ngd_ascend_io_bytes(const struct ngd_plan_io *io, const int64_t *symbols)
{
    return io->row_sym == NGD_NO_ROW_SYM ? io->bytes : io->row_bytes * (uint64_t)(symbols[io->row_sym] * io->row_mult);
}

static inline uint64_t ngd_ascend_align(uint64_t n)
{
    return (n + 63) & ~(uint64_t)63;
}

#endif
