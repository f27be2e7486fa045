/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of the Ascend backend on the simulator: they grow where they are, and graphs that were captured stay so. */
#include "tests/ascend/simulated.h"
#include <math.h>

#define PAGE  ((uint64_t)2 << 20)
/* Elements of an input, of which the last few are computed with: a pool of two pages, and one of three. */
#define SMALL 600000
#define LARGE 1200000
#define TAIL  16

/* Clearing and reading megabytes takes its time under a sanitizer. */
static ngd_status_t open_device(struct bench *b, struct ngd_diag *diag)
{
    return simulated_open(b, 0, "60000", diag);
}

/* ---- graphs of a size ---------------------------------------------------------------------------- */

struct sized {
    struct ready r;
    int64_t n;
    float *x, y[TAIL];
};

static ngd_status_t sized_open(struct sized *g, struct bench *b, int64_t n, struct ngd_diag *diag)
{
    char text[320];

    memset(g, 0, sizeof(*g));
    snprintf(text, sizeof(text),
             "npugraph 1\ngraph \"g%lld\" {\n input %%x : f32[%lld]\n"
             " %%e = aten.slice.Tensor(%%x) {dim=0, start=%lld, end=%lld}\n"
             " %%a = aten.neg(%%e)\n %%y = aten.add.Tensor(%%a, %%e) {alpha=3}\n return \"y\" = %%y\n}\n",
             (long long)n, (long long)n, (long long)n - TAIL, (long long)n);
    g->n = n;
    g->x = calloc((size_t)n, sizeof(float));
    return ready_open(&g->r, b, text, NULL, diag);
}

static void sized_close(struct sized *g)
{
    if (g->r.graph)
        ready_close(&g->r);
    free(g->x);
}

static ngd_status_t sized_run(struct sized *g, struct bench *b, struct ngd_diag *diag)
{
    struct ngd_span in = {g->x, (uint64_t)g->n * sizeof(float)};
    struct ngd_out out = {g->y, sizeof(g->y)};
    const float *tail = g->x + g->n - TAIL;
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};
    ngd_status_t status;

    for (int64_t i = g->n - TAIL; i < g->n; i++)
        g->x[i] = (float)(i % 1000);
    memset(g->y, 0xff, sizeof(g->y));
    status = ngd_stream_run(b->stream, g->r.inst, &launch);
    *diag = launch.diag;
    for (int i = 0; i < TAIL && !status; i++)
        ck_assert_msg(g->y[i] == 2 * tail[i], "element %d is %g", i, (double)g->y[i]);
    return status;
}

/* The sentence, or the number before or behind these words, in what the device says of itself. */
static bool says(struct bench *b, const char *words)
{
    struct ngd_strbuf sb;
    bool found;

    ngd_strbuf_init(&sb);
    ngd_device_describe(b->dev, &sb);
    found = strstr(ngd_strbuf_str(&sb), words) != NULL;
    ngd_strbuf_fini(&sb);
    return found;
}

static uint64_t captures(struct bench *b)
{
    struct ngd_strbuf sb;
    unsigned long long n = 0;
    const char *at;

    ngd_strbuf_init(&sb);
    ngd_device_describe(b->dev, &sb);
    at = strstr(ngd_strbuf_str(&sb), "captures ");
    ck_assert(at && sscanf(at, "captures %llu", &n) == 1);
    ngd_strbuf_fini(&sb);
    return n;
}

/* ---- tests --------------------------------------------------------------------------------------- */

START_TEST(pool_grows_where_it_is_and_its_graphs_stay_captured)
{
    struct ngd_diag diag = {0};
    struct sized small, large;
    struct bench b;
    uint64_t held;

    must(open_device(&b, &diag), &diag);
    ck_assert(says(&b, "aclrtMapMem") && says(&b, "grow where they are: 0 do"));
    must(sized_open(&small, &b, SMALL, &diag), &diag);
    held = ngd_pool_bytes(b.pool);
    ck_assert_uint_ge(held, small.r.plan->pool_bytes);
    ck_assert_uint_eq(held % PAGE, 0);
    must(sized_run(&small, &b, &diag), &diag);
    must(sized_open(&large, &b, LARGE, &diag), &diag);
    ck_assert_uint_gt(ngd_pool_bytes(b.pool), held);
    ck_assert_uint_eq(ngd_device_used_bytes(b.dev), ngd_pool_bytes(b.pool));
    ck_assert_int_eq(simulator_count("bytes"), (int64_t)ngd_pool_bytes(b.pool)); /* counted to the byte */
    ck_assert(says(&b, "grow where they are: 1 do") && says(&b, "in 2 pieces"));
    for (int i = 0; i < 2; i++) {
        must(sized_run(&small, &b, &diag), &diag);
        must(sized_run(&large, &b, &diag), &diag);
    }
    ck_assert_uint_eq(captures(&b), 2);
    sized_close(&small);
    sized_close(&large);
    close_device(&b);
    nothing_is_left("in place");
}
END_TEST

