/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies: aten.clone of a tensor with any strides, aten.cat, aten.stack, aten.repeat, aten.copy_.
 *
 * A run that is contiguous on both sides is one memcpy. A transposition (the source's unit step is in the dimension
 * before the last) would touch a cache line per element. It is done in tiles, so that all elements of a line are read
 * or written at once.
 */
#include "devices/host/kernels/k_copy.h"
#include "base/mem.h"
#include "devices/host/kernels/k_cast.h"
#include "devices/host/kernels/nd.h"

#define TILE_ROWS 32
#define TILE_COLS 16

/* ---- clone ---- */

struct clone_params {
    struct ngd_nd nd;
    int64_t grain;
};

static void run_clone(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct clone_params *c = call->params;
    int64_t begin, end;

    if (ngd_nd_part(call, run, c->nd.total, c->nd.inner, c->grain, part, parts, &begin, &end))
        ngd_nd_copy(&c->nd, call->ptrs, begin, end);
}

/*
 * Transposes rows 0..rows-1 of the last two dimensions; the source's step in the first of them is one element. Tiles
 * are transposed in a buffer: if they were written directly, rows a power of two apart would evict one another from the
 * cache.
 */
#define TRANSPOSE(bytes)                                                                                           \
    static void copy_transpose_##bytes(char *dst, int64_t dst_row, const char *src, int64_t src_col, int64_t rows, \
                                       int64_t cols)                                                               \
    {                                                                                                              \
        char tile[TILE_ROWS][TILE_COLS * bytes];                                                                   \
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {                                                            \
            const int64_t m = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;                                         \
            for (int64_t c = 0; c < cols; c += TILE_COLS) {                                                        \
                const int64_t n = cols - c < TILE_COLS ? cols - c : TILE_COLS;                                     \
                for (int64_t j = 0; j < n; j++)                                                                    \
                    for (int64_t i = 0; i < m; i++)                                                                \
                        memcpy(tile[i] + j * bytes, src + (c + j) * src_col + (r + i) * bytes, bytes);             \
                for (int64_t i = 0; i < m; i++)                                                                    \
                    memcpy(dst + (r + i) * dst_row + c * bytes, tile[i], (size_t)n * bytes);                       \
            }                                                                                                      \
        }                                                                                                          \
    }
TRANSPOSE(1)
TRANSPOSE(2)
TRANSPOSE(4)
TRANSPOSE(8)

static void run_transpose(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct clone_params *c = call->params;
    const struct ngd_nd *nd = &c->nd;
    const uint32_t col = nd->rank - 1, row = col - 1;
    const int64_t cols = nd->dims[col];
    int64_t begin, end, rows;
    struct ngd_nd_it it;

    if (!ngd_nd_part(call, run, nd->total, nd->inner, c->grain, part, parts, &begin, &end))
        return;
    for (; begin < end; begin += rows * cols) {
        ngd_nd_start(&it, nd, call->ptrs, begin, end);
        rows = nd->dims[row] - it.index[row];
        rows = rows < (end - begin) / cols ? rows : (end - begin) / cols;
        switch (nd->size[0]) {
        case 1:
            copy_transpose_1(it.p[1], nd->step[1][row], it.p[0], nd->step[0][col], rows, cols);
            break;
        case 2:
            copy_transpose_2(it.p[1], nd->step[1][row], it.p[0], nd->step[0][col], rows, cols);
            break;
        case 4:
            copy_transpose_4(it.p[1], nd->step[1][row], it.p[0], nd->step[0][col], rows, cols);
            break;
        default:
            copy_transpose_8(it.p[1], nd->step[1][row], it.p[0], nd->step[0][col], rows, cols);
            break;
        }
    }
}

static bool transposes(const struct ngd_nd *nd)
{
    uint32_t last = nd->rank - 1;

    return nd->rank >= 2 && nd->step[0][last - 1] == nd->size[0] && nd->step[0][last] != nd->size[0] &&
           nd->step[1][last] == nd->size[1] && nd->dims[last - 1] >= TILE_COLS && nd->dims[last] >= TILE_COLS;
}

