/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See nd.h. Two neighbouring dimensions are merged if, for every operand, a step of the outer one equals the extent of
 * the inner one. Dimensions of size 1 vanish. A broadcast dimension has step 0, so it only merges with a broadcast
 * neighbour, as a run function needs it.
 */
#include "devices/host/kernels/nd.h"

/* Gathered runs are short, so that they stay in the first-level cache and the stack frame is small. */
#define CHUNK 128

static int64_t op_step(const struct ngd_plan_tensor *op, uint32_t size, const struct ngd_plan_tensor *shape, uint32_t d)
{
    uint32_t missing = shape->rank - op->rank;

    if (d < missing || (op->dims[d - missing] == 1 && shape->dims[d] != 1))
        return 0;
    return op->strides[d - missing] * (int64_t)size;
}

static bool mergeable(const struct ngd_nd *nd, const int64_t *steps, int64_t dim)
{
    for (uint32_t o = 0; o < nd->n_ops; o++)
        if (nd->step[o][nd->rank - 1] != steps[o] * dim)
            return false;
    return true;
}

static void add_nd_dim(struct ngd_nd *nd, const int64_t *steps, int64_t dim)
{
    if (nd->rank && mergeable(nd, steps, dim)) {
        nd->dims[nd->rank - 1] *= dim;
    } else {
        nd->dims[nd->rank++] = dim;
    }
    for (uint32_t o = 0; o < nd->n_ops; o++)
        nd->step[o][nd->rank - 1] = steps[o];
}

void ngd_nd_init(struct ngd_nd *nd, const struct ngd_plan_tensor *shape, uint32_t hold,
                 const struct ngd_plan_tensor *const *ops, uint32_t n, uint32_t bcast)
{
    uint32_t rank = shape->rank - hold;

    memset(nd, 0, sizeof(*nd));
    nd->n_ops = n;
    nd->total = 1;
    for (uint32_t o = 0; o < n; o++)
        nd->size[o] = (uint32_t)ngd_dtype_bytes(ops[o]->dtype);
    for (uint32_t d = 0; d < rank; d++) {
        int64_t steps[NGD_ND_MAX_OPS] = {0};

        nd->total *= shape->dims[d];
        for (uint32_t o = 0; o < n; o++)
            steps[o] = op_step(ops[o], nd->size[o], shape, d);
        if (shape->dims[d] != 1)
            add_nd_dim(nd, steps, shape->dims[d]);
    }
    nd->inner = rank && shape->dims[0] ? nd->total / shape->dims[0] : nd->total;
    if (nd->rank == 0) {
        nd->rank = 1;
        nd->dims[0] = 1;
        for (uint32_t o = 0; o < n; o++)
            nd->step[o][0] = nd->size[o];
    }
    nd->plain = true;
    for (uint32_t o = 0; o < n; o++) {
        int64_t s = nd->step[o][nd->rank - 1];

        nd->plain = nd->plain && (s == nd->size[o] || (s == 0 && (bcast >> o & 1)));
    }
    nd->direct = nd->plain && nd->rank == 1;
}

static void set_run(struct ngd_nd_it *it)
{
    uint32_t last = it->nd->rank - 1;
    int64_t room = it->nd->dims[last] - it->index[last];

    it->run = room < it->left ? room : it->left;
}

void ngd_nd_start(struct ngd_nd_it *it, const struct ngd_nd *nd, char *const *ptrs, int64_t begin, int64_t end)
{
    int64_t rest = begin;

    it->nd = nd;
    it->left = end > begin ? end - begin : 0;
    for (uint32_t o = 0; o < nd->n_ops; o++)
        it->p[o] = ptrs[o];
    for (uint32_t d = nd->rank; d-- > 0;) {
        it->index[d] = rest && nd->dims[d] ? rest % nd->dims[d] : 0;
        rest = rest && nd->dims[d] ? rest / nd->dims[d] : 0;
        for (uint32_t o = 0; o < nd->n_ops; o++)
            it->p[o] += it->index[d] * nd->step[o][d];
    }
    set_run(it);
}

void ngd_nd_next(struct ngd_nd_it *it)
{
    const struct ngd_nd *nd = it->nd;
    uint32_t d = nd->rank - 1;
    int64_t by = it->run;

    it->left -= it->run;
    for (;;) {
        it->index[d] += by;
        for (uint32_t o = 0; o < nd->n_ops; o++)
            it->p[o] += by * nd->step[o][d];
        if (it->index[d] < nd->dims[d] || d == 0)
            break;
        for (uint32_t o = 0; o < nd->n_ops; o++)
            it->p[o] -= it->index[d] * nd->step[o][d];
        it->index[d] = 0;
        by = 1;
        d--;
    }
    set_run(it);
}

