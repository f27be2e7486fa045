/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of weights in FRACTAL_NZ: which, whose, and how they are made. See nz.h. */
#include "devices/ascend/nz.h"
#include "base/log.h"
#include "devices/ascend/issue.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SPARE_SHARE 4 /* of the budget, one part in so many stays free: for caches and pools of what comes later */

/* ---- which weights ------------------------------------------------------------------------------- */

bool ngd_ascend_nz_matrix(ngd_dtype_t dtype, uint32_t rank, const int64_t *dims, const int64_t *strides,
                          int64_t *rows_p, int64_t *columns_p)
{
    bool transposed;

    /* One row or column is refused by aclnnMatmulWeightNz, and has two readings as a transpose. */
    if (rank != 2 || (dtype != NGD_F16 && dtype != NGD_BF16) || dims[0] < 2 || dims[1] < 2)
        return false;
    transposed = strides[0] == 1 && strides[1] == dims[0];
    if (!transposed && !(strides[1] == 1 && strides[0] == dims[1]))
        return false;
    *rows_p = dims[transposed ? 1 : 0];
    *columns_p = dims[transposed ? 0 : 1];
    return true;
}

static bool weight_of(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ascend_nz_weight *w)
{
    uint32_t operand = ngd_ascend_weight_operand(call->op->id);
    const struct ngd_plan_tensor *t;

    if (!operand || operand >= call->n_in || call->in[operand] == NGD_PLAN_NONE)
        return false;
    t = &plan->tensors[call->in[operand]];
    w->tensor = call->in[operand];
    return t->space == NGD_SPACE_BOUND && t->bound < plan->graph->n_params &&
           ngd_ascend_nz_matrix(t->dtype, t->rank, t->dims, t->strides, &w->rows, &w->columns);
}

bool ngd_ascend_nz_fits(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    struct ascend_nz_weight w;

    return weight_of(plan, call, &w);
}

static void count_refused(struct ascend_device *dev, uint32_t n)
{
    ngd_mutex_lock(&dev->nz.lock);
    dev->nz.left[ASCEND_ND_REFUSED] += n;
    ngd_mutex_unlock(&dev->nz.lock);
}

ngd_status_t ngd_ascend_nz_find(struct ascend_exec *exec, struct ngd_diag *diag)
{
    const struct ngd_plan *plan = exec->plan;
    struct ascend_device *dev = exec->dev;
    struct ngd_diag why = {0};
    uint32_t refused = 0;

    if (!dev->nz.on)
        return NGD_OK;
    exec->weights = ngd_arena_calloc(&exec->arena, plan->n_calls + 1, sizeof(*exec->weights));
    exec->weight_of = ngd_arena_calloc(&exec->arena, plan->n_calls + 1, sizeof(*exec->weight_of));
    if (!exec->weights || !exec->weight_of)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
    for (uint32_t i = 0; i < plan->n_calls; i++) {
        uint64_t need = 0;

        exec->weight_of[i] = NGD_PLAN_NONE;
        if (!weight_of(plan, &plan->calls[i], &exec->weights[exec->n_weights]))
            continue;
        if (ngd_ascend_measure_nz(dev, plan, &plan->calls[i], &need, &why) || need > plan->calls[i].workspace_bytes)
            refused++;
        else
            exec->weight_of[i] = exec->n_weights++;
    }
    if (refused) {
        static struct ngd_log_limit limit;

        count_refused(dev, refused);
        ngd_log_limited(&limit, NGD_LOG_INFO, "devices", "device %s: %u weights of graph \"%s\" stay in ND: %s",
                        dev->name, (unsigned)refused, plan->graph->name,
                        why.text[0] ? why.text : "more workspace is needed than was planned");
    }
    return NGD_OK;
}

/* ---- making one ---------------------------------------------------------------------------------- */

static ngd_status_t fail_nz(const struct ascend_device *dev, ngd_acl_error_t code, const char *name,
                            struct ngd_diag *diag)
{
    char what[160];

    snprintf(what, sizeof(what), "device %s: %s for a weight in NZ", dev->name, name);
    return ngd_acl_fail(dev->acl, code, what, diag);
}

