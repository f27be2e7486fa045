/* SPDX-License-Identifier: Apache-2.0 */
/* Operands, phases, workspaces and task groups of one call. See issue.h. */
#include "devices/ascend/attention_rows.h"
#include "devices/ascend/issue.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum held_kind { HELD_TENSOR, HELD_SCALAR, HELD_INTS, HELD_LIST };

#define PAD 32 /* operators may read that far behind an operand */

static const struct ascend_op ops[NGD_OP_MAX] = {
#define FLOATS  (1u << NGD_F32 | 1u << NGD_F16 | 1u << NGD_BF16)
#define HALVES  (1u << NGD_F16 | 1u << NGD_BF16)
#define NUMBERS (FLOATS | 1u << NGD_I32 | 1u << NGD_I64)
#define BOOLS   (1u << NGD_BOOL)
#define BYTES   (1u << NGD_I8)
#define BITS    (BOOLS | 1u << NGD_I8 | 1u << NGD_U8 | 1u << NGD_I32 | 1u << NGD_I64)
#define ROUNDED (FLOATS | ASCEND_ROUNDS)
#define ALL     (NUMBERS | BOOLS | 1u << NGD_I8 | 1u << NGD_U8)
#define NGD_ASCEND_OP(id, builder, function, dtypes, strided)                     \
    [NGD_OP_##id] = {"aclnn" #function,                                           \
                     ngd_ascend_build_##builder,                                  \
                     offsetof(struct ngd_acl, aclnn##function##GetWorkspaceSize), \
                     offsetof(struct ngd_acl, aclnn##function),                   \
                     dtypes,                                                      \
                     strided,                                                     \
                     false},
#define NGD_ASCEND_COLLECTIVE(id, builder, function, dtypes) \
    [NGD_OP_##id] = {#function, ngd_ascend_build_##builder, 0, 0, dtypes, false, true},
#include "devices/ascend/ascend_ops.def"
#undef NGD_ASCEND_OP
};

const struct ascend_op *ngd_ascend_op_of(ngd_op_id_t id)
{
    return id < NGD_OP_MAX && ops[id].build ? &ops[id] : NULL;
}

uint32_t ngd_ascend_weight_operand(ngd_op_id_t id)
{
    static const uint8_t operands[NGD_OP_MAX] = {
#define NGD_ASCEND_WEIGHT(id, operand) [NGD_OP_##id] = operand,
#include "devices/ascend/ascend_weights.def"
#undef NGD_ASCEND_WEIGHT
    };

    return id < NGD_OP_MAX ? operands[id] : 0;
}

int ngd_ascend_dtype(ngd_dtype_t dtype)
{
    switch (dtype) {
    case NGD_F32:
        return NGD_ACL_FLOAT;
    case NGD_F16:
        return NGD_ACL_FLOAT16;
    case NGD_BF16:
        return NGD_ACL_BF16;
    case NGD_I8:
        return NGD_ACL_INT8;
    case NGD_U8:
        return NGD_ACL_UINT8;
    case NGD_I32:
        return NGD_ACL_INT32;
    case NGD_I64:
        return NGD_ACL_INT64;
    default:
        return NGD_ACL_BOOL;
    }
}

void ngd_ascend_refuse(struct ascend_issue *c, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    if (c->status)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    c->status =
        ngd_diag_set(c->diag, NGD_ERR_OP_UNSUPPORTED, "device %s: %s: %s", c->dev->name, c->call->op->name, text);
}

static void no_operand_memory(struct ascend_issue *c)
{
    if (!c->status)
        c->status = ngd_diag_set(c->diag, NGD_ERR_NO_MEMORY, "device %s: no host memory for the operands of %s",
                                 c->dev->name, c->call->op->name);
}

static void call_failed(struct ascend_issue *c, ngd_acl_error_t code, const char *name)
{
    char what[160];

    if (c->status)
        return;
    snprintf(what, sizeof(what), "device %s: node %u (%s): %s", c->dev->name, c->call->node, c->call->op->name, name);
    c->status = ngd_acl_fail(c->acl, code, what, c->diag);
}

/* ---- views --------------------------------------------------------------------------------------- */

int64_t ngd_ascend_count(const struct ascend_view *v)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

static void make_contiguous(struct ascend_view *v)
{
    int64_t step = 1;

    for (uint32_t i = v->rank; i-- > 0;) {
        v->strides[i] = step;
        step *= v->dims[i];
    }
}

/* Elements from the first one on that a view touches. */
static int64_t view_extent(const struct ascend_view *v)
{
    int64_t last = 0;

    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->dims[i] == 0)
            return 0;
        last += (v->dims[i] - 1) * v->strides[i];
    }
    return last + 1;
}

static struct ascend_view view_of_tensor(struct ascend_issue *c, uint32_t tensor)
{
    const struct ngd_plan_tensor *t = &c->plan->tensors[tensor], *root = &c->plan->tensors[t->root];
    struct ascend_view v = {.dtype = t->dtype, .rank = t->rank};
    int64_t size = (int64_t)ngd_dtype_bytes(t->dtype);

    memcpy(v.dims, t->dims, sizeof(v.dims));
    memcpy(v.strides, t->strides, sizeof(v.strides));
    if (c->mode == ASCEND_MEASURE) {
        /* Memory is not placed yet; strides that the operator does not take are removed by a copy. */
        if (!c->op->strided)
            make_contiguous(&v);
        v.storage = view_extent(&v);
        v.base = NULL;
        return v;
    }
    v.base = (t->space == NGD_SPACE_POOL ? c->inst->pool : (char *)c->inst->bound[t->bound]) + root->offset;
    v.offset = (int64_t)(t->offset - root->offset) / size;
    v.storage = (int64_t)root->bytes / size;
    if (v.storage < v.offset + view_extent(&v))
        v.storage = v.offset + view_extent(&v);
    return v;
}

bool ngd_ascend_has(const struct ascend_issue *c, uint32_t i)
{
    return i < c->call->n_in && c->call->in[i] != NGD_PLAN_NONE;
}

struct ascend_view ngd_ascend_in(struct ascend_issue *c, uint32_t i)
{
    if (!ngd_ascend_has(c, i)) {
        ngd_ascend_refuse(c, "operand %u is missing", i);
        return (struct ascend_view){0};
    }
    return view_of_tensor(c, c->call->in[i]);
}

struct ascend_view ngd_ascend_weight(struct ascend_issue *c, uint32_t i)
{
    struct ascend_view v = ngd_ascend_in(c, i);
    int64_t rows, columns;

    if (c->status || !c->nz || !ngd_ascend_nz_matrix(v.dtype, v.rank, v.dims, v.strides, &rows, &columns))
        return v;
    ngd_acl_fractal(rows, columns, (int64_t)ngd_dtype_bytes(v.dtype), v.fractal);
    v.nz = true;
    v.base = c->copy ? c->copy->mem : NULL;
    v.offset = 0;
    v.storage = v.fractal[0] * v.fractal[1] * v.fractal[2] * v.fractal[3];
    return v;
}

struct ascend_view ngd_ascend_out(struct ascend_issue *c, uint32_t i)
{
    return view_of_tensor(c, c->call->out[i]);
}

struct ascend_view ngd_ascend_temp(struct ascend_issue *c, ngd_dtype_t dtype, uint32_t rank, const int64_t *dims)
{
    struct ascend_view v = {.dtype = dtype, .rank = rank};

    memcpy(v.dims, dims, rank * sizeof(dims[0]));
    make_contiguous(&v);
    v.storage = ngd_ascend_count(&v);
    if (c->mode != ASCEND_MEASURE)
        v.base = c->inst->pool + c->call->workspace_offset + c->temps;
    c->temps += ngd_ascend_align((uint64_t)v.storage * ngd_dtype_bytes(dtype) + PAD);
    return v;
}

struct ascend_view ngd_ascend_reshape(const struct ascend_view *v, uint32_t rank, const int64_t *dims)
{
    struct ascend_view r = *v;

    r.rank = rank;
    memcpy(r.dims, dims, rank * sizeof(dims[0]));
    make_contiguous(&r);
    return r;
}

struct ascend_view ngd_ascend_transpose(const struct ascend_view *v)
{
    const uint32_t a = v->rank - 2, b = v->rank - 1;
    struct ascend_view t = *v;

    t.dims[a] = v->dims[b];
    t.dims[b] = v->dims[a];
    t.strides[a] = v->strides[b];
    t.strides[b] = v->strides[a];
    return t;
}

struct ascend_view ngd_ascend_half(const struct ascend_view *v, int which)
{
    struct ascend_view h = *v;

    h.dims[v->rank - 1] /= 2;
    if (which)
        h.offset += h.dims[v->rank - 1] * v->strides[v->rank - 1];
    return h;
}

/* ---- operands ------------------------------------------------------------------------------------ */

static void *hold_operand(struct ascend_issue *c, void *object, enum held_kind kind)
{
    if (!object) {
        no_operand_memory(c);
        return NULL;
    }
    if (c->n_held == ASCEND_HELD) {
        ngd_ascend_refuse(c, "more than %d operands", ASCEND_HELD);
        return NULL;
    }
    c->held[c->n_held].object = object;
    c->held[c->n_held++].kind = kind;
    return object;
}

struct aclTensor *ngd_ascend_tensor(struct ascend_issue *c, const struct ascend_view *v)
{
    if (c->status || c->n_held == ASCEND_HELD)
        return NULL;
    return hold_operand(c,
                        c->acl->aclCreateTensor(v->dims, v->rank, v->int4 ? NGD_ACL_INT4 : ngd_ascend_dtype(v->dtype),
                                                v->strides, v->offset, v->nz ? NGD_ACL_FORMAT_NZ : NGD_ACL_FORMAT_ND,
                                                v->nz ? v->fractal : &v->storage, v->nz ? 4 : 1, v->base),
                        HELD_TENSOR);
}

struct aclScalar *ngd_ascend_scalar(struct ascend_issue *c, double value, ngd_dtype_t dtype)
{
    float f = (float)value;
    int64_t i = (int64_t)value;

    if (c->status)
        return NULL;
    if (ngd_dtype_is_float(dtype))
        return hold_operand(c, c->acl->aclCreateScalar(&f, NGD_ACL_FLOAT), HELD_SCALAR);
    return hold_operand(c, c->acl->aclCreateScalar(&i, NGD_ACL_INT64), HELD_SCALAR);
}

struct aclScalar *ngd_ascend_number(struct ascend_issue *c, struct ngd_scalar value, ngd_dtype_t dtype)
{
    int64_t i = ngd_scalar_i64(value);
    float f = ngd_scalar_f32(value);

    if (c->status)
        return NULL;
    if (ngd_dtype_is_float(dtype) || (!value.i && value.f != (double)i))
        return hold_operand(c, c->acl->aclCreateScalar(&f, NGD_ACL_FLOAT), HELD_SCALAR);
    return hold_operand(c, c->acl->aclCreateScalar(&i, NGD_ACL_INT64), HELD_SCALAR);
}

struct aclScalar *ngd_ascend_attr(struct ascend_issue *c, const char *name, ngd_dtype_t dtype)
{
    return ngd_ascend_number(c, ngd_call_scalar(c->call, name), dtype);
}

struct aclIntArray *ngd_ascend_ints(struct ascend_issue *c, const int64_t *values, uint64_t n)
{
    return c->status ? NULL : hold_operand(c, c->acl->aclCreateIntArray(values, n), HELD_INTS);
}

/* A list of the tensors that were held since `before`. It owns them: it is held in their place. */
static struct aclTensorList *list_of_held(struct ascend_issue *c, uint32_t before)
{
    const struct aclTensor *tensors[ASCEND_HELD];
    const uint32_t n = c->n_held - before;
    struct aclTensorList *list;

    if (c->status)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        tensors[i] = c->held[before + i].object;
    list = c->acl->aclCreateTensorList(tensors, n);
    if (list)
        c->n_held = before;
    return hold_operand(c, list, HELD_LIST);
}

static bool is_room_for(struct ascend_issue *c, uint32_t n)
{
    if (n >= ASCEND_HELD - c->n_held)
        ngd_ascend_refuse(c, "a list of %u tensors", n);
    return !c->status;
}

struct aclTensorList *ngd_ascend_list(struct ascend_issue *c, const struct ascend_view *views, uint32_t n)
{
    const uint32_t before = c->n_held;

    for (uint32_t i = 0; is_room_for(c, n - i) && i < n; i++)
        ngd_ascend_tensor(c, &views[i]);
    return list_of_held(c, before);
}

struct aclTensorList *ngd_ascend_list_by(struct ascend_issue *c, ngd_ascend_view_fn *view, const void *of, uint32_t n)
{
    const uint32_t before = c->n_held;

    for (uint32_t i = 0; is_room_for(c, n - i) && i < n; i++) {
        const struct ascend_view v = view(c, of, i);

        ngd_ascend_tensor(c, &v);
    }
    return list_of_held(c, before);
}

/* What fails to be destroyed is CANN's to know about; nothing can be done with it. */
void ngd_ascend_release_operands(struct ascend_issue *c)
{
    while (c->n_held > 0) {
        void *object = c->held[--c->n_held].object;

        switch ((enum held_kind)c->held[c->n_held].kind) {
        case HELD_TENSOR:
            c->acl->aclDestroyTensor(object);
            break;
        case HELD_SCALAR:
            c->acl->aclDestroyScalar(object);
            break;
        case HELD_INTS:
            c->acl->aclDestroyIntArray(object);
            break;
        case HELD_LIST:
            c->acl->aclDestroyTensorList(object);
            break;
        }
    }
}

/* ---- phases -------------------------------------------------------------------------------------- */

bool ngd_ascend_wants(struct ascend_issue *c, const char *name, bool found)
{
    if (c->status || (c->mode == ASCEND_UPDATE && !c->in_task_group))
        return false;
    if (!found) {
        ngd_ascend_refuse(c, "this version of CANN (%d.%d.%d) has no %s", (int)c->acl->version[0],
                          (int)c->acl->version[1], (int)c->acl->version[2], name);
        return false;
    }
    c->ws = 0;
    c->executor = NULL;
    return true;
}

/* An executor whose second phase will not come. Only a repeatable one may be destroyed. */
static void discard_executor(struct ascend_issue *c)
{
    c->acl->aclSetAclOpExecutorRepeatable(c->executor);
    c->acl->aclDestroyAclOpExecutor(c->executor);
}

void ngd_ascend_phase2(struct ascend_issue *c, const char *name, ngd_acl_error_t code, ngd_aclnn_run_t run)
{
    uint64_t room = c->call->workspace_bytes, need = ngd_ascend_align(c->ws);

    /* An operand that could not be made is NULL, which the first phase has refused: that is the cause to report. */
    if (c->status) {
        if (!code && c->executor)
            discard_executor(c);
        return;
    }
    if (code) {
        call_failed(c, code, name);
        return;
    }
    if (need > c->largest)
        c->largest = need;
    if (c->mode == ASCEND_MEASURE) {
        discard_executor(c);
        return;
    }
    if (need + c->temps > room) {
        discard_executor(c);
        c->status =
            ngd_diag_set(c->diag, NGD_ERR_CAPTURE_FAILED,
                         "device %s: node %u (%s): %s asks for %" PRIu64 " bytes of workspace, planned were %" PRIu64,
                         c->dev->name, c->call->node, c->call->op->name, name, c->ws, room - c->temps);
        return;
    }
    code = run(c->ws ? c->inst->pool + c->call->workspace_offset + room - need : NULL, c->ws, c->executor, c->stream);
    if (code)
        call_failed(c, code, name);
}

/* ---- casts --------------------------------------------------------------------------------------- */

void ngd_ascend_store(struct ascend_issue *c, const struct ascend_view *src, const struct ascend_view *dst)
{
    if (src->dtype == dst->dtype)
        ASCEND_RUN(c, InplaceCopy, ngd_ascend_tensor(c, dst), ngd_ascend_tensor(c, src));
    else
        ASCEND_RUN(c, Cast, ngd_ascend_tensor(c, src), ngd_ascend_dtype(dst->dtype), ngd_ascend_tensor(c, dst));
}

struct ascend_view ngd_ascend_contiguous(struct ascend_issue *c, const struct ascend_view *v)
{
    struct ascend_view t = *v;

    make_contiguous(&t);
    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->dims[i] == 1 || v->strides[i] == t.strides[i])
            continue;
        t = ngd_ascend_temp(c, v->dtype, v->rank, v->dims);
        ngd_ascend_store(c, v, &t);
        break;
    }
    return t;
}

