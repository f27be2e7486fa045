/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that plans of random graphs compute what the graphs say.
 *
 * Two interpreters run the same made-up arithmetic (a hash of the operands, so that any wrong, stale or overwritten
 * element shows in the outputs). One runs the graph: a value is a list of elements of some base array, and views
 * reorder lists. The other runs the plan in a pool full of garbage: it addresses memory by offset and strides,
 * writes elementwise results one by one, and spoils results and workspace of other calls before reading their
 * operands. Outputs and states must agree.
 */
#include "tests/unit/plan_util.h"
#include <stdio.h>

#define MAX_VALUES   160
#define MAX_ELEMENTS 4096

static uint64_t rng_state;

static uint64_t rng(uint64_t n)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (rng_state >> 11) % n;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static uint64_t cut(uint64_t v, ngd_dtype_t dtype)
{
    size_t bytes = ngd_dtype_bytes(dtype);

    return bytes == 8 ? v : v & ((UINT64_C(1) << (8 * bytes)) - 1);
}

static uint64_t first_data(uint32_t value, int64_t i, ngd_dtype_t dtype)
{
    return cut(mix(mix(12345, value), (uint64_t)i), dtype);
}

/* Returns the element of a (broadcast) operand that belongs to element i of the result. */
static int64_t broadcast_index(const int64_t *dims, uint32_t rank, const int64_t *out_dims, uint32_t out_rank,
                               int64_t i)
{
    int64_t index = 0, step = 1;

    for (uint32_t k = 1; k <= out_rank; k++) {
        int64_t at = i % out_dims[out_rank - k];

        i /= out_dims[out_rank - k];
        if (k > rank)
            continue;
        index += (dims[rank - k] == 1 ? 0 : at) * step;
        step *= dims[rank - k];
    }
    return index;
}

/* ---- the graph ---- */

struct ref_value {
    uint32_t base; /* index of the value that owns the cells */
    uint32_t rank;
    ngd_dtype_t dtype;
    int64_t dims[NGD_MAX_RANK], n;
    int32_t *at; /* cells of the base, by element */
};

struct ref {
    const struct ngd_graph *g;
    struct ref_value v[MAX_VALUES];
    uint64_t *cells[MAX_VALUES];
};

static void ref_shape(struct ref *r, uint32_t value)
{
    const struct ngd_type *t = &r->g->values[value].type;
    struct ref_value *v = &r->v[value];

    v->rank = t->rank;
    v->dtype = t->dtype;
    v->n = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        v->dims[i] = t->dims[i];
        v->n *= t->dims[i];
    }
    ck_assert_int_le(v->n, MAX_ELEMENTS);
    v->at = ngd_calloc((size_t)v->n, sizeof(*v->at));
    ck_assert_ptr_nonnull(v->at);
}

static void ref_own(struct ref *r, uint32_t value)
{
    ref_shape(r, value);
    r->v[value].base = value;
    r->cells[value] = ngd_calloc((size_t)r->v[value].n, sizeof(uint64_t));
    ck_assert_ptr_nonnull(r->cells[value]);
    for (int64_t i = 0; i < r->v[value].n; i++) {
        r->v[value].at[i] = (int32_t)i;
        r->cells[value][i] = first_data(value, i, r->v[value].dtype);
    }
}

static uint64_t *ref_cell(struct ref *r, uint32_t value, int64_t i)
{
    return &r->cells[r->v[value].base][r->v[value].at[i]];
}

static int64_t attr_int(const struct ngd_node *n, const char *name)
{
    return n->attrs[ngd_op_attr_index(n->op, name, strlen(name))].i;
}

static const struct ngd_attr_value *attr_ints(const struct ngd_node *n, const char *name)
{
    return &n->attrs[ngd_op_attr_index(n->op, name, strlen(name))];
}

static uint32_t wrap(int64_t axis, uint32_t rank)
{
    return (uint32_t)(axis < 0 ? axis + rank : axis);
}