/* Counted memory; what there is of it is to be given back. */
static ngd_status_t take_nz_memory(struct ascend_device *dev, uint64_t bytes, void **mem_p, struct ngd_diag *diag)
{
    const struct ngd_backend_counter *counter = &dev->nz.counter;
    ngd_status_t status = counter->take(counter->ctx, bytes, counter->budget / SPARE_SHARE, diag);
    ngd_acl_error_t code;

    if (status)
        return status;
    code = dev->acl->aclrtMalloc(mem_p, bytes, NGD_ACL_MALLOC_HUGE_FIRST);
    if (code) {
        *mem_p = NULL;
        counter->give(counter->ctx, bytes);
        return fail_nz(dev, code, "device memory", diag);
    }
    return NGD_OK;
}

static void give_memory(struct ascend_device *dev, void *mem, uint64_t bytes)
{
    ngd_acl_error_t code = -1;

    if (!mem)
        return;
    if (ngd_ascend_enter_to_release(dev, dev->context))
        code = dev->acl->aclrtFree(mem);
    if (code)
        ngd_warning("devices",
                    "device %s: a weight in NZ of %" PRIu64 " bytes could not be freed (CANN answers %d), ignoring",
                    dev->name, bytes, (int)code);
    dev->nz.counter.give(dev->nz.counter.ctx, bytes);
}

/* Elements with the padding. 8.1.RC1 names f16 only, and bf16 is as wide. */
static ngd_status_t size_of_weight(struct ascend_device *dev, struct ascend_nz *w, struct ngd_diag *diag)
{
    const int64_t dims[2] = {w->rows, w->columns};
    struct aclIntArray *shape = dev->acl->aclCreateIntArray(dims, 2);
    uint64_t elements = 0;
    int64_t fractal[4];
    ngd_acl_error_t code;

    if (!shape)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a weight in NZ");
    code = dev->acl->aclnnCalculateMatmulWeightSizeV2(shape, NGD_ACL_FLOAT16, &elements);
    dev->acl->aclDestroyIntArray(shape);
    if (code)
        return fail_nz(dev, code, "aclnnCalculateMatmulWeightSizeV2", diag);
    ngd_acl_fractal(w->rows, w->columns, (int64_t)ngd_dtype_bytes(w->dtype), fractal);
    if (elements != (uint64_t)(fractal[0] * fractal[1] * fractal[2] * fractal[3]))
        return ngd_diag_set(diag, NGD_ERR_OP_UNSUPPORTED,
                            "device %s: CANN lays a weight of %" PRId64 " x %" PRId64 " out as %" PRIu64
                            " elements, which is not NZ as it is known",
                            dev->name, w->rows, w->columns, elements);
    w->bytes = ngd_ascend_align(elements * ngd_dtype_bytes(w->dtype));
    return NGD_OK;
}

/* Both phases of aclnnTransMatmulWeight, whose workspace is the caller's to give back. */
static ngd_status_t queue_layout(struct ascend_device *dev, const struct ascend_nz *w, void *stream, void **ws_p,
                                 uint64_t *ws_bytes_p, struct ngd_diag *diag)
{
    const struct ngd_acl *acl = dev->acl;
    const int64_t dims[2] = {w->rows, w->columns}, strides[2] = {w->columns, 1};
    const int64_t storage = (int64_t)(w->bytes / ngd_dtype_bytes(w->dtype));
    struct aclTensor *t =
        acl->aclCreateTensor(dims, 2, ngd_ascend_dtype(w->dtype), strides, 0, NGD_ACL_FORMAT_ND, &storage, 1, w->mem);
    struct aclOpExecutor *executor = NULL;
    uint64_t need = 0;
    ngd_status_t status = NGD_OK;
    ngd_acl_error_t code;

    if (!t)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a weight in NZ");
    code = acl->aclnnTransMatmulWeightGetWorkspaceSize(t, &need, &executor);
    if (code)
        status = fail_nz(dev, code, "aclnnTransMatmulWeightGetWorkspaceSize", diag);
    if (!status && need) {
        status = take_nz_memory(dev, ngd_ascend_align(need), ws_p, diag);
        if (!status)
            *ws_bytes_p = ngd_ascend_align(need);
    }
    if (!status) {
        code = acl->aclnnTransMatmulWeight(*ws_p, need, executor, stream);
        if (code)
            status = fail_nz(dev, code, "aclnnTransMatmulWeight", diag);
    } else if (executor) { /* only a repeatable one may be destroyed */
        acl->aclSetAclOpExecutorRepeatable(executor);
        acl->aclDestroyAclOpExecutor(executor);
    }
    acl->aclDestroyTensor(t);
    return status;
}