struct ascend_view ngd_ascend_cast(struct ascend_issue *c, const struct ascend_view *v, ngd_dtype_t dtype)
{
    struct ascend_view t;

    if (v->dtype == dtype || c->status)
        return *v;
    t = ngd_ascend_temp(c, dtype, v->rank, v->dims);
    ngd_ascend_store(c, v, &t);
    return t;
}

/* ---- task groups --------------------------------------------------------------------------------- */

void ngd_ascend_called(struct ascend_issue *c, const char *name, ngd_acl_error_t code)
{
    if (code)
        call_failed(c, code, name);
}

static void check_code(struct ascend_issue *c, ngd_acl_error_t code, const char *name)
{
    if (code)
        call_failed(c, code, name);
}

void ngd_ascend_task_group_begin(struct ascend_issue *c)
{
    if (c->status || c->mode == ASCEND_MEASURE)
        return;
    if (c->mode == ASCEND_UPDATE) {
        check_code(c, c->acl->aclmdlRICaptureTaskUpdateBegin(c->stream, c->task_groups[c->task_group]), "an update");
        c->in_task_group = !c->status;
        return;
    }
    if (!c->capturing)
        return;
    /* The graph waits here until this launch's update has been queued, and makes the event ready for the next one. */
    check_code(c, c->acl->aclrtStreamWaitEvent(c->stream, c->s->events[c->task_group]), "aclrtStreamWaitEvent");
    if (!c->status)
        check_code(c, c->acl->aclrtResetEvent(c->s->events[c->task_group], c->stream), "aclrtResetEvent");
    if (!c->status)
        check_code(c, c->acl->aclmdlRICaptureTaskGrpBegin(c->stream), "aclmdlRICaptureTaskGrpBegin");
    c->in_task_group = !c->status;
}

