/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests properties of random graphs on the host device. Seeds are fixed; NGD_TEST_SEEDS sets how many.
 *
 *   - Any graph, of all operators: a replay, an eager run, a run with more threads, a plan with passes, and a plan
 *     without reuse of storage give the same bits and the same status on each instruction set.
 *   - Numbers, graphs of operators whose errors can be bounded: every instruction set agrees with an interpreter in
 *     double, which knows nothing of plans, strides or buckets.
 */
#include "base/fault.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/run_plan.h"
#include "tests/unit/random_graph.h"

static uint64_t seeds(uint64_t standard)
{
    const char *env = getenv("NGD_TEST_SEEDS");

    return env ? strtoull(env, NULL, 10) : effort(standard, "seeds");
}

/* ---- any graph ---- */

#define ROOM ((uint64_t)8 << 20) /* larger graphs are left out */

/* One way of running a graph. */
struct way {
    ngd_isa_t isa;
    uint32_t threads;
    bool eager, apart; /* apart: no result takes over storage */
    bool passes;
    uint32_t streams; /* 0: as the graph is */
    bool lanes;       /* streams run at the same time */
    uint32_t shuffle; /* calls run one after the other in another order that the waits allow; 0: as planned */
};

static ngd_status_t plan_of(struct bench *b, struct ngd_graph *g, const int64_t *symbols, bool apart, bool passes,
                            struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    struct ngd_graph_options with_passes;
    struct ngd_plan_target target = *ngd_device_target(b->dev);
    struct ngd_digest options = {{0}};
    struct ngd_key key;
    ngd_status_t status = ngd_key_make(g, &options, symbols, g->n_symbols, &key, diag);

    ngd_graph_options_init(&with_passes);
    target.inplace = target.inplace && !apart;
    return status ? status : ngd_plan_create(g, &key, passes ? &with_passes : NULL, &target, plan_p, diag);
}

static struct made run_any(struct ngd_graph *g, const int64_t *symbols, const struct way *w)
{
    struct made m;
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct bench b;

    bench_open(&b, w->isa, w->threads);
    run_check(plan_of(&b, g, symbols, w->apart, w->passes, &plan, &diag), &diag, "plan");
    if (w->shuffle)
        shuffle_plan(plan, w->shuffle);
    if (w->lanes)
        ngd_fault_arm(NGD_FAULT_HOST_LANES, 0, UINT32_MAX);
    m = run_plan(&b, plan, symbols, NULL, w->eager);
    ngd_fault_disarm_all();
    ngd_plan_unref(plan);
    bench_close(&b);
    return m;
}

/* Compares results. After a failed replay states may have any contents, and its outputs are not given out. */
static void compare(const struct made *m, const struct made *first, const struct way *w, uint64_t seed)
{
    ck_assert_msg(m->status == first->status, "seed %llu: %s and %s", (unsigned long long)seed,
                  ngd_status_name(m->status), ngd_status_name(first->status));
    ck_assert_msg(m->bytes == first->bytes && (m->status || !m->bytes || memcmp(m->data, first->data, m->bytes) == 0),
                  "seed %llu on %s x%u%s%s%s, %u streams%s, order %u is another result", (unsigned long long)seed,
                  ngd_isa_name(w->isa), w->threads, w->eager ? ", eager" : "", w->apart ? ", storage apart" : "",
                  w->passes ? ", with passes" : "", w->streams, w->lanes ? " at once" : "", w->shuffle);
}

/* Checks a graph. Returns true if it ran to its end. */
static bool check_any(struct ngd_graph *g, const int64_t *symbols, uint64_t seed)
{
    bool ran = false;

    EACH_ISA (isa) {
        const struct way ways[] = {{.isa = (ngd_isa_t)isa, .threads = 1},
                                   {.isa = (ngd_isa_t)isa, .threads = 1, .eager = true},
                                   {.isa = (ngd_isa_t)isa, .threads = 3},
                                   {.isa = (ngd_isa_t)isa, .threads = 1, .apart = true},
                                   {.isa = (ngd_isa_t)isa, .threads = 1, .passes = true}};
        struct made first = run_any(g, symbols, &ways[0]);

        ran = first.status == NGD_OK;
        for (size_t i = 1; i < sizeof(ways) / sizeof(ways[0]); i++) {
            struct made m = run_any(g, symbols, &ways[i]);

            compare(&m, &first, &ways[i], seed);
            free(m.data);
        }
        free(first.data);
    }
    return ran;
}