/* The elements as they are, then laid out where they lie. Nothing of it runs afterwards. */
static ngd_status_t lay_out_weight(struct ascend_device *dev, const struct ascend_nz *w, struct ngd_diag *diag)
{
    const struct ngd_acl *acl = dev->acl;
    void *stream = NULL, *ws = NULL;
    uint64_t ws_bytes = 0;
    ngd_acl_error_t code = acl->aclrtMemcpy(w->mem, w->bytes, w->source, w->source_bytes, NGD_ACL_COPY_D2D);
    ngd_status_t status;

    if (code)
        return fail_nz(dev, code, "a copy", diag);
    code = acl->aclrtCreateStreamWithConfig(&stream, 0, NGD_ACL_STREAM_FAST_LAUNCH | NGD_ACL_STREAM_FAST_SYNC);
    if (code)
        return fail_nz(dev, code, "a stream", diag);
    ngd_ascend_count_streams(dev, 1);
    status = queue_layout(dev, w, stream, &ws, &ws_bytes, diag);
    code = acl->aclrtSynchronizeStreamWithTimeout(stream, dev->limit_ms);
    if (code) {
        acl->aclrtStreamAbort(stream); /* the memory goes away now */
        if (!status)
            status = fail_nz(dev, code, "aclnnTransMatmulWeight", diag);
    }
    acl->aclrtDestroyStreamForce(stream);
    ngd_ascend_count_streams(dev, -1);
    give_memory(dev, ws, ws_bytes);
    return status;
}

static ngd_status_t make_nz_copy(struct ascend_device *dev, struct ascend_nz *w, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_ascend_enter(dev, dev->context, diag);

    if (!status)
        status = size_of_weight(dev, w, diag);
    if (!status)
        status = take_nz_memory(dev, w->bytes, &w->mem, diag);
    if (!status)
        status = lay_out_weight(dev, w, diag);
    if (status) {
        give_memory(dev, w->mem, w->bytes);
        w->mem = NULL;
    }
    return status;
}

/* ---- what is current ----------------------------------------------------------------------------- */

static bool ranges_overlap(const char *a, uint64_t a_bytes, const char *b, uint64_t b_bytes)
{
    return (uintptr_t)a < (uintptr_t)b + b_bytes && (uintptr_t)b < (uintptr_t)a + a_bytes;
}

static void outdate(struct ascend_device *dev, const char *mem, uint64_t bytes) NGD_REQUIRES(dev->nz.lock)
{
    bool any = false;

    ngd_list_for_each (pos, &dev->nz.copies) {
        struct ascend_nz *w = ngd_container_of(pos, struct ascend_nz, link);

        if (!w->current || !ranges_overlap(w->source, w->source_bytes, mem, bytes))
            continue;
        w->current = false;
        dev->nz.outdated++;
        any = true;
    }
    if (any)
        atomic_fetch_add_explicit(&dev->nz.epoch, 1, memory_order_release);
}

void ngd_ascend_nz_written(struct ascend_device *dev, const void *mem, uint64_t bytes)
{
    if (!dev->nz.on)
        return;
    ngd_mutex_lock(&dev->nz.lock);
    outdate(dev, mem, bytes);
    ngd_mutex_unlock(&dev->nz.lock);
}

/* A graph that is bound writes there whenever it runs. */
static bool is_written(struct ascend_device *dev, const char *mem, uint64_t bytes) NGD_REQUIRES(dev->nz.lock)
{
    ngd_list_for_each (pos, &dev->nz.writers) {
        const struct ascend_inst *inst = ngd_container_of(pos, struct ascend_inst, nz_writer);
        const struct ngd_plan *plan = inst->exec->plan;

        for (uint32_t i = plan->graph->n_params; i < inst->n_bound; i++)
            if (ranges_overlap(mem, bytes, inst->bound[i], plan->bound[i].bytes))
                return true;
    }
    return false;
}