/* Returns the index in x of the element of y (result `result`) at coordinates c. */
static int64_t view_source(const struct ngd_node *n, uint32_t result, const struct ref_value *x,
                           const struct ref_value *y, const int64_t *c)
{
    int64_t s[NGD_MAX_RANK] = {0}, index = 0;
    uint32_t axis, k;

    for (uint32_t i = 0; i < x->rank; i++) /* the same coordinates, unless the operator says otherwise */
        s[i] = i < y->rank ? c[i] : 0;
    switch ((int)n->op->id) {
    case NGD_OP_ATEN_PERMUTE:
        for (uint32_t i = 0; i < y->rank; i++)
            s[wrap(attr_ints(n, "dims")->list[i], x->rank)] = c[i];
        break;
    case NGD_OP_ATEN_TRANSPOSE_INT:
        s[wrap(attr_int(n, "dim0"), x->rank)] = c[wrap(attr_int(n, "dim1"), x->rank)];
        s[wrap(attr_int(n, "dim1"), x->rank)] = c[wrap(attr_int(n, "dim0"), x->rank)];
        break;
    case NGD_OP_ATEN_T:
        if (x->rank == 2) {
            s[0] = c[1];
            s[1] = c[0];
        }
        break;
    case NGD_OP_ATEN_EXPAND:
        for (uint32_t i = 0; i < x->rank; i++)
            s[i] = x->dims[i] == 1 ? 0 : c[i + y->rank - x->rank];
        break;
    case NGD_OP_ATEN_UNSQUEEZE:
        axis = wrap(attr_int(n, "dim"), y->rank);
        for (uint32_t i = 0; i < x->rank; i++)
            s[i] = c[i < axis ? i : i + 1];
        break;
    case NGD_OP_ATEN_SQUEEZE_DIM:
    case NGD_OP_ATEN_SELECT_INT:
        if (x->rank == y->rank)
            break;
        axis = wrap(attr_int(n, "dim"), x->rank);
        for (uint32_t i = k = 0; i < x->rank; i++)
            s[i] = i == axis ? 0 : c[k++];
        if (n->op->id == NGD_OP_ATEN_SELECT_INT)
            s[axis] = (attr_int(n, "index") + x->dims[axis]) % x->dims[axis];
        break;
    case NGD_OP_ATEN_SLICE_TENSOR:
        axis = wrap(attr_int(n, "dim"), x->rank);
        s[axis] = attr_int(n, "start") + c[axis] * attr_int(n, "step");
        break;
    case NGD_OP_ATEN_SPLIT_WITH_SIZES:
        axis = wrap(attr_int(n, "dim"), x->rank);
        for (uint32_t i = 0; i < result; i++)
            s[axis] += attr_ints(n, "split_sizes")->list[i];
        break;
    default:
        ck_abort_msg("no reference for %s", n->op->name);
    }
    for (uint32_t i = 0; i < x->rank; i++)
        index = index * x->dims[i] + s[i];
    return index;
}

static void ref_view(struct ref *r, const struct ngd_node *n)
{
    const struct ref_value *x = &r->v[n->in[0]];

    for (uint32_t k = 0; k < n->n_out; k++) {
        struct ref_value *y = &r->v[n->out[k]];

        ref_shape(r, n->out[k]);
        y->base = x->base;
        for (int64_t i = 0; i < y->n; i++) {
            int64_t c[NGD_MAX_RANK], rest = i;

            if (n->op->id == NGD_OP_ATEN_VIEW || n->op->id == NGD_OP_ATEN_RESHAPE) {
                y->at[i] = x->at[i];
                continue;
            }
            for (uint32_t d = y->rank; d-- > 0; rest /= y->dims[d])
                c[d] = rest % y->dims[d];
            y->at[i] = x->at[view_source(n, k, x, y, c)];
        }
    }
}

