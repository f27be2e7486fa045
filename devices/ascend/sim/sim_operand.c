/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnnopbase: tensors, scalars, lists, executors, and the second phase of every operator.
 *
 * An executor is used up by its second phase unless it was made repeatable. Those that are alive are in a list, so that
 * one which is used twice is an error here; a device's runtime would work with freed memory.
 */
#include "devices/ascend/sim/sim_op.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct aclOpExecutor {
    struct sim_op *op;
    bool repeatable;
    struct aclOpExecutor *next, **at;
};

static struct aclOpExecutor *executors;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- operands ------------------------------------------------------------------------------------ */

struct aclTensor *aclCreateTensor(const int64_t *dims, uint64_t rank, int dtype, const int64_t *strides, int64_t offset,
                                  int format, const int64_t *storage_dims, uint64_t storage_rank, void *data)
{
    struct sim_scope scope = ngd_aclsim_enter("aclCreateTensor");
    struct aclTensor *t = NULL;
    int64_t step = 1;

    if (!scope.injected && rank <= SIM_MAX_RANK && storage_rank <= SIM_MAX_RANK &&
        (format == NGD_ACL_FORMAT_ND || format == NGD_ACL_FORMAT_NZ) && sim_bytes(dtype, 2) &&
        (dtype != NGD_ACL_INT4 || format == NGD_ACL_FORMAT_ND) && (dims || !rank))
        t = calloc(1, sizeof(*t));
    else if (!scope.injected)
        ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "the same", "a tensor of rank %llu, dtype %d, format %d",
                        (unsigned long long)rank, dtype, format);
    if (t) {
        t->dtype = dtype;
        t->rank = (uint32_t)rank;
        t->offset = offset;
        t->data = data;
        t->format = format;
        t->storage_rank = (uint32_t)storage_rank;
        t->storage = 1;
        for (uint64_t i = rank; i-- > 0;) {
            t->dims[i] = dims[i];
            t->strides[i] = strides ? strides[i] : step;
            step *= dims[i];
        }
        for (uint64_t i = 0; i < storage_rank; i++) {
            t->storage_dims[i] = storage_dims[i];
            t->storage *= storage_dims[i];
        }
        ngd_aclsim_live(SIM_LIVE_OPERANDS, 1);
    }
    ngd_aclsim_leave(&scope);
    return t;
}

static int destroy_operand(const char *name, void *operand)
{
    SIM_RELEASE(name);
    if (!operand)
        return ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "%s of NULL", name);
    free(operand);
    ngd_aclsim_live(SIM_LIVE_OPERANDS, -1);
    return SIM_RELEASED;
}

ngd_acl_error_t aclDestroyTensor(const struct aclTensor *tensor)
{
    return destroy_operand("aclDestroyTensor", (void *)(uintptr_t)tensor);
}

struct aclScalar *aclCreateScalar(void *value, int dtype)
{
    struct sim_scope scope = ngd_aclsim_enter("aclCreateScalar");
    struct aclScalar *s = NULL;

    if (!scope.injected && value && sim_size(dtype))
        s = calloc(1, sizeof(*s));
    if (s) {
        s->dtype = dtype;
        s->f = sim_load(value, dtype);
        s->i = sim_is_float(dtype) ? (int64_t)s->f : sim_load_int(value, dtype);
        ngd_aclsim_live(SIM_LIVE_OPERANDS, 1);
    }
    ngd_aclsim_leave(&scope);
    return s;
}

ngd_acl_error_t aclDestroyScalar(const struct aclScalar *scalar)
{
    return destroy_operand("aclDestroyScalar", (void *)(uintptr_t)scalar);
}

struct aclIntArray *aclCreateIntArray(const int64_t *values, uint64_t n)
{
    struct sim_scope scope = ngd_aclsim_enter("aclCreateIntArray");
    struct aclIntArray *a = NULL;

    if (!scope.injected && (values || !n))
        a = malloc(sizeof(*a) + n * sizeof(a->v[0]));
    if (a) {
        a->n = n;
        if (n)
            memcpy(a->v, values, n * sizeof(a->v[0]));
        ngd_aclsim_live(SIM_LIVE_OPERANDS, 1);
    }
    ngd_aclsim_leave(&scope);
    return a;
}