void ngd_ascend_task_group_end(struct ascend_issue *c)
{
    ngd_acl_error_t code = 0;

    if (c->in_task_group && c->mode == ASCEND_UPDATE) {
        /* An update that was begun is ended, whatever happened in it: its stream would stay in it. */
        code = c->acl->aclmdlRICaptureTaskUpdateEnd(c->stream);
        if (code)
            c->s->broken = true; /* the stream may still be in the update: only a new one is sure not to be */
        if (!c->status)
            check_code(c, code, "aclmdlRICaptureTaskUpdateEnd");
    } else if (c->in_task_group) {
        code = c->acl->aclmdlRICaptureTaskGrpEnd(c->stream, &c->task_groups[c->task_group]);
        if (!c->status)
            check_code(c, code, "aclmdlRICaptureTaskGrpEnd");
    }
    c->in_task_group = false;
    c->task_group++;
}

/* ---- one call ------------------------------------------------------------------------------------ */

static bool is_empty(const struct ascend_issue *c)
{
    for (uint32_t i = 0; i < c->call->n_out; i++)
        if (ngd_plan_elements(&c->plan->tensors[c->call->out[i]]) > 0)
            return false;
    return c->call->n_out > 0;
}

static void check_dtype(struct ascend_issue *c)
{
    uint32_t first = c->call->n_in && c->call->in[0] != NGD_PLAN_NONE ? c->call->in[0] : c->call->out[0];
    ngd_dtype_t dtype = c->plan->tensors[first].dtype;

    if (!(c->op->dtypes >> dtype & 1))
        ngd_ascend_refuse(c, "%s does not take %s", c->op->name, ngd_dtype_name(dtype));
    ngd_ascend_check_self(c, dtype);
}