static void ref_node(struct ref *r, uint32_t node)
{
    const struct ngd_node *n = &r->g->nodes[node];
    uint64_t fold = node;

    if (n->op->flags & NGD_OPF_VIEW) {
        ref_view(r, n);
        return;
    }
    if (n->op->id == NGD_OP_ATEN_COPY_) {
        uint64_t *tmp = ngd_calloc((size_t)r->v[n->in[1]].n, sizeof(*tmp));

        for (int64_t i = 0; i < r->v[n->in[1]].n; i++)
            tmp[i] = *ref_cell(r, n->in[1], i);
        for (int64_t i = 0; i < r->v[n->in[0]].n; i++)
            *ref_cell(r, n->in[0], i) = cut(tmp[i], r->v[n->in[0]].dtype);
        ngd_free(tmp);
        return;
    }
    for (uint32_t k = 0; k < n->n_out; k++)
        ref_own(r, n->out[k]);
    for (uint32_t k = 0; k < n->n_in; k++)
        for (int64_t i = 0; i < r->v[n->in[k]].n; i++)
            fold = mix(fold, *ref_cell(r, n->in[k], i));
    for (uint32_t k = 0; k < n->n_out; k++) {
        struct ref_value *y = &r->v[n->out[k]];

        for (int64_t i = 0; i < y->n; i++) {
            uint64_t h = node;

            for (uint32_t o = 0; o < n->n_in && (n->op->flags & NGD_OPF_ELEMENTWISE); o++) {
                const struct ref_value *x = &r->v[n->in[o]];

                h = mix(h, *ref_cell(r, n->in[o], broadcast_index(x->dims, x->rank, y->dims, y->rank, i)));
            }
            if (!(n->op->flags & NGD_OPF_ELEMENTWISE))
                h = mix(mix(fold, k), (uint64_t)i);
            if (n->op->id == NGD_OP_ATEN_CLONE)
                h = *ref_cell(r, n->in[0], i);
            r->cells[n->out[k]][i] = cut(h, y->dtype);
        }
    }
}

static void ref_run(struct ref *r, const struct ngd_graph *g)
{
    memset(r, 0, sizeof(*r));
    r->g = g;
    ck_assert_uint_le(g->n_values, MAX_VALUES);
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].cls != NGD_VALUE_NODE)
            ref_own(r, i);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        ref_node(r, i);
}

static void ref_fini(struct ref *r)
{
    for (uint32_t i = 0; i < r->g->n_values; i++) {
        ngd_free(r->v[i].at);
        ngd_free(r->cells[i]);
    }
}

/* ---- the plan ---- */

struct sim {
    const struct ngd_plan *p;
    uint8_t *pool;
    uint8_t **bound;
};

static uint8_t *sim_at(const struct sim *s, const struct ngd_plan_tensor *t, int64_t i)
{
    uint8_t *base = t->space == NGD_SPACE_POOL ? s->pool : s->bound[t->bound];
    int64_t at = 0;

    for (uint32_t d = t->rank; d-- > 0; i /= t->dims[d])
        at += i % t->dims[d] * t->strides[d];
    return base + t->offset + at * (int64_t)ngd_dtype_bytes(t->dtype);
}

static uint64_t sim_get(const struct sim *s, const struct ngd_plan_tensor *t, int64_t i)
{
    uint64_t v = 0;

    memcpy(&v, sim_at(s, t, i), ngd_dtype_bytes(t->dtype));
    return v;
}

static void sim_set(const struct sim *s, const struct ngd_plan_tensor *t, int64_t i, uint64_t v)
{
    memcpy(sim_at(s, t, i), &v, ngd_dtype_bytes(t->dtype));
}

static uint64_t sim_element(const struct sim *s, const struct ngd_plan_call *c, const struct ngd_plan_tensor *y,
                            int64_t i)
{
    uint64_t h = c->node;

    if (c->op->id == NGD_OP_ATEN_CLONE)
        return sim_get(s, &s->p->tensors[c->in[0]], i);
    for (uint32_t o = 0; o < c->n_in; o++) {
        const struct ngd_plan_tensor *x = &s->p->tensors[c->in[o]];

        h = mix(h, sim_get(s, x, broadcast_index(x->dims, x->rank, y->dims, y->rank, i)));
    }
    return h;
}

