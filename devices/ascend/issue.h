/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_ISSUE_H
#define NGD_DEVICES_ASCEND_ISSUE_H

/*
 * Giving a plan's calls to CANN. A builder (op_*.c) is written once and runs in three ways:
 *
 *   MEASURE  while planning: first phases only, to learn whether CANN takes the call and how much workspace it needs;
 *   ISSUE    on a stream, captured or not: both phases of every operator;
 *   UPDATE   of a captured call: only the operators inside its task group, with new host parameters.
 *
 * Every helper does nothing once status is set, so builders have no error paths of their own.
 * The workspace of a call holds the builder's temporaries from its begin, and the running operator's own at its end.
 */
#include "devices/ascend/ascend.h"

enum ascend_mode { ASCEND_MEASURE, ASCEND_ISSUE, ASCEND_UPDATE };

struct ascend_view {
    ngd_dtype_t dtype;
    uint32_t rank;
    int64_t dims[NGD_MAX_RANK], strides[NGD_MAX_RANK];
    char *base;      /* of the storage: 64-byte aligned */
    int64_t offset;  /* elements */
    int64_t storage; /* elements */
    bool int4;       /* of i32: eight int4 each, which dims, strides, offset and storage count */
    bool nz;         /* it lies there in NZ, as fractal says */
    int64_t fractal[4];
};

#define ASCEND_ROUNDS (1u << 31) /* of dtypes: the builder rounds f32, which CANN's operator does not take */
#define ASCEND_HELD   160        /* a list has 128 tensors */

struct ascend_op;

struct ascend_issue {
    enum ascend_mode mode;
    struct ascend_device *dev;
    const struct ngd_acl *acl;
    const struct ngd_plan *plan;
    const struct ngd_plan_call *call;
    const struct ascend_op *op;
    const struct ascend_inst *inst; /* NULL in MEASURE */
    struct ascend_stream *s;
    void *stream;                       /* where operators go */
    const struct ngd_host_value *hosts; /* NULL in MEASURE: the largest that the graph allows */
    bool capturing, in_task_group;
    enum ascend_way way;          /* of attention */
    bool nz;                      /* the call's weight is in NZ */
    const struct ascend_nz *copy; /* and lies there; NULL in MEASURE */
    uint32_t task_group;          /* number of the next task group */
    void **task_groups;           /* handles: written while capturing, read in UPDATE */
    void **marks;                 /* events between streams; NULL: all calls are on one */
    uint64_t temps;               /* bytes of temporaries so far */
    uint64_t largest;             /* operator's workspace */
    uint64_t ws;                  /* of the first phase that just ran */
    struct aclOpExecutor *executor;
    ngd_status_t status;
    struct ngd_diag *diag;
    uint32_t n_held;
    struct {
        void *object;
        int kind;
    } held[ASCEND_HELD];
};

struct ascend_op {
    const char *name; /* of the operator that does the work: "aclnnMatmul" */
    void (*build)(struct ascend_issue *c);
    size_t phase1, run; /* offsets in struct ngd_acl */
    uint32_t dtypes;    /* of operand 0 (or of the result, without operands): bit per ngd_dtype_t */
    bool strided;       /* operands may have any strides */
    bool collective;    /* other ranks wait for it, also without elements here */
};
const struct ascend_op *ngd_ascend_op_of(ngd_op_id_t id); /* NULL = none */

/* Runs the builder of one call. In MEASURE, *workspace_p is what it needs. */
ngd_status_t ngd_ascend_measure(struct ascend_device *dev, const struct ngd_plan *plan,
                                const struct ngd_plan_call *call, uint64_t *workspace_p, struct ngd_diag *diag);
/* The same of attention that takes this way. */
ngd_status_t ngd_ascend_measure_way(struct ascend_device *dev, const struct ngd_plan *plan,
                                    const struct ngd_plan_call *call, enum ascend_way way, uint64_t *workspace_p,
                                    struct ngd_diag *diag);
/* The same with the weight of the call in NZ (nz.h). */
ngd_status_t ngd_ascend_measure_nz(struct ascend_device *dev, const struct ngd_plan *plan,
                                   const struct ngd_plan_call *call, uint64_t *workspace_p, struct ngd_diag *diag);
