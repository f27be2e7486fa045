/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aten.topk along one dimension of a tensor with any strides. The result is always sorted; ties go to the lower index;
 * NaN counts as larger than everything, as in PyTorch. npu.moe_gating_top_k_softmax is the same of a row's softmax,
 * which each part keeps in its workspace.
 *
 * A heap holds the best k elements so far, with the worst of them on top. Most elements of a long line lose against it,
 * and for contiguous floats a vector scan skips them. Since indices grow, an equal element loses too.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_reduce.h"
#include "devices/host/kernels/k_softmax.h"
#include "devices/host/kernels/nd.h"
#include "devices/host/kernels/typed.h"

/* Elements are compared by an integer key that has the same order; for the smallest elements the order is reversed. */
struct entry {
    int64_t key, index;
};

typedef int64_t (*key_fn)(const char *p);

struct topk_params {
    struct ngd_nd lines; /* walks the first elements of lines of x, the values and the indices */
    int64_t n, k, x_step, value_step, index_step;
    uint32_t size, index_size;
    int64_t flip; /* 0; -1 if the smallest are wanted */
    key_fn key;
    ngd_beyond_fn beyond; /* for contiguous floats, else NULL */
    float (*get)(const char *p);
    ngd_softmax_fn softmax; /* of a line, before; else NULL */
    uint64_t part_bytes;    /* of the workspace: the heap, then the softmax */
};

/* Converts sign and magnitude to two's complement, so that -0 equals 0. NaN of either sign is the largest. */
static int64_t float_key(float f)
{
    int32_t bits;

    if (f != f)
        return INT64_MAX;
    memcpy(&bits, &f, 4);
    return bits < 0 ? -(int64_t)(bits & 0x7fffffff) : bits;
}

#define FLOAT_KEY(T, wide)                                        \
    static float topk_get_##T(const char *p)                      \
    {                                                             \
        return ngd_get_##T(*(const ngd_el_##T *)(const void *)p); \
    }                                                             \
    static int64_t topk_key_##T(const char *p)                    \
    {                                                             \
        return float_key(topk_get_##T(p));                        \
    }
#define INT_KEY(T, wide)                                          \
    static int64_t topk_key_##T(const char *p)                    \
    {                                                             \
        return ngd_get_##T(*(const ngd_el_##T *)(const void *)p); \
    }
NGD_EACH_FLOAT(FLOAT_KEY)
NGD_EACH_INT(INT_KEY)
static const key_fn keys[NGD_DTYPE_MAX] = NGD_BY_TYPE(topk_key);
static float (*const gets[])(const char *) = {topk_get_f32, topk_get_f16, topk_get_bf16};

/* Returns true if a comes after b in the result. */
static inline bool worse(struct entry a, struct entry b)
{
    return a.key != b.key ? a.key < b.key : a.index > b.index;
}

static void sift_down(struct entry *heap, int64_t n, int64_t at)
{
    struct entry e = heap[at];

    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && worse(heap[child + 1], heap[child]))
            child++;
        if (!worse(heap[child], e))
            break;
        heap[at] = heap[child];
    }
    heap[at] = e;
}

/* Finds the next element that may be better than the worst of the heap. */
static int64_t next_candidate(const struct topk_params *t, const char *x, int64_t i, const struct entry *heap)
{
    float limit;

    if (!t->beyond)
        return i;
    limit = t->get(x + heap[0].index * t->x_step);
    return limit == limit ? t->beyond(x, i, t->n, limit) : i;
}

static void one_line(const struct topk_params *t, const char *x, char *values, char *indices, struct entry *heap)
{
    const int64_t k = t->k;

    for (int64_t i = 0; i < k; i++)
        heap[i] = (struct entry){t->key(x + i * t->x_step) ^ t->flip, i};
    for (int64_t i = k / 2; i-- > 0;)
        sift_down(heap, k, i);
    for (int64_t i = next_candidate(t, x, k, heap); i < t->n; i = next_candidate(t, x, i + 1, heap)) {
        struct entry e = {t->key(x + i * t->x_step) ^ t->flip, i};

        if (worse(heap[0], e)) {
            heap[0] = e;
            sift_down(heap, k, 0);
        }
    }
    for (int64_t i = k; i-- > 0;) {
        struct entry e = heap[0];

        heap[0] = heap[i];
        sift_down(heap, i, 0);
        memcpy(values + i * t->value_step, x + e.index * t->x_step, t->size);
        memcpy(indices + i * t->index_step, &e.index, t->index_size); /* little-endian */
    }
}

static uint64_t heap_bytes(int64_t k)
{
    return ((uint64_t)k * sizeof(struct entry) + 63) & ~(uint64_t)63;
}

/* The line at x, or its softmax in the workspace. */
static const char *line_of(const struct topk_params *t, const char *x, char *workspace)
{
    char *y = workspace + heap_bytes(t->k);

    if (!t->softmax)
        return x;
    t->softmax(x, y, t->n, false);
    return y;
}