static void spoil(uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] = (uint8_t)rng(256);
}

static void sim_call(const struct sim *s, const struct ngd_plan_call *c)
{
    uint64_t fold = c->node;
    bool backwards = rng(2);

    if (c->workspace_bytes)
        spoil(s->pool + c->workspace_offset, c->workspace_bytes);
    if (c->op->id == NGD_OP_ATEN_COPY_ || (c->op->flags & NGD_OPF_ELEMENTWISE)) {
        bool copy = c->op->id == NGD_OP_ATEN_COPY_;
        const struct ngd_plan_tensor *y = &s->p->tensors[copy ? c->in[0] : c->out[0]];
        int64_t n = ngd_plan_elements(y);

        for (int64_t k = 0; k < n; k++) { /* element by element, in either direction */
            int64_t i = backwards ? n - 1 - k : k;

            sim_set(s, y, i, copy ? sim_get(s, &s->p->tensors[c->in[1]], i) : sim_element(s, c, y, i));
        }
        return;
    }
    for (uint32_t k = 0; k < c->n_out; k++)
        spoil(s->pool + s->p->tensors[c->out[k]].offset, s->p->tensors[c->out[k]].bytes);
    for (uint32_t k = 0; k < c->n_in; k++)
        for (int64_t i = 0; i < ngd_plan_elements(&s->p->tensors[c->in[k]]); i++)
            fold = mix(fold, sim_get(s, &s->p->tensors[c->in[k]], i));
    for (uint32_t k = 0; k < c->n_out; k++)
        for (int64_t i = 0; i < ngd_plan_elements(&s->p->tensors[c->out[k]]); i++)
            sim_set(s, &s->p->tensors[c->out[k]], i, mix(mix(fold, k), (uint64_t)i));
}

static void sim_load(const struct sim *s, uint32_t tensor, uint32_t value)
{
    const struct ngd_plan_tensor *t = &s->p->tensors[tensor];

    for (int64_t i = 0; i < ngd_plan_elements(t); i++)
        sim_set(s, t, i, first_data(value, i, t->dtype));
}

static void sim_run(struct sim *s, const struct ngd_plan *p)
{
    const struct ngd_graph *g = p->graph;
    uint32_t n_bound = g->n_params + g->n_states;

    s->p = p;
    s->pool = ngd_malloc(p->pool_bytes);
    s->bound = ngd_calloc(n_bound, sizeof(*s->bound));
    ck_assert(s->pool && s->bound);
    spoil(s->pool, p->pool_bytes);
    for (uint32_t i = 0; i < n_bound; i++) {
        s->bound[i] = ngd_malloc(p->bound[i].bytes);
        ck_assert_ptr_nonnull(s->bound[i]);
        sim_load(s, p->bound[i].tensor, i < g->n_params ? g->params[i] : g->states[i - g->n_params]);
    }
    for (uint32_t i = 0; i < g->n_inputs; i++)
        sim_load(s, p->inputs[i].tensor, g->inputs[i]);
    for (uint32_t i = 0; i < p->n_calls; i++)
        sim_call(s, &p->calls[i]);
}

static void sim_fini(struct sim *s)
{
    for (uint32_t i = 0; i < s->p->graph->n_params + s->p->graph->n_states; i++)
        ngd_free(s->bound[i]);
    ngd_free(s->bound);
    ngd_free(s->pool);
}