uint32_t ngd_ascend_weight_operand(ngd_op_id_t id); /* 0 = none */
ngd_status_t ngd_ascend_issue_call(struct ascend_issue *c, const struct ngd_plan_call *call);

/* ---- for builders -------------------------------------------------------------------------------- */

bool ngd_ascend_has(const struct ascend_issue *c, uint32_t i); /* operand i is given */
struct ascend_view ngd_ascend_in(struct ascend_issue *c, uint32_t i);
struct ascend_view ngd_ascend_weight(struct ascend_issue *c, uint32_t i); /* operand i, in NZ or as it is */
struct ascend_view ngd_ascend_out(struct ascend_issue *c, uint32_t i);
struct ascend_view ngd_ascend_temp(struct ascend_issue *c, ngd_dtype_t dtype, uint32_t rank, const int64_t *dims);
/* The same contiguous elements in another shape. */
struct ascend_view ngd_ascend_reshape(const struct ascend_view *v, uint32_t rank, const int64_t *dims);
/* With the last two dimensions exchanged. */
struct ascend_view ngd_ascend_transpose(const struct ascend_view *v);
/* Half of the last dimension: 0 or 1. */
struct ascend_view ngd_ascend_half(const struct ascend_view *v, int which);
int64_t ngd_ascend_count(const struct ascend_view *v);

struct aclTensor *ngd_ascend_tensor(struct ascend_issue *c, const struct ascend_view *v);
struct aclScalar *ngd_ascend_scalar(struct ascend_issue *c, double value, ngd_dtype_t dtype);
/* A number of the graph beside a tensor of that dtype: an INT64 beside integers, which have all of its bits, unless it
 * is no integer. */
struct aclScalar *ngd_ascend_number(struct ascend_issue *c, struct ngd_scalar value, ngd_dtype_t dtype);
struct aclScalar *ngd_ascend_attr(struct ascend_issue *c, const char *name, ngd_dtype_t dtype);
struct aclIntArray *ngd_ascend_ints(struct ascend_issue *c, const int64_t *values, uint64_t n);
struct aclTensorList *ngd_ascend_list(struct ascend_issue *c, const struct ascend_view *views, uint32_t n);
/* The same of so many views that they have no room on a stack: view(c, of, 0), view(c, of, 1), ... */
typedef struct ascend_view ngd_ascend_view_fn(struct ascend_issue *c, const void *of, uint32_t i);
struct aclTensorList *ngd_ascend_list_by(struct ascend_issue *c, ngd_ascend_view_fn *view, const void *of, uint32_t n);
int ngd_ascend_dtype(ngd_dtype_t dtype);