ngd_acl_error_t aclDestroyIntArray(const struct aclIntArray *array)
{
    return destroy_operand("aclDestroyIntArray", (void *)(uintptr_t)array);
}

struct aclTensorList *aclCreateTensorList(const struct aclTensor *const *tensors, uint64_t n)
{
    struct sim_scope scope = ngd_aclsim_enter("aclCreateTensorList");
    struct aclTensorList *l = NULL;

    if (!scope.injected && (tensors || !n))
        l = malloc(sizeof(*l) + n * sizeof(l->t[0]));
    if (l) {
        l->n = n;
        if (n)
            memcpy(l->t, tensors, n * sizeof(l->t[0]));
        ngd_aclsim_live(SIM_LIVE_OPERANDS, 1);
    }
    ngd_aclsim_leave(&scope);
    return l;
}

/* A list owns its tensors, and takes them along. */
ngd_acl_error_t aclDestroyTensorList(const struct aclTensorList *list)
{
    for (uint64_t i = 0; list && i < list->n; i++) {
        free((void *)(uintptr_t)list->t[i]);
        ngd_aclsim_live(SIM_LIVE_OPERANDS, -1);
    }
    return destroy_operand("aclDestroyTensorList", (void *)(uintptr_t)list);
}

/* ---- calls --------------------------------------------------------------------------------------- */

static void run_op(struct sim_kernel *kernel)
{
    struct sim_op *op = (struct sim_op *)(void *)kernel;
    struct sim_op *local = calloc(1, sizeof(*local)); /* a replay must not change what the next one gets */

    if (!local)
        abort();
    /* All but the kernel, whose references others count meanwhile. */
    memcpy((char *)local + sizeof(local->kernel), (char *)op + sizeof(op->kernel),
           sizeof(*local) - sizeof(local->kernel));
    for (uint32_t i = 0; i < local->n; i++)
        if (local->t[i].present)
            local->t[i].p = ngd_aclsim_host(local->t[i].p);
    local->run(local);
    free(local);
}

static void release_op(struct sim_kernel *kernel)
{
    struct sim_op *op = (struct sim_op *)(void *)kernel;

    free(op->list[0]);
    free(op->list[1]);
    free(op->others);
    free(op);
}

struct sim_op *ngd_aclsim_op(const char *name, void (*run)(struct sim_op *op))
{
    struct sim_op *op = calloc(1, sizeof(*op));

    if (!op)
        abort();
    op->kernel = (struct sim_kernel){.name = name, .run = run_op, .release = release_op};
    atomic_init(&op->kernel.refs, 1);
    op->run = run;
    return op;
}

void ngd_aclsim_check(struct sim_op *op, bool ok, const char *what)
{
    if (!ok && !op->code)
        op->code = ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "not proven", "%s: %s", op->kernel.name, what);
}

/* Elements from the first to the last one that the view touches. */
static bool inside_storage(const struct aclTensor *t)
{
    int64_t last = t->offset;

    for (uint32_t i = 0; i < t->rank; i++) {
        if (t->dims[i] == 0)
            return true;
        if (t->dims[i] < 0 || t->strides[i] < 0)
            return false;
        last += (t->dims[i] - 1) * t->strides[i];
    }
    /* hicann/opbase aa3cd74, op_executor.cpp, CreateView: only newer versions look, and only at the offset. */
    return t->offset >= 0 && (last < t->storage || ngd_aclsim_lenient());
}

static struct sim_view *add_operand(struct sim_op *op, const struct aclTensor *t, bool required, int format)
{
    struct sim_view *v = &op->t[op->n];

    if (op->n >= SIM_MAX_OPERANDS)
        abort();
    op->n++;
    v->present = t != NULL;
    if (!t) {
        if (required && !op->code)
            op->code = ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "%s: operand %u is NULL", op->kernel.name,
                                       op->n - 1);
        return v;
    }
    ngd_aclsim_check(op, t->format == format,
                     format == NGD_ACL_FORMAT_ND ? "takes no operand in FRACTAL_NZ"
                                                 : "its weight must be in FRACTAL_NZ");
    ngd_aclsim_check(op, format == NGD_ACL_FORMAT_NZ || inside_storage(t), "a view reaches outside its storage");
    v->dtype = t->dtype;
    v->rank = t->rank;
    memcpy(v->dims, t->dims, sizeof(v->dims));
    memcpy(v->strides, t->strides, sizeof(v->strides));
    v->p = (char *)t->data + sim_bytes(t->dtype, t->offset);
    return v;
}