static void compare(const struct ngd_plan *p, struct ref *r, const struct sim *s, const char *what, const char *text)
{
    const struct ngd_graph *g = p->graph;

    for (uint32_t o = 0; o < g->n_outputs + g->n_states; o++) {
        uint32_t value = o < g->n_outputs ? g->outputs[o].value : g->states[o - g->n_outputs];
        uint32_t tensor = o < g->n_outputs ? p->outputs[o].tensor : p->bound[g->n_params + o - g->n_outputs].tensor;
        const struct ngd_plan_tensor *t = &p->tensors[tensor];

        for (int64_t i = 0; i < r->v[value].n; i++)
            if (sim_get(s, t, i) != *ref_cell(r, value, i))
                ck_abort_msg("%s: element %ld of %%%s differs in\n%s", what, (long)i, g->values[value].name, text);
    }
}

/* ---- random graphs ---- */

struct gen_value {
    uint32_t rank;
    int64_t dims[NGD_MAX_RANK];
    const char *dtype;
    bool of_state, writable; /* writable: a state, or a cut or reordering of one */
};

struct gen {
    struct ngd_strbuf sb;
    struct gen_value v[MAX_VALUES];
    uint32_t n, nodes;
};

static int64_t gen_elements(const struct gen_value *v)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

static struct gen_value *gen_add(struct gen *g, const struct gen_value *v)
{
    g->v[g->n] = *v;
    return &g->v[g->n++];
}

static void gen_type(struct gen *g, const struct gen_value *v)
{
    ngd_strbuf_printf(&g->sb, "%s[", v->dtype);
    for (uint32_t i = 0; i < v->rank; i++)
        ngd_strbuf_printf(&g->sb, "%s%ld", i ? "," : "", (long)v->dims[i]);
    ngd_strbuf_append(&g->sb, "]");
}

static void gen_list(struct gen *g, const char *name, const int64_t *v, uint32_t n)
{
    ngd_strbuf_printf(&g->sb, " {%s=[", name);
    for (uint32_t i = 0; i < n; i++)
        ngd_strbuf_printf(&g->sb, "%s%ld", i ? "," : "", (long)v[i]);
    ngd_strbuf_append(&g->sb, "]}\n");
}

static void gen_inputs(struct gen *g)
{
    static const char *const classes[] = {"input", "param", "state", "input", "state"};

    for (uint32_t i = 0; i < 5; i++) {
        struct gen_value v = {.rank = (uint32_t)rng(4) + 1, .dtype = "f32"};

        for (uint32_t d = 0; d < v.rank; d++)
            v.dims[d] = 1 + (int64_t)rng(5) - (rng(40) == 0);
        v.of_state = v.writable = classes[i][0] == 's';
        ngd_strbuf_printf(&g->sb, "  %s %%v%u : ", classes[i], g->n);
        gen_type(g, &v);
        ngd_strbuf_append(&g->sb, "\n");
        gen_add(g, &v);
    }
}

static uint32_t pick(struct gen *g)
{
    return rng(3) ? g->n - 1 - (uint32_t)rng(g->n < 6 ? g->n : 6) : (uint32_t)rng(g->n);
}

static void gen_unary(struct gen *g, uint32_t x)
{
    static const char *const ops[] = {"neg", "exp", "abs", "clone", "relu"};
    struct gen_value v = g->v[x];

    v.of_state = v.writable = false;
    if (rng(6) == 0) {
        v.dtype = strcmp(v.dtype, "f32") ? "f32" : "f16";
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten._to_copy(%%v%u) {dtype=%s}\n", g->n, x, v.dtype);
    } else {
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten.%s(%%v%u)\n", g->n, ops[rng(5)], x);
    }
    gen_add(g, &v);
}

static bool broadcasts(const struct gen_value *small, const struct gen_value *big)
{
    if (small->rank > big->rank || strcmp(small->dtype, big->dtype))
        return false;
    for (uint32_t k = 1; k <= small->rank; k++)
        if (small->dims[small->rank - k] != big->dims[big->rank - k] && small->dims[small->rank - k] != 1)
            return false;
    return true;
}