/* Checks a graph on several streams, run as planned and in orders that the waits allow. */
static void check_streams(struct ngd_graph *g, const int64_t *symbols, uint64_t seed)
{
    const ngd_isa_t isa = ngd_cpu_isa();
    const struct way plain = {.isa = isa, .threads = 1};
    struct made first = run_any(g, symbols, &plain);

    for (uint32_t n = 2; n <= 4; n++) {
        struct ngd_graph *streamed = make_lone_graph(seed, n);
        const struct way ways[] = {
            {.isa = isa, .threads = 1, .streams = n},
            {.isa = isa, .threads = 2, .streams = n, .lanes = true},
            {.isa = isa, .threads = 3, .passes = true, .streams = n, .lanes = true},
            {.isa = isa, .threads = 2, .eager = true, .passes = true, .streams = n},
            {.isa = isa, .threads = 1, .passes = true, .streams = n, .shuffle = 1},
            {.isa = isa, .threads = 1, .streams = n, .shuffle = 2},
            {.isa = isa, .threads = 1, .apart = true, .passes = true, .streams = n, .shuffle = 3},
            {.isa = isa, .threads = 1, .passes = true, .streams = n, .shuffle = 4}};

        ck_assert_int_eq(ngd_graph_seal(streamed, NULL), NGD_OK);
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
            struct made m = run_any(streamed, symbols, &ways[i]);

            compare(&m, &first, &ways[i], seed);
            free(m.data);
        }
        ngd_graph_unref(streamed);
    }
    free(first.data);
}

/* Returns true for graphs without host parameters (their values have a meaning) that are not too large. */
static bool fits(struct ngd_graph *g, const int64_t *symbols)
{
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct bench b;
    bool ok;

    if (g->n_hosts || g->n_inputs > 64 || g->n_outputs > 64 || g->n_params + g->n_states > 64)
        return false;
    bench_open(&b, NGD_ISA_SCALAR, 1);
    ok = plan_of(&b, g, symbols, false, false, &plan, &diag) == NGD_OK && plan->pool_bytes < ROOM;
    for (uint32_t i = 0; ok && i < g->n_params + g->n_states; i++)
        ok = plan->bound[i].bytes < ROOM;
    ngd_plan_unref(plan);
    bench_close(&b);
    return ok;
}

START_TEST(any_graph_gives_the_same_bits_in_every_way_of_running_it)
{
    uint64_t n = seeds(1000), ran = 0, tried = 0;

    for (uint64_t seed = 0; seed < n; seed++) {
        struct ngd_graph *g = make_lone_graph(seed, 1);
        int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];

        if (ngd_graph_seal(g, NULL) == NGD_OK) {
            for (uint32_t i = 0; i < g->n_symbols; i++)
                symbols[i] =
                    g->symbols[i].min + (int64_t)(seed / (i + 1)) % (g->symbols[i].max - g->symbols[i].min + 1);
            if (fits(g, symbols)) {
                tried++;
                ran += check_any(g, symbols, seed);
            }
        }
        ngd_graph_unref(g);
    }
    if (getenv("NGD_TEST_VERBOSE"))
        printf("%llu graphs of %llu seeds, %llu ran to their end\n", (unsigned long long)tried, (unsigned long long)n,
               (unsigned long long)ran);
    ck_assert_msg(ran > n / 40, "only %llu graphs of %llu seeds ran to their end", (unsigned long long)ran,
                  (unsigned long long)n);
}
END_TEST

START_TEST(any_graph_gives_the_same_bits_on_several_streams_in_any_order_that_they_may_take)
{
    uint64_t n = seeds(600), tried = 0;

    for (uint64_t seed = 0; seed < n; seed++) {
        struct ngd_graph *g = make_lone_graph(seed, 1);
        int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];

        if (ngd_graph_seal(g, NULL) == NGD_OK) {
            for (uint32_t i = 0; i < g->n_symbols; i++)
                symbols[i] =
                    g->symbols[i].min + (int64_t)(seed / (i + 1)) % (g->symbols[i].max - g->symbols[i].min + 1);
            if (fits(g, symbols)) {
                check_streams(g, symbols, seed);
                tried++;
            }
        }
        ngd_graph_unref(g);
    }
    ck_assert_uint_gt(tried, n / 20);
}
END_TEST