struct sim_view *ngd_aclsim_packed(struct sim_op *op, const struct aclTensor *tensor)
{
    return add_operand(op, tensor, true, NGD_ACL_FORMAT_ND);
}

struct sim_view *ngd_aclsim_operand(struct sim_op *op, const struct aclTensor *tensor)
{
    struct sim_view *v = ngd_aclsim_packed(op, tensor);

    ngd_aclsim_check(op, v->dtype != NGD_ACL_INT4, "takes no i4");
    return v;
}

struct sim_view *ngd_aclsim_optional(struct sim_op *op, const struct aclTensor *tensor)
{
    struct sim_view *v = add_operand(op, tensor, false, NGD_ACL_FORMAT_ND);

    ngd_aclsim_check(op, v->dtype != NGD_ACL_INT4, "takes no i4");
    return v;
}

/* Whether it is the transpose of what lies there is read off its strides, as the real ones do. */
struct sim_view *ngd_aclsim_weight(struct sim_op *op, const struct aclTensor *t)
{
    struct sim_view *v = add_operand(op, t, true, NGD_ACL_FORMAT_NZ);
    int64_t fractal[4], columns;

    if (op->code)
        return v;
    ngd_aclsim_check(op, t->rank == 2 && t->offset == 0, "a weight in FRACTAL_NZ is a whole matrix");
    ngd_aclsim_check(op, t->storage_rank == 4 || ngd_aclsim_lenient(),
                     "the storage of a weight in FRACTAL_NZ has 4 dimensions");
    if (op->code)
        return v;
    ngd_aclsim_check(op, t->dims[0] > 1 && t->dims[1] > 1, "no weight of one row or one column in FRACTAL_NZ");
    v->transposed = t->strides[0] == 1 && t->strides[1] == t->dims[0];
    ngd_aclsim_check(op, v->transposed || (t->strides[1] == 1 && t->strides[0] == t->dims[1]),
                     "a weight in FRACTAL_NZ is contiguous, or the transpose of what is");
    v->rows = t->dims[v->transposed ? 1 : 0];
    columns = t->dims[v->transposed ? 0 : 1];
    ngd_acl_fractal(v->rows, columns, (int64_t)sim_size(t->dtype), fractal);
    ngd_aclsim_check(op, t->storage_rank != 4 || memcmp(fractal, t->storage_dims, sizeof(fractal)) == 0,
                     "the storage of a weight in FRACTAL_NZ is not of its shape");
    v->reach = fractal[0] * fractal[1] * fractal[2] * fractal[3];
    return v;
}

static bool is_like(const struct aclTensor *a, const struct aclTensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0 &&
           memcmp(a->strides, b->strides, a->rank * sizeof(a->strides[0])) == 0;
}

/* Adds the tensors behind the first one. */
static void add_others(struct sim_op *op, struct sim_view *v, const struct aclTensorList *list)
{
    char **others = realloc(op->others, (op->n_others + list->n) * sizeof(*others));

    if (!others)
        abort();
    op->others = others;
    v->others = op->n_others;
    for (uint64_t i = 1; i < list->n && !op->code; i++) {
        const struct aclTensor *t = list->t[i];

        if (!t) {
            op->code = ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "%s: tensor %llu of a list is NULL",
                                       op->kernel.name, (unsigned long long)i);
            break;
        }
        ngd_aclsim_check(op, t->format == NGD_ACL_FORMAT_ND, "takes no operand in FRACTAL_NZ");
        ngd_aclsim_check(op, inside_storage(t), "a view reaches outside its storage");
        v->mixed |= !is_like(list->t[0], t);
        op->others[op->n_others++] = (char *)t->data + sim_bytes(t->dtype, t->offset);
    }
}

static struct sim_view *add_list(struct sim_op *op, const struct aclTensorList *list, bool required)
{
    const uint64_t n = list ? list->n : 0;
    struct sim_view *v = add_operand(op, n ? list->t[0] : NULL, required, NGD_ACL_FORMAT_ND);