/* Element moves go through memcpy: operands of every type share these loops. */
#define MOVE(bytes)                 \
    for (int64_t i = 0; i < n; i++) \
    memcpy(dst + i * dst_step, src + i * src_step, (bytes))

static void move_run(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t n, uint32_t size)
{
    if (dst_step == (int64_t)size && src_step == (int64_t)size) {
        if (dst != src) /* they are equal for a copy in place */
            memcpy(dst, src, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1:
        MOVE(1);
        break;
    case 2:
        MOVE(2);
        break;
    case 4:
        MOVE(4);
        break;
    default:
        MOVE(8);
        break;
    }
}

void ngd_nd_copy(const struct ngd_nd *nd, char *const *ptrs, int64_t begin, int64_t end)
{
    struct ngd_nd_it it;
    uint32_t last = nd->rank - 1;

    for (ngd_nd_start(&it, nd, ptrs, begin, end); it.run; ngd_nd_next(&it))
        move_run(it.p[1], nd->step[1][last], it.p[0], nd->step[0][last], it.run, nd->size[0]);
}

/* Handles a run whose operands are not all plain, piece by piece through buffers. */
static void staged_run(const struct ngd_nd_it *it, ngd_nd_fn fn, const void *arg)
{
    const struct ngd_nd *nd = it->nd;
    const uint32_t last = nd->rank - 1, dst = nd->n_ops - 1;
    _Alignas(64) char buf[NGD_ND_MAX_OPS][CHUNK * 8];
    int64_t step[NGD_ND_MAX_OPS], n;
    char *p[NGD_ND_MAX_OPS];

    for (int64_t at = 0; at < it->run; at += n) {
        n = it->run - at < CHUNK ? it->run - at : CHUNK;
        for (uint32_t o = 0; o < nd->n_ops; o++) {
            bool staged = nd->step[o][last] != (int64_t)nd->size[o];

            p[o] = staged ? buf[o] : it->p[o] + at * nd->step[o][last];
            step[o] = nd->size[o];
            if (staged && o != dst)
                move_run(buf[o], step[o], it->p[o] + at * nd->step[o][last], nd->step[o][last], n, nd->size[o]);
        }
        fn(p, step, n, arg);
        if (p[dst] == buf[dst])
            move_run(it->p[dst] + at * nd->step[dst][last], nd->step[dst][last], buf[dst], step[dst], n, nd->size[dst]);
    }
}

void ngd_nd_apply(const struct ngd_nd *nd, char *const *ptrs, int64_t begin, int64_t end, ngd_nd_fn fn, const void *arg)
{
    const uint32_t last = nd->rank - 1;
    int64_t step[NGD_ND_MAX_OPS];
    struct ngd_nd_it it;

    for (uint32_t o = 0; o < nd->n_ops; o++)
        step[o] = nd->step[o][last];
    if (nd->direct) {
        char *p[NGD_ND_MAX_OPS];

        for (uint32_t o = 0; o < nd->n_ops; o++)
            p[o] = ptrs[o] + begin * step[o];
        fn(p, step, end - begin, arg);
        return;
    }
    for (ngd_nd_start(&it, nd, ptrs, begin, end); it.run; ngd_nd_next(&it)) {
        if (nd->plain)
            fn(it.p, step, it.run, arg);
        else
            staged_run(&it, fn, arg);
    }
}

struct ngd_plan_tensor ngd_tensor_dims(const struct ngd_plan_tensor *t, uint32_t set, bool in)
{
    struct ngd_plan_tensor some = {.dtype = t->dtype};

    for (uint32_t d = 0; d < t->rank; d++) {
        if ((set >> d & 1) != in)
            continue;
        some.dims[some.rank] = t->dims[d];
        some.strides[some.rank++] = t->strides[d];
    }
    return some;
}

ngd_status_t ngd_select_strided(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)plan;
    (void)call;
    (void)threads;
    (void)diag;
    *strided_p = UINT32_MAX;
    *workspace_p = 0;
    return NGD_OK;
}

ngd_status_t ngd_select_contiguous(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                   uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)plan;
    (void)call;
    (void)threads;
    (void)diag;
    *strided_p = 0;
    *workspace_p = 0;
    return NGD_OK;
}