/* ---- limits of cores ------------------------------------------------------------------------------ */

static bool has_limits(const struct ascend_issue *c)
{
    return c->call->scope.aicore && c->acl->aclrtSetStreamResLimit && c->acl->aclrtUseStreamResInCurrentThread &&
           c->acl->aclrtUnuseStreamResInCurrentThread;
}

static void set_limit(struct ascend_issue *c, struct ascend_limits *limits, int kind, uint32_t cores)
{
    uint32_t all = c->dev->cores[kind];

    if (all && cores > all)
        cores = all;
    if (c->status || !cores || limits->now[kind] == cores)
        return;
    check_code(c, c->acl->aclrtSetStreamResLimit(limits->stream, kind, cores), "aclrtSetStreamResLimit");
    limits->now[kind] = c->status ? 0 : cores;
}

/* Operators divide their work over cores in the first phase, by the limits that the calling thread has then. */
static struct ascend_limits *enter_limits(struct ascend_issue *c)
{
    struct ascend_limits *limits = c->s ? &c->s->limits : &c->dev->limits;

    if (!has_limits(c))
        return NULL;
    if (!limits->stream) {
        ngd_acl_error_t code = c->acl->aclrtCreateStreamWithConfig(&limits->stream, 0, NGD_ACL_STREAM_FAST_LAUNCH);

        if (code) {
            limits->stream = NULL;
            call_failed(c, code, "a stream for limits of cores");
            return NULL;
        }
        ngd_ascend_count_streams(c->dev, 1);
    }
    set_limit(c, limits, NGD_ACL_CORES_CUBE, c->call->scope.aicore);
    set_limit(c, limits, NGD_ACL_CORES_VECTOR, c->call->scope.vectorcore);
    if (!c->status)
        check_code(c, c->acl->aclrtUseStreamResInCurrentThread(limits->stream), "aclrtUseStreamResInCurrentThread");
    return c->status ? NULL : limits;
}