static void run_topk_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct topk_params *t = call->params;
    const uint32_t last = t->lines.rank - 1;
    char *workspace = call->workspace + part * t->part_bytes;
    int64_t begin, end;
    struct ngd_nd_it it;

    if (!ngd_nd_part(call, run, t->lines.total, t->lines.inner, 1, part, parts, &begin, &end))
        return;
    for (ngd_nd_start(&it, &t->lines, call->ptrs, begin, end); it.run; ngd_nd_next(&it))
        for (int64_t i = 0; i < it.run; i++)
            one_line(t, line_of(t, it.p[0] + i * t->lines.step[0][last], workspace),
                     it.p[1] + i * t->lines.step[1][last], it.p[2] + i * t->lines.step[2][last], (void *)workspace);
}

static void set_lines(struct topk_params *t, const struct ngd_plan_tensor *const *ops, int64_t dim)
{
    struct ngd_plan_tensor lines[3];
    int64_t *const step[] = {&t->x_step, &t->value_step, &t->index_step};

    for (int i = 0; i < 3; i++) {
        lines[i] = *ops[i];
        lines[i].dims[dim] = 1;
        *step[i] = ops[i]->strides[dim] * (int64_t)ngd_dtype_bytes(ops[i]->dtype);
    }
    ngd_nd_init(&t->lines, &lines[0], 0, (const struct ngd_plan_tensor *[]){&lines[0], &lines[1], &lines[2]}, 3, 0);
}

static void nothing(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    (void)call;
    (void)run;
    (void)part;
    (void)parts;
}

/* n: elements of a softmax, or 0. */
static uint64_t part_bytes(int64_t k, int64_t n)
{
    return heap_bytes(k) + (((uint64_t)n * sizeof(float) + 63) & ~(uint64_t)63);
}

static ngd_status_t prepare_lines(struct ngd_host_prepare *p, int64_t dim, bool largest, ngd_softmax_fn softmax)
{
    const struct ngd_plan_tensor *x = ngd_call_in(p->plan, p->call, 0);
    const struct ngd_plan_tensor *ops[] = {x, ngd_call_out(p->plan, p->call, 0), ngd_call_out(p->plan, p->call, 1)};
    const struct ngd_reduce_table *table = NGD_BY_ISA(p->isa, ngd_reduce);
    struct topk_params *t = ngd_arena_calloc(p->arena, 1, sizeof(*t));

    if (!t)
        return NGD_ERR_NO_MEMORY;
    dim += dim < 0 ? x->rank : 0;
    set_lines(t, ops, dim);
    t->n = x->dims[dim];
    t->k = ops[1]->dims[dim];
    t->size = (uint32_t)ngd_dtype_bytes(x->dtype);
    t->index_size = (uint32_t)ngd_dtype_bytes(ops[2]->dtype);
    t->flip = largest ? 0 : -1;
    t->key = keys[x->dtype];
    t->softmax = softmax;
    t->part_bytes = part_bytes(t->k, softmax ? t->n : 0);
    if (softmax)
        t->x_step = t->size;
    if (ngd_dtype_is_float(x->dtype) && t->x_step == t->size) {
        t->beyond = largest ? table->above[x->dtype] : table->below[x->dtype];
        t->get = gets[x->dtype];
    }
    p->fn = t->k ? run_topk_part : nothing;
    p->few_parts = true;
    p->params = t;
    p->cost_ns = 20 + (double)t->lines.total * (30 + (double)t->k * 30 + (double)t->n * (t->beyond ? 0.3 : 3) +
                                                (double)(softmax ? t->n : 0) * (p->isa == NGD_ISA_SCALAR ? 10 : 1));
    return NGD_OK;
}

static ngd_status_t prepare_topk(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    (void)diag;
    return prepare_lines(p, ngd_call_int(p->call, "dim"), ngd_call_int(p->call, "largest") != 0, NULL);
}

static ngd_status_t prepare_gating(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const ngd_dtype_t dtype = ngd_call_in(p->plan, p->call, 0)->dtype;

    (void)diag;
    return prepare_lines(p, -1, true, NGD_BY_ISA(p->isa, ngd_softmax)->line[dtype][dtype]);
}

static ngd_status_t select_topk(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)plan;
    (void)diag;
    *strided_p = 1;
    *workspace_p = ngd_host_max_parts(threads) * part_bytes(ngd_call_int(call, "k"), 0);
    return NGD_OK;
}

/* Only a line itself must be contiguous. */
static ngd_status_t select_gating(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *x = ngd_call_in(plan, call, 0);

    (void)diag;
    *strided_p = x->strides[x->rank - 1] == 1 || x->dims[x->rank - 1] == 1;
    *workspace_p = ngd_host_max_parts(threads) * part_bytes(ngd_call_int(call, "k"), x->dims[x->rank - 1]);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_topk = {.select = select_topk, .prepare = prepare_topk};
const struct ngd_host_kernel ngd_host_moe_gating = {.select = select_gating, .prepare = prepare_gating};