/* v in that dtype: itself, or a temporary that a cast fills. */
struct ascend_view ngd_ascend_cast(struct ascend_issue *c, const struct ascend_view *v, ngd_dtype_t dtype);
/* Casts (or copies) src into dst. */
void ngd_ascend_store(struct ascend_issue *c, const struct ascend_view *src, const struct ascend_view *dst);
void ngd_ascend_refuse(struct ascend_issue *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- what CANN's operators take: operator_rules.def (rules.c) ---- */

#define ASCEND_RULE_ROOM 280

/* The operand of aclnn<function> may have the dtype. Operands are numbered as in the rules. */
bool ngd_ascend_takes(const struct ascend_issue *c, const char *function, uint32_t operand, ngd_dtype_t dtype);
/* v itself, or in a wider dtype that the function takes; refuses the call if there is none. */
struct ascend_view ngd_ascend_adapt(struct ascend_issue *c, const char *function, uint32_t operand,
                                    const struct ascend_view *v);
/* The same of the first operand of the row's own function. */
struct ascend_view ngd_ascend_adapt_self(struct ascend_issue *c, const struct ascend_view *v);
/* Refuses the call if the row's function takes its first operand neither in that dtype nor in a wider one, or if the
 * chip has not the dtype of some operand or result. */
void ngd_ascend_check_self(struct ascend_issue *c, ngd_dtype_t dtype);
/* Where a function writes whose operand was adapted: y, or a temporary if y has the operand's dtype from before. */
struct ascend_view ngd_ascend_result(struct ascend_issue *c, const struct ascend_view *y, ngd_dtype_t before,
                                     ngd_dtype_t after);
void ngd_ascend_put_result(struct ascend_issue *c, const struct ascend_view *z, const struct ascend_view *y);
/* Some rule refuses these operands, NULL being an absent one; text says which. */
bool ngd_ascend_refuses(const struct ascend_device *dev, const char *function, const struct ascend_view *const *views,
                        uint32_t n, char text[ASCEND_RULE_ROOM]);
/* The same with attributes, and with lists of tensors: lengths[i] of operand i, which is the first one; 0: it is none.
 * All tensors of a list are alike. */
struct ascend_rule_call {
    const char *function;
    const struct ascend_view *views[8];
    uint32_t lengths[8];
    int64_t attributes[5];
};
bool ngd_ascend_breaks(const struct ascend_device *dev, const struct ascend_rule_call *call,
                       char text[ASCEND_RULE_ROOM]);
void ngd_ascend_check_rules(struct ascend_issue *c, const struct ascend_rule_call *call);
/* v itself, if what lies there is contiguous, or a copy. */
struct ascend_view ngd_ascend_contiguous(struct ascend_issue *c, const struct ascend_view *v);

/* Destroys the operands so far: for builders of many operators. */
void ngd_ascend_release_operands(struct ascend_issue *c);

/* Operators between these change with the host parameters. */
void ngd_ascend_task_group_begin(struct ascend_issue *c);
void ngd_ascend_task_group_end(struct ascend_issue *c);

bool ngd_ascend_wants(struct ascend_issue *c, const char *name, bool found);
void ngd_ascend_phase2(struct ascend_issue *c, const char *name, ngd_acl_error_t code, ngd_aclnn_run_t run);

/* Both phases of an operator, or what the mode wants of them. Arguments are evaluated only when it runs. */
#define ASCEND_RUN(c, Name, ...)                                                                                    \
    do {                                                                                                            \
        if (ngd_ascend_wants((c), "aclnn" #Name, (c)->acl->aclnn##Name != NULL)) {                                  \
            ngd_acl_error_t code_ = (c)->acl->aclnn##Name##GetWorkspaceSize(__VA_ARGS__, &(c)->ws, &(c)->executor); \
            ngd_ascend_phase2((c), "aclnn" #Name, code_, (c)->acl->aclnn##Name);                                    \
        }                                                                                                           \
    } while (0)

/* For builders of many operators of one form: the row's own function. */
#define ASCEND_PHASE1(c, type) (*(type const *)(const void *)((const char *)(c)->acl + (c)->op->phase1))
#define ASCEND_RUN_OF(c)       (*(ngd_aclnn_run_t const *)(const void *)((const char *)(c)->acl + (c)->op->run))
/* As ASCEND_RUN, of that function. */
#define ASCEND_RUN_ROW(c, type, ...)                                                               \
    do {                                                                                           \
        if (ngd_ascend_wants((c), (c)->op->name, ASCEND_RUN_OF(c) != NULL)) {                      \
            ngd_acl_error_t code_ = ASCEND_PHASE1(c, type)(__VA_ARGS__, &(c)->ws, &(c)->executor); \
            ngd_ascend_phase2((c), (c)->op->name, code_, ASCEND_RUN_OF(c));                        \
        }                                                                                          \
    } while (0)

/* What a function of another library than aclnn's answered, on the stream. */
void ngd_ascend_called(struct ascend_issue *c, const char *name, ngd_acl_error_t code);

#define NGD_ASCEND_OP(id, builder, function, dtypes, strided) void ngd_ascend_build_##builder(struct ascend_issue *c);
#define NGD_ASCEND_COLLECTIVE(id, builder, function, dtypes)  void ngd_ascend_build_##builder(struct ascend_issue *c);
#include "devices/ascend/ascend_ops.def"
#undef NGD_ASCEND_OP

#endif