/* ---- numbers ---- */

#define MAX_RANK   4
#define MAX_VALUES 48
#define MAX_ROWS   6

/* A tensor of the interpreter, with a bound of the error of f32 kernels. */
struct value {
    char name[8];
    uint32_t rank;
    int64_t dims[MAX_RANK];
    bool by_rows; /* dims[0] is the symbol N */
    bool leaf;
    double *v;
    double err, mag;
};

struct world {
    struct random r;
    struct ngd_strbuf text;
    struct value values[MAX_VALUES];
    uint32_t n_values;
    int64_t rows; /* N */
    struct numbers params[MAX_VALUES], inputs[MAX_VALUES];
    uint32_t n_params, n_inputs;
    struct ngd_strbuf heads; /* declarations */
};

static int64_t count_of(const struct value *x)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < x->rank; d++)
        n *= x->dims[d];
    return n;
}

static struct value *new_value(struct world *w, uint32_t rank, const int64_t *dims, bool by_rows)
{
    struct value *x = &w->values[w->n_values];

    snprintf(x->name, sizeof(x->name), "v%u", w->n_values);
    w->n_values++;
    x->rank = rank;
    memcpy(x->dims, dims, rank * sizeof(*dims));
    x->by_rows = by_rows;
    x->v = calloc((size_t)count_of(x) + 1, sizeof(double));
    return x;
}

static void set_mag(struct value *x)
{
    x->mag = 0;
    for (int64_t i = 0; i < count_of(x); i++)
        x->mag = fmax(x->mag, fabs(x->v[i]));
    x->err += x->mag * 0x1p-23; /* the result's rounding, and one more for the function */
}

static void print_type(struct ngd_strbuf *sb, ngd_dtype_t t, const struct value *x)
{
    ngd_strbuf_printf(sb, "%s[", ngd_dtype_name(t));
    for (uint32_t d = 0; d < x->rank; d++) {
        if (d == 0 && x->by_rows)
            ngd_strbuf_append(sb, "N");
        else
            ngd_strbuf_printf(sb, "%s%lld", d ? "," : "", (long long)x->dims[d]);
    }
    ngd_strbuf_append(sb, "]");
}

/* Makes an input or a parameter with random values. */
static struct value *leaf(struct world *w, bool param, uint32_t rank, const int64_t *dims, bool by_rows)
{
    struct value *x = new_value(w, rank, dims, by_rows);
    struct numbers *t = param ? &w->params[w->n_params++] : &w->inputs[w->n_inputs++];

    numbers_random(t, NGD_F32, count_of(x), 1, &w->r);
    memcpy(x->v, t->value, (size_t)count_of(x) * sizeof(double));
    ngd_strbuf_printf(&w->heads, " %s %%%s : ", param ? "param" : "input", x->name);
    print_type(&w->heads, NGD_F32, x);
    ngd_strbuf_append(&w->heads, "\n");
    set_mag(x);
    x->err = 0;
    x->leaf = true;
    return x;
}

/* Returns false if the value's bound is too loose, or the value too large, to show errors. */
static bool is_useful(const struct value *x)
{
    return x->mag < 500 && x->err < 0.02 && x->mag > 1e-4 && count_of(x) < 5000;
}

/* Returns a useful value; leaves are useful. */
static struct value *any_value(struct world *w)
{
    for (;;) {
        struct value *x = &w->values[random_below(&w->r, w->n_values)];

        if (is_useful(x))
            return x;
    }
}

/* Returns the index of the element of x that belongs to element i of `shape`. */
static int64_t broadcast_index(const struct value *x, const struct value *shape, int64_t i)
{
    int64_t index = 0, step = 1;

    for (uint32_t d = shape->rank; d-- > 0; i /= shape->dims[d]) {
        int64_t at = i % shape->dims[d];
        uint32_t missing = shape->rank - x->rank;

        if (d < missing)
            continue;
        index += (x->dims[d - missing] == 1 ? 0 : at) * step;
        step *= x->dims[d - missing];
    }
    return index;
}