    v->length = (uint32_t)n;
    ngd_aclsim_check(op, n <= SIM_MAX_TENSORS, "lists have 1024 tensors at most here");
    if (!op->code && n > 1)
        add_others(op, v, list);
    return v;
}

struct sim_view *ngd_aclsim_tensors(struct sim_op *op, const struct aclTensorList *list)
{
    return add_list(op, list, true);
}

struct sim_view *ngd_aclsim_optional_tensors(struct sim_op *op, const struct aclTensorList *list)
{
    return add_list(op, list, false);
}

char *ngd_aclsim_of_list(const struct sim_op *op, const struct sim_view *v, int64_t i)
{
    return i == 0 ? v->p : ngd_aclsim_host(op->others[v->others + (uint32_t)i - 1]);
}

void ngd_aclsim_list(struct sim_op *op, int which, const struct aclIntArray *array)
{
    if (!array) {
        if (!op->code)
            op->code = ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "%s: a list is NULL", op->kernel.name);
        return;
    }
    op->list[which] = malloc((array->n + 1) * sizeof(int64_t));
    if (!op->list[which])
        abort();
    memcpy(op->list[which], array->v, array->n * sizeof(int64_t));
    op->n_list[which] = array->n;
}

static void add_kernel_span(struct sim_kernel *k, const void *addr, uint64_t bytes)
{
    if (bytes && k->n_spans < sizeof(k->spans) / sizeof(k->spans[0])) {
        k->spans[k->n_spans].addr = addr;
        k->spans[k->n_spans].bytes = bytes;
        k->n_spans++;
    }
}

static uint64_t operand_extent(const struct sim_view *v)
{
    int64_t last = 0;

    if (v->reach)
        return (uint64_t)sim_bytes(v->dtype, v->reach);
    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->dims[i] == 0)
            return 0;
        last += (v->dims[i] - 1) * v->strides[i];
    }
    return (uint64_t)sim_bytes(v->dtype, last + 1);
}

/* hicann/opbase aa3cd74, kernel_utils.cpp:49-66: operators are looked for there, when the first one is planned. */
static bool has_operators(void)
{
    const char *home = getenv("ASCEND_HOME_PATH"), *path = getenv("ASCEND_OPP_PATH");
    char newer[1024];

    snprintf(newer, sizeof(newer), "%s/opp_latest", home ? home : "");
    return (path && access(path, R_OK) == 0) || (home && access(newer, R_OK) == 0);
}

int ngd_aclsim_finish(struct sim_op *op, uint64_t *workspace_p, struct aclOpExecutor **executor_p)
{
    struct aclOpExecutor *e;
    int code;

    ngd_aclsim_rules(op);
    code = op->code;
    ngd_aclsim_note_limits();
    if (!workspace_p || !executor_p)
        code = ngd_aclsim_fail(NGD_ACL_NN_PARAM_NULLPTR, "the same", "%s: no room for its results", op->kernel.name);
    if (!code && ngd_aclsim_need_opp() && !has_operators())
        code = ngd_aclsim_fail(NGD_ACL_NN_INNER_OPP_PATH, "the same", "%s: ASCEND_OPP_PATH names no folder",
                               op->kernel.name);
    e = code ? NULL : calloc(1, sizeof(*e));
    if (!e) {
        release_op(&op->kernel);
        return code ? code : NGD_ACL_NN_RUNTIME_ERROR;
    }
    for (uint32_t i = 0; i < op->n; i++)
        if (op->t[i].present)
            add_kernel_span(&op->kernel, op->t[i].p, operand_extent(&op->t[i]));
    for (uint32_t i = 0; i < op->n; i++)
        for (uint32_t k = 1; k < op->t[i].length; k++)
            add_kernel_span(&op->kernel, op->others[op->t[i].others + k - 1], operand_extent(&op->t[i]));
    e->op = op;
    pthread_mutex_lock(&lock);
    e->next = executors;
    e->at = &executors;
    if (executors)
        executors->at = &e->next;
    executors = e;
    pthread_mutex_unlock(&lock);
    ngd_aclsim_live(SIM_LIVE_EXECUTORS, 1);
    *workspace_p = op->workspace;
    *executor_p = e;
    return 0;
}