static void leave_limits(struct ascend_issue *c, const struct ascend_limits *limits)
{
    ngd_acl_error_t code = limits ? c->acl->aclrtUnuseStreamResInCurrentThread(limits->stream) : 0;

    if (!c->status)
        check_code(c, code, "aclrtUnuseStreamResInCurrentThread");
}

static const struct ascend_nz *copy_of(const struct ascend_inst *inst, const struct ngd_plan_call *call)
{
    const uint32_t *weight_of = inst->exec->weight_of;
    uint32_t weight = weight_of ? weight_of[call - inst->exec->plan->calls] : NGD_PLAN_NONE;

    return weight == NGD_PLAN_NONE ? NULL : inst->nz[weight];
}

ngd_status_t ngd_ascend_issue_call(struct ascend_issue *c, const struct ngd_plan_call *call)
{
    const struct ascend_limits *limits;

    c->call = call;
    c->op = ngd_ascend_op_of(call->op->id);
    c->temps = c->largest = 0;
    if (c->mode != ASCEND_MEASURE) {
        c->copy = copy_of(c->inst, call);
        c->nz = c->copy != NULL;
        c->way = c->inst->exec->way_of[call - c->plan->calls];
    }
    if (!c->op) {
        ngd_ascend_refuse(c, "there is no operator for it; docs/operators.md says which there are");
        return c->status;
    }
    if (c->mode == ASCEND_MEASURE)
        check_dtype(c);
    limits = c->status ? NULL : enter_limits(c);
    if (!c->status && (c->op->collective || !is_empty(c)))
        c->op->build(c);
    leave_limits(c, limits);
    ngd_ascend_release_operands(c);
    return c->status;
}