/* Gives the sizes around a dimension: outer x dim x inner. */
static void around(const struct value *x, uint32_t dim, int64_t *outer_p, int64_t *inner_p)
{
    *outer_p = *inner_p = 1;
    for (uint32_t d = 0; d < x->rank; d++) {
        if (d < dim)
            *outer_p *= x->dims[d];
        else if (d > dim)
            *inner_p *= x->dims[d];
    }
}

/* Gives a dimension over which no rows mix. Returns false if there is none. */
static bool free_dim(struct world *w, const struct value *x, uint32_t *dim_p)
{
    uint32_t first = x->by_rows ? 1 : 0;

    if (x->rank <= first)
        return false;
    *dim_p = first + (uint32_t)random_below(&w->r, x->rank - first);
    return true;
}

/* Makes a node on x. Returns false if it cannot. */
typedef bool (*maker_fn)(struct world *w, struct value *x);

static double f_neg(double v)
{
    return -v;
}
static double f_relu(double v)
{
    return v > 0 ? v : 0;
}
static double f_sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}
static double f_silu(double v)
{
    return v / (1 + exp(-v));
}
static double f_gelu(double v)
{
    return 0.5 * v * (1 + erf(v / sqrt(2)));
}

static const struct {
    const char *op;
    double (*f)(double v);
    double slope; /* largest */
} unaries[] = {{"aten.neg", f_neg, 1},         {"aten.abs", fabs, 1},      {"aten.tanh", tanh, 1},
               {"aten.sigmoid", f_sigmoid, 1}, {"aten.silu", f_silu, 1.2}, {"aten.relu", f_relu, 1},
               {"aten.sin", sin, 1},           {"aten.cos", cos, 1},       {"aten.gelu", f_gelu, 1.2},
               {"aten.erf", erf, 1.2},         {"aten.clone", NULL, 1}};

static bool make_unary(struct world *w, struct value *x)
{
    size_t i = (size_t)random_below(&w->r, sizeof(unaries) / sizeof(unaries[0]));
    struct value *y = new_value(w, x->rank, x->dims, x->by_rows);

    ngd_strbuf_printf(&w->text, " %%%s = %s(%%%s)\n", y->name, unaries[i].op, x->name);
    for (int64_t k = 0; k < count_of(x); k++)
        y->v[k] = unaries[i].f ? unaries[i].f(x->v[k]) : x->v[k];
    y->err = unaries[i].slope * x->err + 1e-6;
    set_mag(y);
    return true;
}

static bool broadcasts_to(const struct value *b, const struct value *x)
{
    if (b->rank > x->rank || (b->by_rows && (b->rank != x->rank || !x->by_rows)))
        return false;
    for (uint32_t d = 0; d < b->rank; d++) {
        int64_t want = x->dims[x->rank - b->rank + d];

        if (b->dims[d] != 1 && b->dims[d] != want)
            return false;
        /* A constant dimension that happens to equal the number of rows is another type. */
        if (x->by_rows && x->rank - b->rank + d == 0 && !b->by_rows && b->dims[d] != 1)
            return false;
    }
    return true;
}

static const char *const binaries[] = {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.maximum",
                                       "aten.minimum"};

static double binary(int64_t op, double a, double b)
{
    return op == 0 ? a + b : op == 1 ? a - b : op == 2 ? a * b : op == 3 ? fmax(a, b) : fmin(a, b);
}

static bool make_binary(struct world *w, struct value *x)
{
    int64_t op = random_below(&w->r, 5);
    bool turned = random_below(&w->r, 2);
    struct value *b = any_value(w), *y;

    if (!broadcasts_to(b, x))
        return false;
    y = new_value(w, x->rank, x->dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = %s(%%%s, %%%s)\n", y->name, binaries[op], turned ? b->name : x->name,
                      turned ? x->name : b->name);
    for (int64_t i = 0; i < count_of(x); i++) {
        double p = x->v[i], q = b->v[broadcast_index(b, x, i)];

        y->v[i] = turned ? binary(op, q, p) : binary(op, p, q);
    }
    y->err = op == 2 ? x->err * b->mag + b->err * x->mag + x->err * b->err : x->err + b->err;
    set_mag(y);
    return true;
}