static void gen_binary(struct gen *g, uint32_t x)
{
    static const char *const ops[] = {"add", "mul"};

    for (int tries = 0; tries < 12; tries++) {
        uint32_t y = pick(g), a = x, b = y;
        struct gen_value v = g->v[x];

        if (!broadcasts(&g->v[y], &v))
            continue;
        if (rng(2)) {
            a = y;
            b = x;
        }
        v.of_state = v.writable = false;
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten.%s.Tensor(%%v%u, %%v%u)\n", g->n, ops[rng(2)], a, b);
        gen_add(g, &v);
        return;
    }
}

static void gen_mixing(struct gen *g, uint32_t x)
{
    struct gen_value v = g->v[x];
    uint32_t d = v.rank ? (uint32_t)rng(v.rank) : 0;

    v.of_state = v.writable = false;
    if (v.rank == 0)
        return;
    if (rng(2) || v.dims[d] < 1) {
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten._softmax(%%v%u) {dim=%u}\n", g->n, x, d);
        gen_add(g, &v);
        return;
    }
    ngd_strbuf_printf(&g->sb, "  %%v%u, %%v%u = aten.topk(%%v%u) {k=1, dim=%u}\n", g->n, g->n + 1, x, d);
    v.dims[d] = 1;
    gen_add(g, &v);
    v.dtype = "i64";
    gen_add(g, &v);
}

static void gen_reshape(struct gen *g, uint32_t x)
{
    struct gen_value v = g->v[x];
    int64_t n = gen_elements(&v);
    uint32_t rank = 0;

    /* Whether a reshaped view aliases its operand depends on strides, so only a whole state is reshaped. */
    if (n == 0 || (v.of_state && x >= 5))
        return;
    v.writable = false;
    while (n > 1 && rank < 4) {
        int64_t f = 2 + (int64_t)rng(5);

        if (n % f == 0 || rank == 3) {
            v.dims[rank] = rank == 3 ? n : f;
            n /= v.dims[rank++];
        } else if (rng(4) == 0) {
            v.dims[rank++] = 1;
        }
    }
    v.rank = rank;
    for (; n > 1; n = 1)
        v.dims[v.rank++] = n;
    ngd_strbuf_printf(&g->sb, "  %%v%u = aten.reshape(%%v%u)", g->n, x);
    gen_list(g, "shape", v.dims, v.rank);
    gen_add(g, &v);
}

static void gen_permute(struct gen *g, uint32_t x)
{
    struct gen_value v = g->v[x];
    int64_t order[NGD_MAX_RANK];

    for (uint32_t i = 0; i < v.rank; i++)
        order[i] = i;
    for (uint32_t i = v.rank; i > 1; i--) {
        uint32_t k = (uint32_t)rng(i);
        int64_t t = order[i - 1];

        order[i - 1] = order[k];
        order[k] = t;
    }
    for (uint32_t i = 0; i < v.rank; i++)
        v.dims[i] = g->v[x].dims[order[i]];
    ngd_strbuf_printf(&g->sb, "  %%v%u = aten.permute(%%v%u)", g->n, x);
    gen_list(g, "dims", order, v.rank);
    gen_add(g, &v);
}

static void gen_swap(struct gen *g, uint32_t x)
{
    struct gen_value v = g->v[x];
    uint32_t a, b;

    if (v.rank < 2)
        return;
    a = (uint32_t)rng(v.rank);
    b = (uint32_t)rng(v.rank);
    if (v.rank == 2 && rng(2)) {
        a = 0;
        b = 1;
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten.t(%%v%u)\n", g->n, x);
    } else {
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten.transpose.int(%%v%u) {dim0=%u, dim1=%u}\n", g->n, x, a, b);
    }
    v.dims[a] = g->v[x].dims[b];
    v.dims[b] = g->v[x].dims[a];
    gen_add(g, &v);
}