static void list_writer(struct ascend_inst *inst)
{
    struct ascend_device *dev = inst->exec->dev;
    const struct ngd_plan *plan = inst->exec->plan;

    if (inst->n_bound == plan->graph->n_params)
        return;
    ngd_mutex_lock(&dev->nz.lock);
    if (ngd_list_empty(&inst->nz_writer)) {
        ngd_list_push_back(&dev->nz.writers, &inst->nz_writer);
        for (uint32_t i = plan->graph->n_params; i < inst->n_bound; i++)
            outdate(dev, inst->bound[i], plan->bound[i].bytes);
    }
    ngd_mutex_unlock(&dev->nz.lock);
}

/* ---- whose --------------------------------------------------------------------------------------- */

static struct ascend_nz *find_nz_copy(struct ascend_device *dev, const struct ascend_nz *like)
    NGD_REQUIRES(dev->nz.lock)
{
    ngd_list_for_each (pos, &dev->nz.copies) {
        struct ascend_nz *w = ngd_container_of(pos, struct ascend_nz, link);

        if (w->current && w->source == like->source && w->dtype == like->dtype && w->rows == like->rows &&
            w->columns == like->columns)
            return w;
    }
    return NULL;
}

static struct ascend_nz *add_nz_copy(struct ascend_device *dev, const struct ascend_nz *like, struct ngd_diag *diag)
    NGD_REQUIRES(dev->nz.lock)
{
    struct ascend_nz *w = NGD_NEW(struct ascend_nz);
    ngd_status_t status;

    if (!w) {
        ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a weight in NZ");
        dev->nz.left[ASCEND_ND_FAILED]++;
        return NULL;
    }
    *w = *like;
    status = make_nz_copy(dev, w, diag);
    if (status) {
        diag->status = status;
        dev->nz.left[status == NGD_ERR_NO_DEVICE_MEMORY ? ASCEND_ND_MEMORY : ASCEND_ND_FAILED]++;
        ngd_free(w);
        return NULL;
    }
    w->current = true;
    ngd_list_push_back(&dev->nz.copies, &w->link);
    dev->nz.bytes += w->bytes;
    dev->nz.made++;
    return w;
}

static struct ascend_nz *get(const struct ascend_inst *inst, const struct ascend_nz_weight *weight,
                             struct ngd_diag *diag)
{
    struct ascend_device *dev = inst->exec->dev;
    const struct ngd_plan_tensor *t = &inst->exec->plan->tensors[weight->tensor];
    const struct ascend_place at = ngd_ascend_place(inst, weight->tensor);
    const struct ascend_nz like = {.source = at.base + at.before,
                                   .source_bytes =
                                       (uint64_t)(weight->rows * weight->columns) * ngd_dtype_bytes(t->dtype),
                                   .dtype = t->dtype,
                                   .rows = weight->rows,
                                   .columns = weight->columns};
    struct ascend_nz *w = NULL;

    ngd_mutex_lock(&dev->nz.lock);
    if (is_written(dev, like.source, like.source_bytes)) {
        ngd_diag_set(diag, NGD_ERR_BUSY, "device %s: a graph that is bound writes the buffer", dev->name);
        dev->nz.left[ASCEND_ND_WRITTEN]++;
    } else {
        w = find_nz_copy(dev, &like);
        if (!w)
            w = add_nz_copy(dev, &like, diag);
    }
    if (w)
        w->refs++;
    ngd_mutex_unlock(&dev->nz.lock);
    return w;
}

static void put_nz_copy(struct ascend_device *dev, struct ascend_nz *w)
{
    bool last;

    if (!w)
        return;
    ngd_mutex_lock(&dev->nz.lock);
    last = --w->refs == 0;
    if (last) {
        ngd_list_remove(&w->link);
        dev->nz.bytes -= w->bytes;
    }
    ngd_mutex_unlock(&dev->nz.lock);
    if (!last)
        return;
    give_memory(dev, w->mem, w->bytes);
    ngd_free(w);
}