static bool make_scalar(struct world *w, struct value *x)
{
    bool mul = random_below(&w->r, 2);
    double c = (double)(float)(2 * random_value(&w->r));
    struct value *y = new_value(w, x->rank, x->dims, x->by_rows);

    ngd_strbuf_printf(&w->text, " %%%s = %s(%%%s) {other=%.17g}\n", y->name,
                      mul ? "aten.mul.Scalar" : "aten.add.Scalar", x->name, c);
    for (int64_t i = 0; i < count_of(x); i++)
        y->v[i] = mul ? x->v[i] * c : x->v[i] + c;
    y->err = mul ? x->err * fabs(c) : x->err;
    set_mag(y);
    return true;
}

static bool make_linear(struct world *w, struct value *x)
{
    int64_t k = x->rank ? x->dims[x->rank - 1] : 0, n = 1 + random_below(&w->r, 9), rows, dims[MAX_RANK];
    struct value *weight, *y;

    if (x->rank < 1 + (uint32_t)x->by_rows || w->n_values + 2 > MAX_VALUES)
        return false;
    weight = leaf(w, true, 2, (int64_t[]){n, k}, false);
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = n;
    y = new_value(w, x->rank, dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = aten.linear(%%%s, %%%s)\n", y->name, x->name, weight->name);
    rows = k ? count_of(x) / k : 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t e = 0; e < k; e++)
                y->v[i * n + j] += x->v[i * k + e] * weight->v[j * k + e];
    y->err = (double)k * (x->err + x->mag * 0x1p-22);
    set_mag(y);
    return true;
}

static const char *const reductions[] = {"aten.sum.dim_IntList", "aten.mean.dim", "aten.amax", "aten.amin"};

static bool make_reduction(struct world *w, struct value *x)
{
    int64_t op = random_below(&w->r, 4), outer, inner, n, dims[MAX_RANK];
    bool keep = random_below(&w->r, 2);
    uint32_t dim, rank = 0;
    struct value *y;

    if (!free_dim(w, x, &dim))
        return false;
    around(x, dim, &outer, &inner);
    n = x->dims[dim];
    for (uint32_t d = 0; d < x->rank; d++)
        if (d != dim || keep)
            dims[rank++] = d == dim ? 1 : x->dims[d];
    y = new_value(w, rank, dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = %s(%%%s) {dim=[%u], keepdim=%s}\n", y->name, reductions[op], x->name, dim,
                      keep ? "true" : "false");
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0, top = -INFINITY, low = INFINITY;

            for (int64_t k = 0; k < n; k++) {
                double v = x->v[(o * n + k) * inner + i];

                sum += v;
                top = fmax(top, v);
                low = fmin(low, v);
            }
            y->v[o * inner + i] = op == 0 ? sum : op == 1 ? sum / (double)n : op == 2 ? top : low;
        }
    y->err = (op == 0 ? (double)n : 1) * (x->err + x->mag * 0x1p-22);
    set_mag(y);
    return true;
}

static bool make_along(struct world *w, struct value *x)
{
    bool softmax = random_below(&w->r, 2);
    int64_t outer, inner, n;
    struct value *y;
    uint32_t dim;

    if (!free_dim(w, x, &dim))
        return false;
    around(x, dim, &outer, &inner);
    n = x->dims[dim];
    y = new_value(w, x->rank, x->dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = %s(%%%s) {dim=%u}\n", y->name, softmax ? "aten._softmax" : "aten.cumsum",
                      x->name, dim);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0, running = 0;

            for (int64_t k = 0; k < n; k++) /* useful values are below 709 */
                sum += exp(x->v[(o * n + k) * inner + i]);
            for (int64_t k = 0; k < n; k++) {
                double v = x->v[(o * n + k) * inner + i];

                running += v;
                y->v[(o * n + k) * inner + i] = softmax ? exp(v) / sum : running;
            }
        }
    y->err = softmax ? 2 * x->err + 2e-6 : (double)n * (x->err + x->mag * 0x1p-23);
    set_mag(y);
    return true;
}

static bool make_view(struct world *w, struct value *x)
{
    uint32_t first = x->by_rows ? 1 : 0;
    int64_t dims[MAX_RANK], n = 1;
    struct value *y;

    if (x->rank < first + 1 || x->rank > 3)
        return false;
    for (uint32_t d = first; d < x->rank; d++)
        n *= x->dims[d];
    dims[0] = x->dims[0];
    dims[first] = n % 2 == 0 && random_below(&w->r, 2) ? 2 : 1;
    dims[first + 1] = n / dims[first];
    y = new_value(w, first + 2, dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = aten.reshape(%%%s) {shape=[%s%lld,%lld]}\n", y->name, x->name,
                      x->by_rows ? "N," : "", (long long)dims[first], (long long)dims[first + 1]);
    memcpy(y->v, x->v, (size_t)count_of(x) * sizeof(double));
    y->err = x->err;
    set_mag(y);
    return true;
}