/* Measures by `c`, which has what is special of the call. */
static ngd_status_t measure_call(struct ascend_issue c, struct ascend_device *dev, const struct ngd_plan *plan,
                                 const struct ngd_plan_call *call, uint64_t *workspace_p, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_ascend_enter(dev, dev->context, diag);

    c.mode = ASCEND_MEASURE;
    c.dev = dev;
    c.acl = dev->acl;
    c.plan = plan;
    c.diag = diag;
    if (status == NGD_OK && call->scope.aicore) { /* the limits are of one stream, for one thread at a time */
        ngd_mutex_lock(&dev->capture_lock);
        status = ngd_ascend_issue_call(&c, call);
        ngd_mutex_unlock(&dev->capture_lock);
    } else if (status == NGD_OK) {
        status = ngd_ascend_issue_call(&c, call);
    }
    if (status == NGD_OK)
        *workspace_p = c.temps + c.largest;
    return status;
}

ngd_status_t ngd_ascend_measure(struct ascend_device *dev, const struct ngd_plan *plan,
                                const struct ngd_plan_call *call, uint64_t *workspace_p, struct ngd_diag *diag)
{
    if (ngd_ascend_is_attention(call))
        return ngd_ascend_attention_measure(dev, plan, call, NULL, NULL, workspace_p, diag);
    return measure_call((struct ascend_issue){0}, dev, plan, call, workspace_p, diag);
}

ngd_status_t ngd_ascend_measure_way(struct ascend_device *dev, const struct ngd_plan *plan,
                                    const struct ngd_plan_call *call, enum ascend_way way, uint64_t *workspace_p,
                                    struct ngd_diag *diag)
{
    return measure_call((struct ascend_issue){.way = way}, dev, plan, call, workspace_p, diag);
}

ngd_status_t ngd_ascend_measure_nz(struct ascend_device *dev, const struct ngd_plan *plan,
                                   const struct ngd_plan_call *call, uint64_t *workspace_p, struct ngd_diag *diag)
{
    return measure_call((struct ascend_issue){.nz = true}, dev, plan, call, workspace_p, diag);
}
