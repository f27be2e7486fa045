/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: memory that is shared by executables which never run at the same time. */
#include "tests/backend/conform.h"
#include <math.h>

/* Makes graphs that need more memory as n grows: y = exp(exp(x)) with n elements. */
static void grown_text(char text[256], int64_t n)
{
    snprintf(text, 256,
             "npugraph 1\ngraph \"g%lld\" {\n input %%x : f32[%lld]\n %%a = aten.sin(%%x)\n %%b = aten.add.Tensor(%%a, "
             "%%x)\n return \"y\" = %%b\n}\n",
             (long long)n, (long long)n);
}

struct grown {
    struct ready r;
    int64_t n;
    float *x, *y;
    struct conform_io io;
};

static void grown_open(struct grown *g, struct conform *c, int64_t n)
{
    char text[256];

    memset(g, 0, sizeof(*g));
    grown_text(text, n);
    g->n = n;
    g->x = calloc((size_t)n, 4);
    g->y = calloc((size_t)n, 4);
    conform_ready(&g->r, c, text, NULL);
    conform_io_init(&g->io, NULL);
    g->io.in[0] = (struct ngd_span){g->x, (uint64_t)n * 4};
    g->io.out[0] = (struct ngd_out){g->y, (uint64_t)n * 4};
}

static void grown_run(struct grown *g, struct conform *c)
{
    for (int64_t i = 0; i < g->n; i++)
        g->x[i] = (float)(i % 5);
    memset(g->y, 0xff, (size_t)g->n * 4);
    if (ngd_stream_run(c->b.stream, g->r.inst, &g->io.launch))
        ck_abort_msg("%s", g->io.launch.diag.text);
    for (int64_t i = 0; i < g->n; i++) {
        static const double sines[] = {0, 0.8414709848, 0.9092974268, 0.1411200081, -0.7568024953};
        double want = sines[i % 5] + (double)(i % 5);

        if (!(fabs((double)g->y[i] - want) <= 1e-5 * c->backend->tolerance)) /* assertions here would take long */
            ck_abort_msg("element %lld is %g, not %g", (long long)i, (double)g->y[i], want);
    }
}

static void grown_close(struct grown *g)
{
    ready_close(&g->r);
    free(g->x);
    free(g->y);
}

#define N_GRAPHS 6

START_TEST(graphs_on_one_pool_need_the_largest_and_not_the_sum)
{
    static const int64_t orders[2][N_GRAPHS] = {{10, 100, 1000, 5000, 20000, 70000},
                                                {70000, 20000, 10, 5000, 100, 1000}};

    for (int order = 0; order < 2; order++) {
        static struct grown g[N_GRAPHS];
        struct conform c;
        uint64_t largest = 0;

        conform_open(&c, _i);
        ck_assert_uint_eq(ngd_pool_bytes(c.b.pool), 0);
        for (int i = 0; i < N_GRAPHS; i++) {
            grown_open(&g[i], &c, orders[order][i]);
            largest = g[i].r.plan->pool_bytes > largest ? g[i].r.plan->pool_bytes : largest;
            ck_assert_uint_eq(ngd_pool_bytes(c.b.pool), (largest + 63) / 64 * 64);
            ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), ngd_pool_bytes(c.b.pool));
            for (int k = 0; k <= i; k++) /* the pool may have moved since the earlier ones were made */
                grown_run(&g[k], &c);
        }
        for (int i = 0; i < N_GRAPHS; i++)
            grown_close(&g[i]);
        ck_assert_uint_eq(ngd_pool_bytes(c.b.pool), (largest + 63) / 64 * 64); /* it is kept for the next graph */
        conform_close(&c);
    }
}
END_TEST

/* y = sin of the last 8 of n elements, which takes much memory and little work. */
struct tail {
    struct ready r;
    int64_t n;
    float *x, y[8];
    struct conform_io io;
};

static void tail_open(struct tail *t, struct conform *c, int64_t n)
{
    char text[256];

    memset(t, 0, sizeof(*t));
    snprintf(text, sizeof(text),
             "npugraph 1\ngraph \"t%lld\" {\n input %%x : f32[%lld]\n %%e = aten.slice.Tensor(%%x) {dim=0, start=%lld, "
             "end=%lld}\n %%y = aten.sin(%%e)\n return \"y\" = %%y\n}\n",
             (long long)n, (long long)n, (long long)n - 8, (long long)n);
    t->n = n;
    t->x = calloc((size_t)n, sizeof(float));
    conform_ready(&t->r, c, text, NULL);
    conform_io_init(&t->io, NULL);
    t->io.in[0] = (struct ngd_span){t->x, (uint64_t)n * sizeof(float)};
    t->io.out[0] = (struct ngd_out){t->y, sizeof(t->y)};
}