static bool make_transpose(struct world *w, struct value *x)
{
    uint32_t a, b;
    int64_t dims[MAX_RANK], index[MAX_RANK] = {0};
    struct value *y;

    if (!free_dim(w, x, &a) || !free_dim(w, x, &b) || a == b)
        return false;
    memcpy(dims, x->dims, sizeof(dims));
    dims[a] = x->dims[b];
    dims[b] = x->dims[a];
    y = new_value(w, x->rank, dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = aten.transpose.int(%%%s) {dim0=%u, dim1=%u}\n", y->name, x->name, a, b);
    for (int64_t i = 0; i < count_of(y); i++) {
        int64_t rest = i, at = 0, t;

        for (uint32_t d = y->rank; d-- > 0; rest /= y->dims[d])
            index[d] = rest % y->dims[d];
        t = index[a];
        index[a] = index[b];
        index[b] = t;
        for (uint32_t d = 0; d < x->rank; d++)
            at = at * x->dims[d] + index[d];
        y->v[i] = x->v[at];
    }
    y->err = x->err;
    set_mag(y);
    return true;
}

static bool make_slice(struct world *w, struct value *x)
{
    int64_t outer, inner, start, step, n, dims[MAX_RANK];
    struct value *y;
    uint32_t dim;

    if (!free_dim(w, x, &dim))
        return false;
    around(x, dim, &outer, &inner);
    start = random_below(&w->r, x->dims[dim]);
    step = 1 + random_below(&w->r, 2);
    n = (x->dims[dim] - start + step - 1) / step;
    memcpy(dims, x->dims, sizeof(dims));
    dims[dim] = n;
    y = new_value(w, x->rank, dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = aten.slice.Tensor(%%%s) {dim=%u, start=%lld, step=%lld}\n", y->name, x->name,
                      dim, (long long)start, (long long)step);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < n; k++)
            for (int64_t i = 0; i < inner; i++)
                y->v[(o * n + k) * inner + i] = x->v[(o * x->dims[dim] + start + k * step) * inner + i];
    y->err = x->err;
    set_mag(y);
    return true;
}