static ngd_status_t prepare_clone(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *ops[] = {ngd_call_in(p->plan, p->call, 0), ngd_call_out(p->plan, p->call, 0)};
    struct clone_params *c = ngd_arena_alloc(p->arena, sizeof(*c));
    double runs;

    (void)diag;
    if (!c)
        return NGD_ERR_NO_MEMORY;
    ngd_nd_init(&c->nd, ops[1], 0, ops, 2, 0);
    runs = (double)c->nd.total / (double)(c->nd.dims[c->nd.rank - 1] + 1);
    p->params = c;
    if (transposes(&c->nd)) {
        p->fn = run_transpose;
        c->grain = c->nd.dims[c->nd.rank - 1]; /* parts begin at a row */
        p->cost_ns = 30 + (double)c->nd.total * (0.4 + 0.06 * c->nd.size[0]);
    } else {
        p->fn = run_clone;
        c->grain = 512;
        p->cost_ns = 15 + runs * 5 + (double)c->nd.total * (c->nd.plain ? 0.06 * c->nd.size[0] : 1.0);
    }
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_clone = {.select = ngd_select_strided, .prepare = prepare_clone};

/* ---- cat and stack: each operand is copied to its slice of the result ---- */

struct cat_params {
    uint32_t n;
    uint32_t result; /* index in ptrs */
    struct cat_part {
        struct ngd_nd nd;
        int64_t offset; /* of the slice, in bytes */
    } parts[];
};

static void run_cat_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct cat_params *c = call->params;
    int64_t begin, end;

    for (uint32_t i = 0; i < c->n; i++) {
        const struct cat_part *s = &c->parts[i];
        char *ptrs[] = {call->ptrs[i], call->ptrs[c->result] + s->offset};

        if (ngd_nd_part(call, run, s->nd.total, s->nd.inner, 512, part, parts, &begin, &end))
            ngd_nd_copy(&s->nd, ptrs, begin, end);
    }
}

/* Sets the strides of a slice, which lacks dimension `dim`, to those of the result's other dimensions. */
static void strides_without(const struct ngd_plan_tensor *out, int64_t dim, struct ngd_plan_tensor *slice)
{
    for (int64_t d = 0; d < slice->rank; d++)
        slice->strides[d] = out->strides[d + (d >= dim)];
}

static ngd_status_t prepare_cat(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *out = ngd_call_out(p->plan, p->call, 0);
    const bool stacks = out->rank > ngd_call_in(p->plan, p->call, 0)->rank; /* aten.stack */
    struct cat_params *c = ngd_arena_alloc(p->arena, sizeof(*c) + p->call->n_in * sizeof(c->parts[0]));
    int64_t dim = ngd_call_int(p->call, "dim"), at = 0;

    (void)diag;
    if (!c)
        return NGD_ERR_NO_MEMORY;
    dim += dim < 0 ? out->rank : 0;
    *c = (struct cat_params){.n = p->call->n_in, .result = p->call->n_in};
    p->cost_ns = 15;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct ngd_plan_tensor *in = ngd_call_in(p->plan, p->call, i);
        struct ngd_plan_tensor slice = *in;
        const struct ngd_plan_tensor *ops[] = {in, &slice};

        strides_without(out, stacks ? dim : out->rank, &slice);
        ngd_nd_init(&c->parts[i].nd, in, 0, ops, 2, 0);
        c->parts[i].offset = at * out->strides[dim] * (int64_t)ngd_dtype_bytes(out->dtype);
        at += stacks ? 1 : in->dims[dim];
        p->cost_ns += 10 + (double)c->parts[i].nd.total * 0.06 * c->parts[i].nd.size[0];
    }
    p->fn = run_cat_part;
    p->params = c;
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_cat = {.select = ngd_select_strided, .prepare = prepare_cat};

/* ---- repeat ---- */

struct repeat_params {
    struct ngd_nd nd;
    int64_t row; /* elements of one index of the result's dimension 0 */
};

static void run_repeat_part(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct repeat_params *r = call->params;
    int64_t begin, end;

    if (ngd_nd_part(call, run, r->nd.total, r->row, 512, part, parts, &begin, &end))
        ngd_nd_copy(&r->nd, call->ptrs, begin, end);
}

/*
 * Splits each repeated dimension of operand and result into two: which repetition, where x has a stride of 0, and which
 * element. Returns false if that gives too many dimensions.
 */