static void tail_run(struct tail *t, struct conform *c)
{
    for (int64_t i = 0; i < 8; i++)
        t->x[t->n - 8 + i] = (float)(t->n % 5 + i);
    memset(t->y, 0xff, sizeof(t->y));
    if (ngd_stream_run(c->b.stream, t->r.inst, &t->io.launch))
        ck_abort_msg("%s", t->io.launch.diag.text);
    for (int64_t i = 0; i < 8; i++)
        ck_assert_double_eq_tol(t->y[i], sin((double)(t->n % 5 + i)), 1e-5 * c->backend->tolerance);
}

/* Backends may use another kind of memory for pools of megabytes. */
START_TEST(pool_grows_from_kilobytes_to_megabytes_under_its_graphs)
{
    static const int64_t sizes[] = {1000, 600001, 1200003};
    static struct tail t[3];
    struct conform c;
    uint64_t page;

    conform_open(&c, _i);
    page = ngd_device_info(c.b.dev)->pool_page;
    for (int i = 0; i < 3; i++) {
        uint64_t held;

        tail_open(&t[i], &c, sizes[i]);
        held = ngd_pool_bytes(c.b.pool);
        ck_assert_uint_ge(held, t[i].r.plan->pool_bytes);
        ck_assert_uint_lt(held, t[i].r.plan->pool_bytes + (page ? page : 64));
        ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), held);
        for (int k = 0; k <= i; k++)
            tail_run(&t[k], &c);
    }
    for (int i = 0; i < 3; i++) {
        ready_close(&t[i].r);
        free(t[i].x);
    }
    ngd_pool_destroy(c.b.pool);
    c.b.pool = NULL;
    ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 0);
    conform_close(&c);
}
END_TEST

START_TEST(pool_that_cannot_grow_says_so_and_serves_the_graphs_that_it_has)
{
    struct grown small, large;
    struct conform c;
    struct ready r;
    struct ngd_diag diag = {0};
    char text[256];
    uint64_t held;

    conform_open_budget(&c, _i, 64 << 10);
    grown_open(&small, &c, 1000);
    held = ngd_pool_bytes(c.b.pool);
    grown_text(text, 100000);
    ck_assert_int_eq(ready_open(&r, &c.b, text, NULL, &diag), NGD_ERR_NO_DEVICE_MEMORY);
    conform_says(diag.text, "test pool|64.0 KiB");
    ck_assert_uint_eq(ngd_pool_bytes(c.b.pool), held);
    ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), held);
    grown_run(&small, &c);
    grown_open(&large, &c, 4000); /* what fits still works */
    grown_run(&large, &c);
    grown_run(&small, &c);
    grown_close(&large);
    grown_close(&small);
    conform_close(&c);
}
END_TEST

START_TEST(pools_are_apart)
{
    struct conform a, b;
    struct grown in_a, in_b;

    conform_open(&a, _i);
    b = a;
    b.b.pool = NULL;
    CONFORM_OK(ngd_pool_create(a.b.dev, "another", &b.b.pool));
    grown_open(&in_a, &a, 3000);
    ck_assert_uint_eq(ngd_pool_bytes(b.b.pool), 0);
    grown_open(&in_b, &b, 500);
    ck_assert_uint_gt(ngd_pool_bytes(b.b.pool), 0);
    ck_assert_uint_lt(ngd_pool_bytes(b.b.pool), ngd_pool_bytes(a.b.pool));
    ck_assert_uint_eq(ngd_device_used_bytes(a.b.dev), ngd_pool_bytes(a.b.pool) + ngd_pool_bytes(b.b.pool));
    grown_run(&in_a, &a);
    grown_run(&in_b, &b);
    grown_close(&in_b);
    ngd_pool_destroy(b.b.pool);
    ngd_pool_destroy(NULL);
    ck_assert_uint_eq(ngd_device_used_bytes(a.b.dev), ngd_pool_bytes(a.b.pool));
    grown_run(&in_a, &a);
    grown_close(&in_a);
    conform_close(&a);
}
END_TEST

/* No tensor of the graph has an element. */
START_TEST(graph_of_no_elements_runs_in_an_empty_pool)
{
    struct conform c;
    struct ready r;
    struct conform_io io;

    conform_open(&c, _i);
    conform_ready(&r, &c,
                  "npugraph 1\ngraph \"none\" {\n input %x : f32[0,4]\n %y = aten.exp(%x)\n return \"y\" = %y\n}\n",
                  NULL);
    conform_io_init(&io, NULL);
    CONFORM_OK(ngd_launch_check(r.plan, &io.launch, 1, 0, 1, &diag_));
    CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
    io.launch.eager = true;
    CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
    ready_close(&r);
    conform_close(&c);
}
END_TEST

TCase *conform_pools(void)
{
    TCase *tcase = tcase_create("pools");

    CONFORM_ADD(tcase, graphs_on_one_pool_need_the_largest_and_not_the_sum,
                pool_grows_from_kilobytes_to_megabytes_under_its_graphs,
                pool_that_cannot_grow_says_so_and_serves_the_graphs_that_it_has, pools_are_apart,
                graph_of_no_elements_runs_in_an_empty_pool);
    return tcase;
}