static void gen_expand(struct gen *g, uint32_t x)
{
    struct gen_value v = g->v[x];

    if (gen_elements(&v) > 200 || v.rank > 4)
        return;
    v.writable = false;
    for (uint32_t i = 0; i < v.rank; i++)
        if (v.dims[i] == 1)
            v.dims[i] = 1 + (int64_t)rng(3);
    if (rng(2)) {
        memmove(&v.dims[1], &v.dims[0], v.rank * sizeof(v.dims[0]));
        v.dims[0] = 1 + (int64_t)rng(3);
        v.rank++;
    }
    ngd_strbuf_printf(&g->sb, "  %%v%u = aten.expand(%%v%u)", g->n, x);
    gen_list(g, "size", v.dims, v.rank);
    gen_add(g, &v);
}

static void gen_cut(struct gen *g, uint32_t x)
{
    struct gen_value v = g->v[x];
    uint32_t d;
    int64_t size, start;

    if (v.rank == 0)
        return;
    d = (uint32_t)rng(v.rank);
    size = v.dims[d];
    start = size ? (int64_t)rng((uint64_t)size) : 0;
    if (size && rng(2)) {
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten.select.int(%%v%u) {dim=%u, index=%ld}\n", g->n, x, d,
                          (long)(rng(2) ? start : start - size));
        memmove(&v.dims[d], &v.dims[d + 1], (v.rank - d - 1) * sizeof(v.dims[0]));
        v.rank--;
    } else {
        int64_t step = 1 + (int64_t)rng(2);

        ngd_strbuf_printf(&g->sb, "  %%v%u = aten.slice.Tensor(%%v%u) {dim=%u, start=%ld, step=%ld}\n", g->n, x, d,
                          (long)start, (long)step);
        v.dims[d] = (size - start + step - 1) / step;
    }
    gen_add(g, &v);
}

static void gen_split(struct gen *g, uint32_t x)
{
    struct gen_value v = g->v[x];
    uint32_t d;
    int64_t first, rest;

    if (v.rank == 0)
        return;
    d = (uint32_t)rng(v.rank);
    first = (int64_t)rng((uint64_t)v.dims[d] + 1);
    rest = v.dims[d] - first;
    ngd_strbuf_printf(&g->sb, "  %%v%u, %%v%u = aten.split_with_sizes(%%v%u) {split_sizes=[%ld,%ld], dim=%u}\n", g->n,
                      g->n + 1, x, (long)first, (long)rest, d);
    v.dims[d] = first;
    gen_add(g, &v);
    v.dims[d] = rest;
    gen_add(g, &v);
}

static void gen_squeeze(struct gen *g, uint32_t x)
{
    struct gen_value v = g->v[x];
    uint32_t d = (uint32_t)rng(v.rank + 1);

    if (d < v.rank && v.dims[d] == 1) {
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten.squeeze.dim(%%v%u) {dim=%u}\n", g->n, x, d);
        memmove(&v.dims[d], &v.dims[d + 1], (v.rank - d - 1) * sizeof(v.dims[0]));
        v.rank--;
    } else if (v.rank < 5) {
        ngd_strbuf_printf(&g->sb, "  %%v%u = aten.unsqueeze(%%v%u) {dim=%u}\n", g->n, x, d);
        memmove(&v.dims[d + 1], &v.dims[d], (v.rank - d) * sizeof(v.dims[0]));
        v.dims[d] = 1;
        v.rank++;
    } else {
        return;
    }
    gen_add(g, &v);
}