void ngd_ascend_nz_take(struct ascend_inst *inst)
{
    const struct ascend_exec *exec = inst->exec;
    struct ascend_device *dev = exec->dev;
    struct ngd_diag why = {0};
    uint32_t without = 0;

    if (!dev->nz.on)
        return;
    list_writer(inst);
    inst->nz_epoch = atomic_load_explicit(&dev->nz.epoch, memory_order_acquire);
    /* A device that does not work says so again at the launch. */
    for (uint32_t i = 0; i < exec->n_weights && ngd_status_scope(why.status) != NGD_SCOPE_DEVICE; i++) {
        inst->nz[i] = get(inst, &exec->weights[i], &why);
        without += inst->nz[i] == NULL;
    }
    if (without) {
        static struct ngd_log_limit limit;

        ngd_log_limited(&limit, NGD_LOG_INFO, "devices", "device %s: %u of %u weights of graph \"%s\" stay in ND: %s",
                        dev->name, (unsigned)without, (unsigned)exec->n_weights, exec->plan->graph->name, why.text);
    }
}

static void put_all(struct ascend_inst *inst)
{
    for (uint32_t i = 0; inst->nz && i < inst->exec->n_weights; i++) {
        put_nz_copy(inst->exec->dev, inst->nz[i]);
        inst->nz[i] = NULL;
    }
}

void ngd_ascend_nz_give(struct ascend_inst *inst)
{
    struct ascend_device *dev = inst->exec->dev;

    if (!dev->nz.on)
        return;
    put_all(inst);
    ngd_mutex_lock(&dev->nz.lock);
    ngd_list_remove(&inst->nz_writer);
    ngd_mutex_unlock(&dev->nz.lock);
}

void ngd_ascend_nz_refresh(struct ascend_inst *inst)
{
    struct ascend_device *dev = inst->exec->dev;
    uint64_t epoch = atomic_load_explicit(&dev->nz.epoch, memory_order_acquire);
    bool all = true;

    ngd_mutex_lock(&dev->nz.lock);
    for (uint32_t i = 0; i < inst->exec->n_weights; i++)
        all &= !inst->nz[i] || inst->nz[i]->current;
    ngd_mutex_unlock(&dev->nz.lock);
    if (all) {
        inst->nz_epoch = epoch;
        return;
    }
    ngd_ascend_drop_graph(inst);
    put_all(inst);
    ngd_ascend_nz_take(inst);
}

/* ---- the device's part --------------------------------------------------------------------------- */

static bool has_all(const struct ngd_acl *acl)
{
    return acl->aclnnCalculateMatmulWeightSizeV2 && acl->aclnnTransMatmulWeight && acl->aclnnMatmulWeightNz;
}

void ngd_ascend_nz_init(struct ascend_device *dev, bool wanted)
{
    ngd_mutex_init(&dev->nz.lock, NGD_RANK_LAYOUTS);
    ngd_list_init(&dev->nz.copies);
    ngd_list_init(&dev->nz.writers);
    atomic_init(&dev->nz.epoch, 1);
    dev->nz.wanted = wanted;
    dev->nz.on = wanted && has_all(dev->acl);
}

void ngd_ascend_nz_fini(struct ascend_device *dev)
{
    ngd_mutex_fini(&dev->nz.lock);
}

void ngd_ascend_nz_count(void *dev_v, const struct ngd_backend_counter *counter)
{
    struct ascend_device *dev = dev_v;

    dev->nz.counter = *counter;
}

void ngd_ascend_nz_describe(struct ascend_device *dev, struct ngd_strbuf *sb)
{
    uint32_t n = 0;

    if (!dev->nz.on) {
        ngd_strbuf_printf(sb, "weights in NZ: none, %s\n",
                          dev->nz.wanted ? "this version of CANN lacks a function for them" : "nz-weights is off");
        return;
    }
    ngd_mutex_lock(&dev->nz.lock);
    ngd_list_for_each (pos, &dev->nz.copies)
        n++;
    ngd_strbuf_printf(sb,
                      "weights in NZ: %u, %" PRIu64 " KiB; made %" PRIu64 ", outdated %" PRIu64 "; left in ND: %" PRIu64
                      " for want of memory, %" PRIu64 " refused by CANN, %" PRIu64 " written by graphs, %" PRIu64
                      " after errors\n",
                      (unsigned)n, dev->nz.bytes >> 10, dev->nz.made, dev->nz.outdated, dev->nz.left[ASCEND_ND_MEMORY],
                      dev->nz.left[ASCEND_ND_REFUSED], dev->nz.left[ASCEND_ND_WRITTEN], dev->nz.left[ASCEND_ND_FAILED]);
    ngd_mutex_unlock(&dev->nz.lock);
}