static bool split_repeats(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_plan_tensor *x,
                          struct ngd_plan_tensor *y)
{
    const struct ngd_plan_tensor *in = ngd_call_in(plan, call, 0), *out = ngd_call_out(plan, call, 0);
    const struct ngd_attr_value *repeats = ngd_call_ints(call, "repeats");
    uint32_t rank = 0;

    *x = (struct ngd_plan_tensor){.dtype = in->dtype};
    *y = (struct ngd_plan_tensor){.dtype = in->dtype};
    for (uint32_t i = 0; i < repeats->n; i++) {
        const uint32_t added = repeats->n - in->rank;
        const int64_t times = repeats->list[i], n = i < added ? 1 : in->dims[i - added];

        for (int which = 0; which < 2; which++) {
            if ((which ? n : times) == 1)
                continue;
            if (rank == NGD_MAX_RANK)
                return false;
            x->dims[rank] = y->dims[rank] = which ? n : times;
            x->strides[rank] = which ? in->strides[i - added] : 0;
            y->strides[rank++] = out->strides[i] * (which ? 1 : n);
        }
    }
    x->rank = y->rank = (uint8_t)rank;
    return true;
}

static ngd_status_t select_repeat(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    struct ngd_plan_tensor x, y;

    (void)threads;
    *strided_p = 1;
    *workspace_p = 0;
    return split_repeats(plan, call, &x, &y)
               ? NGD_OK
               : ngd_diag_set(
                     diag, NGD_ERR_OP_UNSUPPORTED,
                     "device host: %s repeats too many dimensions at once; repeat some of them in an earlier node",
                     call->op->name);
}

static ngd_status_t prepare_repeat(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *out = ngd_call_out(p->plan, p->call, 0);
    struct repeat_params *r = ngd_arena_alloc(p->arena, sizeof(*r));
    struct ngd_plan_tensor x, y;

    (void)diag;
    if (!r || !split_repeats(p->plan, p->call, &x, &y))
        return NGD_ERR_NO_MEMORY;
    ngd_nd_init(&r->nd, &y, 0, (const struct ngd_plan_tensor *[]){&x, &y}, 2, 0);
    r->row = out->rank && out->dims[0] ? r->nd.total / out->dims[0] : r->nd.total;
    p->fn = run_repeat_part;
    p->params = r;
    p->cost_ns = 20 + (double)r->nd.total * 0.3 * r->nd.size[0];
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_repeat = {.select = select_repeat, .prepare = prepare_repeat};

/* ---- copy_: into a state or a view of one, with a cast ---- */

/* The plan makes sure that the source does not overlap the destination. */
struct put_params {
    struct ngd_nd nd; /* source, destination */
    ngd_nd_fn cast;   /* NULL: same type */
};

static void run_put(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct put_params *u = call->params;
    char *ptrs[] = {call->ptrs[1], call->ptrs[0]};
    int64_t begin, end;

    if (!ngd_nd_part(call, run, u->nd.total, u->nd.inner, 512, part, parts, &begin, &end))
        return;
    if (u->cast)
        ngd_nd_apply(&u->nd, ptrs, begin, end, u->cast, NULL);
    else
        ngd_nd_copy(&u->nd, ptrs, begin, end);
}

static ngd_status_t prepare_put(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *dst = ngd_call_in(p->plan, p->call, 0), *src = ngd_call_in(p->plan, p->call, 1);
    struct put_params *u = ngd_arena_alloc(p->arena, sizeof(*u));

    (void)diag;
    if (!u)
        return NGD_ERR_NO_MEMORY;
    u->cast = ngd_cast_fn(src->dtype, dst->dtype, p->isa);
    ngd_nd_init(&u->nd, dst, 0, (const struct ngd_plan_tensor *[]){src, dst}, 2, 0);
    p->fn = run_put;
    p->params = u;
    p->cost_ns = 20 + (double)u->nd.total * (u->cast || !u->nd.plain ? 1.0 : 0.06 * u->nd.size[0]);
    return NGD_OK;
}

const struct ngd_host_kernel ngd_host_copy_into = {.select = ngd_select_strided, .prepare = prepare_put};