static bool same_shape(const struct gen_value *a, const struct gen_value *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

static void gen_write(struct gen *g, uint32_t x)
{
    for (int tries = 0; tries < 30; tries++) {
        uint32_t to = pick(g);

        if (!g->v[to].writable || !same_shape(&g->v[to], &g->v[x]) || strcmp(g->v[x].dtype, g->v[to].dtype))
            continue;
        ngd_strbuf_printf(&g->sb, "  aten.copy_(%%v%u, %%v%u)\n", to, x);
        return;
    }
}

static void (*const steps[])(struct gen *g, uint32_t x) = {
    gen_unary, gen_unary,  gen_binary, gen_binary, gen_binary, gen_mixing,  gen_reshape, gen_reshape, gen_permute,
    gen_swap,  gen_expand, gen_cut,    gen_cut,    gen_split,  gen_squeeze, gen_write,   gen_write,
};

static char *random_graph(uint32_t nodes)
{
    static struct gen g;
    uint32_t outputs = 1 + (uint32_t)rng(5);

    memset(&g, 0, sizeof(g));
    ngd_strbuf_init(&g.sb);
    ngd_strbuf_append(&g.sb, "npugraph 1\ngraph \"random\" {\n");
    gen_inputs(&g);
    for (uint32_t i = 0; i < nodes && g.n < MAX_VALUES - 2; i++) {
        uint32_t x = pick(&g);
        bool whole = strcmp(g.v[x].dtype, "i64") == 0;

        if (gen_elements(&g.v[x]) <= 2000)
            (whole ? gen_permute : steps[rng(sizeof(steps) / sizeof(steps[0]))])(&g, x);
    }
    ngd_strbuf_append(&g.sb, "  return ");
    for (uint32_t i = 0; i < outputs; i++)
        ngd_strbuf_printf(&g.sb, "%s\"o%u\" = %%v%u", i ? ", " : "", i, pick(&g));
    ngd_strbuf_append(&g.sb, "\n}\n");
    return ngd_strbuf_steal(&g.sb);
}

/* A target on which only copies take strides. */
static ngd_status_t select_plain(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                 uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)ctx;
    (void)plan;
    (void)diag;
    *strided_p = call->op->id == NGD_OP_ATEN_CLONE || call->op->id == NGD_OP_ATEN_COPY_ ? UINT32_MAX : 0;
    *workspace_p = rng(3) ? 0 : rng(300);
    return NGD_OK;
}

static ngd_status_t select_all(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                               uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    ngd_status_t status = select_plain(ctx, plan, call, strided_p, workspace_p, diag);

    *strided_p = UINT32_MAX;
    return status;
}

START_TEST(plans_of_random_graphs_compute_what_the_graphs_say)
{
    static const struct {
        const char *name;
        struct ngd_plan_target target;
    } targets[] = {
        {"contiguous operands", {.select = select_plain}},
        {"contiguous operands, in place", {.select = select_plain, .inplace = true}},
        {"strided operands, in place", {.select = select_all, .inplace = true}},
    };
    static struct ref ref;
    uint32_t copies = 0, writes = 0, taken = 0;

    rng_state = UINT64_C(88172645463325252);
    for (uint32_t round = 0; round < 600; round++) {
        char *text = random_graph(4 + (uint32_t)rng(60));
        struct ngd_graph *g = parse_graph(text);

        ref_run(&ref, g);
        for (size_t k = 0; k < sizeof(targets) / sizeof(targets[0]); k++) {
            struct ngd_plan *p = NULL;
            struct ngd_diag diag = {0};
            struct sim sim;

            if (try_plan(g, NULL, 0, &targets[k].target, &p, &diag))
                ck_abort_msg("%s\n%s", diag.text, text);
            sim_run(&sim, p);
            compare(p, &ref, &sim, targets[k].name, text);
            for (uint32_t c = 0; c < p->n_calls; c++) {
                copies += p->calls[c].node == NGD_PLAN_NONE || g->nodes[p->calls[c].node].op != p->calls[c].op;
                writes += p->calls[c].op->mutates != 0;
                taken += p->calls[c].n_out && p->tensors[p->calls[c].out[0]].root != p->calls[c].out[0];
            }
            sim_fini(&sim);
            ngd_plan_unref(p);
        }
        ref_fini(&ref);
        ngd_graph_unref(g);
        ngd_free(text);
    }
    /* Checks that the graphs had the cases to test. */
    ck_assert_uint_gt(copies, 1000);
    ck_assert_uint_gt(writes, 500);
    ck_assert_uint_gt(taken, 500);
}
END_TEST

UNIT_MAIN("graphs/plan against an interpreter", plans_of_random_graphs_compute_what_the_graphs_say)