/* Without the functions; with a driver that refuses them when asked for the granularity, a range, or memory. */
START_TEST(pool_moves_where_cann_or_its_driver_cannot_map)
{
    static const char *const refusals[] = {NULL, "aclrtMemGetAllocationGranularity", "aclrtReserveMemAddress",
                                           "aclrtMallocPhysical"};

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct ngd_diag diag = {0};
        struct sized small, large;
        struct bench b;

        simulator_set("no_mapping", refusals[i] ? "0" : "1");
        if (refusals[i])
            SIMULATOR(ngd_aclsim_fail_call)(refusals[i], 0, NGD_ACL_RT_FEATURE_NOT_SUPPORT);
        must(open_device(&b, &diag), &diag);
        must(sized_open(&small, &b, SMALL, &diag), &diag);
        ck_assert_int_eq(diag.status, NGD_OK); /* nothing is said of what did not fail in the end */
        must(sized_run(&small, &b, &diag), &diag);
        must(sized_open(&large, &b, LARGE, &diag), &diag);
        must(sized_run(&large, &b, &diag), &diag);
        must(sized_run(&small, &b, &diag), &diag);
        must(sized_run(&small, &b, &diag), &diag);
        ck_assert_uint_eq(captures(&b), 3);
        if (i < 2)
            ck_assert(says(&b, "pools move when they grow"));
        else
            ck_assert(says(&b, "grow where they are: 1 do")); /* the second time it could */
        sized_close(&small);
        sized_close(&large);
        close_device(&b);
        nothing_is_left(refusals[i] ? refusals[i] : "hidden");
    }
    simulator_set("no_mapping", "0");
}
END_TEST

START_TEST(pool_that_cannot_grow_keeps_what_it_has_and_its_graphs_stay_captured)
{
    static const char *const calls[] = {"aclrtMallocPhysical", "aclrtMapMem", "aclrtMemset", NULL};
    struct ngd_diag diag = {0};
    struct sized small, large;
    struct bench b;
    uint64_t held;

    must(open_device(&b, &diag), &diag);
    must(sized_open(&small, &b, SMALL, &diag), &diag);
    must(sized_run(&small, &b, &diag), &diag);
    held = ngd_pool_bytes(b.pool);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (calls[i])
            SIMULATOR(ngd_aclsim_fail_call)(calls[i], 0, NGD_ACL_RT_MEMORY_ALLOCATION);
        else
            simulator_set("hbm", "5M"); /* others took the rest */
        diag = (struct ngd_diag){0};
        ck_assert_int_eq(sized_open(&large, &b, LARGE, &diag), NGD_ERR_NO_DEVICE_MEMORY);
        ck_assert_msg(strstr(diag.text, "pool \"test\""), "%s", diag.text);
        sized_close(&large);
        ck_assert_uint_eq(ngd_pool_bytes(b.pool), held);
        ck_assert_uint_eq(ngd_device_used_bytes(b.dev), held);
        ck_assert_int_eq(simulator_count("bytes"), (int64_t)held);
        must(sized_run(&small, &b, &diag), &diag);
    }
    ck_assert_uint_eq(captures(&b), 1);
    simulator_set("hbm", "4G");
    must(sized_open(&large, &b, LARGE, &diag), &diag);
    must(sized_run(&large, &b, &diag), &diag);
    must(sized_run(&small, &b, &diag), &diag);
    ck_assert_uint_eq(captures(&b), 2);
    sized_close(&small);
    sized_close(&large);
    close_device(&b);
    nothing_is_left("cannot grow");
}
END_TEST

/* A pool below a page, which moves once, grows in place, and is given back. */
static ngd_status_t whole_life(void)
{
    static const int64_t sizes[] = {1000, SMALL, LARGE};
    struct ngd_diag diag = {0};
    struct sized g[3] = {0};
    struct bench b;
    ngd_status_t status = open_device(&b, &diag);

    for (int i = 0; i < 3 && !status; i++) {
        status = sized_open(&g[i], &b, sizes[i], &diag);
        for (int k = 0; k <= i && !status; k++)
            status = sized_run(&g[k], &b, &diag);
        if (b.stream && ngd_stream_status(b.stream))
            ngd_stream_reset(b.stream);
    }
    for (int i = 0; i < 3; i++)
        sized_close(&g[i]);
    if (b.dev)
        close_device(&b);
    return status;
}

START_TEST(any_call_of_memory_may_fail_once_without_a_wrong_result_or_a_leak)
{
    static const char *const names[] = {"aclrtMemGetAllocationGranularity",
                                        "aclrtReserveMemAddress",
                                        "aclrtReleaseMemAddress",
                                        "aclrtMallocPhysical",
                                        "aclrtFreePhysical",
                                        "aclrtMapMem",
                                        "aclrtUnmapMem",
                                        "aclrtMalloc",
                                        "aclrtFree",
                                        "aclrtMemset"};
    static const int codes[] = {107000, 207001, 207000, 507015};
    int failed = 0;

    ck_assert_int_eq(whole_life(), NGD_OK);
    nothing_is_left("without a fault");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (int n = 0; n < 2; n++) { /* the first call of it, and the second */
            char when[96];

            SIMULATOR(ngd_aclsim_fail_call)(names[i], n, codes[(i + (size_t)n) % 4]);
            failed += whole_life() != NGD_OK;
            SIMULATOR(ngd_aclsim_fail_call)(NULL, -1, 0);
            snprintf(when, sizeof(when), "call %d of %s failed", n, names[i]);
            nothing_is_left(when);
        }
    }
    ck_assert_int_gt(failed, 4);
}
END_TEST

UNIT_MAIN("ascend/pools", pool_grows_where_it_is_and_its_graphs_stay_captured,
          pool_moves_where_cann_or_its_driver_cannot_map,
          pool_that_cannot_grow_keeps_what_it_has_and_its_graphs_stay_captured,
          any_call_of_memory_may_fail_once_without_a_wrong_result_or_a_leak)