static bool make_cat(struct world *w, struct value *x)
{
    int64_t outer, inner, dims[MAX_RANK], n;
    struct value *b = any_value(w), *y;
    uint32_t dim;

    if (!free_dim(w, x, &dim) || b->rank != x->rank || b->by_rows != x->by_rows)
        return false;
    for (uint32_t d = 0; d < x->rank; d++)
        if (d != dim && b->dims[d] != x->dims[d])
            return false;
    around(x, dim, &outer, &inner);
    memcpy(dims, x->dims, sizeof(dims));
    n = dims[dim] += b->dims[dim];
    y = new_value(w, x->rank, dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = aten.cat(%%%s, %%%s) {dim=%u}\n", y->name, x->name, b->name, dim);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < n; k++)
            for (int64_t i = 0; i < inner; i++)
                y->v[(o * n + k) * inner + i] = k < x->dims[dim]
                                                    ? x->v[(o * x->dims[dim] + k) * inner + i]
                                                    : b->v[(o * b->dims[dim] + k - x->dims[dim]) * inner + i];
    y->err = fmax(x->err, b->err);
    set_mag(y);
    return true;
}

static bool make_norm(struct world *w, struct value *x)
{
    int64_t n = x->rank ? x->dims[x->rank - 1] : 0, rows;
    struct value *gamma, *y;
    double steep = 0;

    if (x->rank < 1 + (uint32_t)x->by_rows || !n || w->n_values + 2 > MAX_VALUES)
        return false;
    gamma = leaf(w, true, 1, &n, false);
    y = new_value(w, x->rank, x->dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s, %%%sr = npu.rms_norm(%%%s, %%%s) {epsilon=0.01}\n", y->name, y->name, x->name,
                      gamma->name);
    rows = count_of(x) / n;
    for (int64_t i = 0; i < rows; i++) {
        double square = 0, rstd;

        for (int64_t k = 0; k < n; k++)
            square += x->v[i * n + k] * x->v[i * n + k];
        rstd = 1 / sqrt(square / (double)n + 0.01);
        steep = fmax(steep, rstd);
        for (int64_t k = 0; k < n; k++)
            y->v[i * n + k] = x->v[i * n + k] * rstd * gamma->v[k];
    }
    y->err = 3 * sqrt((double)n) * steep * gamma->mag * (x->err + x->mag * 0x1p-22);
    set_mag(y);
    return true;
}

static bool make_cast(struct world *w, struct value *x)
{
    struct value *y;

    if (x->rank < 1 + (uint32_t)x->by_rows || w->n_values + 2 > MAX_VALUES)
        return false;
    y = new_value(w, x->rank, x->dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%sh = aten._to_copy(%%%s) {dtype=bf16}\n %%%s = aten._to_copy(%%%sh) {dtype=f32}\n",
                      y->name, x->name, y->name, y->name);
    for (int64_t i = 0; i < count_of(x); i++)
        y->v[i] = x->v[i];
    y->err = x->err + (x->mag + x->err) * 0x1p-8;
    set_mag(y);
    return true;
}

static bool make_swiglu(struct world *w, struct value *x)
{
    int64_t n = x->rank ? x->dims[x->rank - 1] : 0, dims[MAX_RANK], rows;
    struct value *y;

    if (x->rank < 1 + (uint32_t)x->by_rows || n < 2 || n % 2)
        return false;
    memcpy(dims, x->dims, sizeof(dims));
    dims[x->rank - 1] = n / 2;
    y = new_value(w, x->rank, dims, x->by_rows);
    ngd_strbuf_printf(&w->text, " %%%s = npu.swiglu(%%%s)\n", y->name, x->name);
    rows = count_of(x) / n;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < n / 2; k++)
            y->v[i * (n / 2) + k] = f_silu(x->v[i * n + k]) * x->v[i * n + n / 2 + k];
    y->err = 2.2 * x->mag * x->err + 1.2 * x->err * x->err + x->mag * 1e-6;
    set_mag(y);
    return true;
}

static const maker_fn makers[] = {make_unary,  make_unary,     make_binary, make_binary, make_binary,    make_scalar,
                                  make_linear, make_reduction, make_along,  make_view,   make_transpose, make_slice,
                                  make_cat,    make_norm,      make_cast,   make_swiglu};

static void world_open(struct world *w, uint64_t seed, int64_t rows)
{
    static const int64_t lasts[] = {1, 4, 6, 17, 40};

    memset(w, 0, sizeof(*w));
    w->r.state = seed * 7919 + 3;
    w->rows = rows;
    ngd_strbuf_init(&w->text);
    ngd_strbuf_init(&w->heads);
    ngd_strbuf_printf(&w->heads, " sym N 1..%d%s\n", MAX_ROWS, seed % 2 ? " buckets 4, 6" : "");
    for (int i = 0; i < 4; i++) {
        int64_t last = lasts[random_below(&w->r, 5)];

        leaf(w, i == 3, 2 + (uint32_t)(i == 1), (int64_t[]){i < 2 ? rows : 3, i == 1 ? 2 : last, last}, i < 2);
    }
}

static void world_close(struct world *w)
{
    for (uint32_t i = 0; i < w->n_values; i++)
        free(w->values[i].v);
    for (uint32_t i = 0; i < w->n_params; i++)
        numbers_close(&w->params[i]);
    for (uint32_t i = 0; i < w->n_inputs; i++)
        numbers_close(&w->inputs[i]);
    ngd_strbuf_fini(&w->text);
    ngd_strbuf_fini(&w->heads);
}

static void world_grow(struct world *w)
{
    for (int i = 0; i < 60 && w->n_values + 2 < MAX_VALUES; i++) {
        struct value *x = any_value(w);

        makers[random_below(&w->r, (int64_t)(sizeof(makers) / sizeof(makers[0])))](w, x);
    }
}

static bool is_output(const struct world *w, uint32_t i)
{
    return !w->values[i].leaf && is_useful(&w->values[i]) && (i % 3 == 0 || i + 4 > w->n_values);
}