int ngd_aclsim_as(const char *name, int code, struct aclOpExecutor **executor_p)
{
    if (!code)
        (*executor_p)->op->kernel.name = name;
    return code;
}

/* A repeatable executor's kernels differ in their workspaces, and may be queued at the same time. */
static struct sim_op *clone_op(const struct sim_op *op)
{
    struct sim_op *copy = malloc(sizeof(*copy));

    if (!copy)
        abort();
    *copy = *op;
    atomic_init(&copy->kernel.refs, 1);
    if (op->others) {
        copy->others = malloc((op->n_others + 1) * sizeof(*op->others));
        if (!copy->others)
            abort();
        memcpy(copy->others, op->others, op->n_others * sizeof(*op->others));
    }
    for (int i = 0; i < 2; i++) {
        if (!op->list[i])
            continue;
        copy->list[i] = malloc((op->n_list[i] + 1) * sizeof(int64_t));
        if (!copy->list[i])
            abort();
        memcpy(copy->list[i], op->list[i], op->n_list[i] * sizeof(int64_t));
    }
    return copy;
}

static bool alive(const struct aclOpExecutor *executor)
{
    for (const struct aclOpExecutor *e = executors; e; e = e->next)
        if (e == executor)
            return true;
    return false;
}

static void drop_executor(struct aclOpExecutor *e)
{
    *e->at = e->next;
    if (e->next)
        e->next->at = e->at;
    ngd_aclsim_kernel_unref(&e->op->kernel);
    free(e);
    ngd_aclsim_live(SIM_LIVE_EXECUTORS, -1);
}

int ngd_aclsim_execute(const char *name, void *workspace, uint64_t bytes, struct aclOpExecutor *executor, void *stream,
                       int injected)
{
    struct sim_op *op = NULL;
    int code = 0;

    pthread_mutex_lock(&lock);
    if (!alive(executor)) {
        code = ngd_aclsim_fail(NGD_ACL_NN_RUNTIME_ERROR, "works with freed memory",
                               "%s: the executor was used up by an earlier call, or destroyed", name);
    } else if (strcmp(executor->op->kernel.name, name) != 0) {
        code = ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "runs another operator", "%s: the executor is of %s", name,
                               executor->op->kernel.name);
    } else if (executor->op->workspace && (!workspace || bytes < executor->op->workspace)) {
        code = ngd_aclsim_fail(NGD_ACL_NN_PARAM_INVALID, "writes outside its workspace",
                               "%s: a workspace of %llu bytes, %llu are needed", name, (unsigned long long)bytes,
                               (unsigned long long)executor->op->workspace);
    } else if (!injected) {
        op = executor->op;
        if (executor->repeatable)
            op = clone_op(op);
        else
            atomic_fetch_add(&op->kernel.refs, 1);
        if (op->workspace)
            add_kernel_span(&op->kernel, workspace, op->workspace);
    }
    if (!code && !executor->repeatable)
        drop_executor(executor);
    pthread_mutex_unlock(&lock);
    if (code || injected)
        return code ? code : injected;
    return ngd_aclsim_launch(&op->kernel, stream);
}

ngd_acl_error_t aclSetAclOpExecutorRepeatable(struct aclOpExecutor *executor)
{
    int code = 0;

    SIM_CALL("aclSetAclOpExecutorRepeatable");
    pthread_mutex_lock(&lock);
    if (alive(executor))
        executor->repeatable = true;
    else
        code = ngd_aclsim_fail(NGD_ACL_NN_INNER_NULLPTR, "crashes or the same", "the executor is not alive");
    pthread_mutex_unlock(&lock);
    return code;
}

ngd_acl_error_t aclDestroyAclOpExecutor(struct aclOpExecutor *executor)
{
    int code = 0;

    SIM_RELEASE("aclDestroyAclOpExecutor");
    pthread_mutex_lock(&lock);
    if (alive(executor))
        drop_executor(executor);
    else
        code = ngd_aclsim_fail(NGD_ACL_NN_INNER_NULLPTR, "crashes or the same", "the executor is not alive");
    pthread_mutex_unlock(&lock);
    return code ? code : SIM_RELEASED;
}