static uint32_t world_text(struct world *w, struct ngd_strbuf *sb)
{
    uint32_t n = 0;

    ngd_strbuf_printf(sb, "npugraph 1\ngraph \"world\" {\n%s%s", ngd_strbuf_str(&w->heads), ngd_strbuf_str(&w->text));
    for (uint32_t i = 0; i < w->n_values; i++)
        if (is_output(w, i))
            ngd_strbuf_printf(sb, "%s\"%s\" = %%%s", n++ ? ", " : " return ", w->values[i].name, w->values[i].name);
    ngd_strbuf_append(sb, "\n}\n");
    return n;
}

static void compare_value(const struct value *x, const float *got, const char *how, const char *text)
{
    for (int64_t i = 0; i < count_of(x); i++)
        if (!(fabs((double)got[i] - x->v[i]) <= 2 * x->err + 1e-6))
            ck_abort_msg("%s: element %lld of %s is %.9g, should be %.9g, and may be %.3g off\n%s", how, (long long)i,
                         x->name, (double)got[i], x->v[i], 2 * x->err + 1e-6, text);
}

static void run_world(struct bench *b, struct world *w, const char *text, bool eager)
{
    struct ngd_span in[MAX_VALUES];
    struct ngd_out out[MAX_VALUES];
    struct ngd_launch launch = {.symbols = &w->rows, .inputs = in, .outputs = out, .eager = eager};
    struct ngd_diag diag = {0};
    struct ready r;
    uint32_t n = 0;
    char how[64];

    snprintf(how, sizeof(how), "%s%s, N = %lld", b->name, eager ? ", eager" : "", (long long)w->rows);
    run_check(ready_open(&r, b, text, &w->rows, &diag), &diag, text);
    for (uint32_t i = 0; i < w->n_params; i++)
        run_check(ngd_buffer_write(r.bound[i], 0, w->params[i].data, numbers_bytes(&w->params[i]), &diag), &diag, text);
    for (uint32_t i = 0; i < w->n_inputs; i++)
        in[i] = (struct ngd_span){w->inputs[i].data, numbers_bytes(&w->inputs[i])};
    for (uint32_t i = 0; i < w->n_values; i++)
        if (is_output(w, i)) {
            uint64_t bytes = (uint64_t)count_of(&w->values[i]) * sizeof(float);

            out[n++] = (struct ngd_out){calloc(bytes + 1, 1), bytes};
        }
    run_check(ngd_launch_check(r.plan, &launch, w->n_inputs, 0, n, &diag), &diag, text);
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, text);
    n = 0;
    for (uint32_t i = 0; i < w->n_values; i++)
        if (is_output(w, i)) {
            compare_value(&w->values[i], out[n].data, how, text);
            free(out[n++].data);
        }
    ready_close(&r);
}

START_TEST(numbers_of_random_graphs_agree_with_an_interpreter_in_double)
{
    static struct world w;
    static struct bench b[NGD_ISA_MAX];
    uint64_t n = seeds(250), outputs = 0, nodes = 0;

    EACH_ISA (isa)
        bench_open(&b[isa], (ngd_isa_t)isa, 2);
    for (uint64_t seed = 0; seed < n; seed++) {
        struct ngd_strbuf text;

        world_open(&w, seed, 1 + (int64_t)(seed % MAX_ROWS));
        world_grow(&w);
        ngd_strbuf_init(&text);
        outputs += world_text(&w, &text);
        nodes += w.n_values;
        EACH_ISA (isa)
            for (int eager = 0; eager < 2; eager++)
                run_world(&b[isa], &w, ngd_strbuf_str(&text), eager);
        ngd_strbuf_fini(&text);
        world_close(&w);
    }
    EACH_ISA (isa)
        bench_close(&b[isa]);
    if (getenv("NGD_TEST_VERBOSE"))
        printf("%llu nodes, %llu outputs compared\n", (unsigned long long)nodes, (unsigned long long)outputs);
    ck_assert_uint_gt(outputs, n * 4);
}
END_TEST

UNIT_MAIN("ops/random", any_graph_gives_the_same_bits_in_every_way_of_running_it,
          any_graph_gives_the_same_bits_on_several_streams_in_any_order_that_they_may_take,
          numbers_of_random_graphs_agree_with_an_interpreter_in_double)
