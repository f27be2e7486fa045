/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in FRACTAL_NZ on the simulator: products with them are right, copies are shared, current and counted, and
 * where there can be none the weight is read as it lies.
 */
#include "tests/ascend/simulated.h"
#include "base/lock.h"
#include <math.h>
#include <pthread.h>

#define LIMIT_MS "60000"

static ngd_status_t open_with(struct bench *b, bool nz, uint64_t memory, struct ngd_diag *diag)
{
    struct ngd_device_params params;

    simulated_params(&params, 0, LIMIT_MS);
    params.nz_weights = nz;
    params.memory_bytes = memory;
    return simulated_open_with(b, &params, diag);
}

static void open_device(struct bench *b, bool nz)
{
    struct ngd_diag diag = {0};

    must(open_with(b, nz, (uint64_t)1 << 28, &diag), &diag);
}

/* The number before these words in what the device says of its weights. */
static uint64_t said(struct bench *b, const char *words)
{
    struct ngd_strbuf sb;
    uint64_t n = 0;
    const char *line, *at;

    ngd_strbuf_init(&sb);
    ngd_device_describe(b->dev, &sb);
    line = strstr(ngd_strbuf_str(&sb), "weights in NZ: ");
    at = line ? strstr(line, words) : NULL;
    ck_assert_msg(at, "\"%s\" is not in %s", words, line ? line : "what it says");
    while (at > line && at[-1] == ' ')
        at--;
    while (at > line && at[-1] >= '0' && at[-1] <= '9')
        at--;
    n = strtoull(at, NULL, 10);
    ngd_strbuf_fini(&sb);
    return n;
}

static uint64_t copies(struct bench *b)
{
    return said(b, ", ");
}

static uint64_t nz_bytes(int64_t rows, int64_t columns)
{
    return (uint64_t)((rows + 15) / 16 * 16 * ((columns + 15) / 16 * 16)) * 2;
}

/* ---- products ------------------------------------------------------------------------------------ */

enum form { LINEAR, LINEAR_BIAS, MM, MM_TURNED, ADDMM, FORMS };

/* y[M,N] = x[M,K] w, of whose shape the form decides; some with a bias. */
struct product {
    enum form form;
    int64_t m, n, k;
    const char *w, *x; /* dtypes */
    double alpha, beta;
};

static void product_text(const struct product *p, char *text, size_t room)
{
    bool turned = p->form == LINEAR || p->form == LINEAR_BIAS || p->form == MM_TURNED;
    bool bias = p->form == LINEAR_BIAS || p->form == ADDMM;
    char body[200];

    switch (p->form) {
    case LINEAR:
        snprintf(body, sizeof(body), "%%y = aten.linear(%%x, %%w)");
        break;
    case LINEAR_BIAS:
        snprintf(body, sizeof(body), "%%y = aten.linear(%%x, %%w, %%b)");
        break;
    case MM:
        snprintf(body, sizeof(body), "%%y = aten.mm(%%x, %%w)");
        break;
    case MM_TURNED:
        snprintf(body, sizeof(body), "%%t = aten.permute(%%w) {dims=[1, 0]}\n %%y = aten.mm(%%x, %%t)");
        break;
    default:
        snprintf(body, sizeof(body), "%%y = aten.addmm(%%b, %%x, %%w) {alpha=%.1f, beta=%.1f}", p->alpha, p->beta);
    }
    snprintf(text, room,
             "npugraph 1\ngraph \"product\" {\n param %%w : %s[%lld,%lld]\n%s%s%s input %%x : %s[%lld,%lld]\n %s\n"
             " return \"y\" = %%y\n}\n",
             p->w, (long long)(turned ? p->n : p->k), (long long)(turned ? p->k : p->n), bias ? " param %b : " : "",
             bias ? p->x : "", "", p->x, (long long)p->m, (long long)p->k, body);
    if (bias) { /* its shape, behind its dtype */
        char *at = strstr(text, " param %b : ") + strlen(" param %b : ") + strlen(p->x), rest[600];

        snprintf(rest, sizeof(rest), "[%lld]\n%s", (long long)p->n, at);
        snprintf(at, room - (size_t)(at - text), "%s", rest);
    }
}

static uint16_t to_half(const char *dtype, double v)
{
    return dtype[0] == 'b' ? ngd_f32_to_bf16((float)v) : ngd_f32_to_f16((float)v);
}

static double from_half(const char *dtype, uint16_t v)
{
    return (double)(dtype[0] == 'b' ? ngd_bf16_to_f32(v) : ngd_f16_to_f32(v));
}

/* Numbers of a dtype, and as they are after rounding to it. */
static void *numbers(const char *dtype, int64_t n, double seed, double **exact_p)
{
    bool wide = strcmp(dtype, "f32") == 0;
    char *data = malloc((size_t)n * (wide ? 4 : 2));
    double *exact = malloc((size_t)n * sizeof(*exact));

    for (int64_t i = 0; i < n; i++) {
        double v = sin((double)i * 0.7 + seed);

        if (wide) {
            ((float *)(void *)data)[i] = (float)v;
            exact[i] = (double)(float)v;
        } else {
            ((uint16_t *)(void *)data)[i] = to_half(dtype, v);
            exact[i] = from_half(dtype, to_half(dtype, v));
        }
    }
    *exact_p = exact;
    return data;
}

static double result_at(const char *dtype, const void *y, int64_t i)
{
    return strcmp(dtype, "f32") == 0 ? (double)((const float *)y)[i] : from_half(dtype, ((const uint16_t *)y)[i]);
}

/* Runs it and compares it with sums in f64; the result's bytes are kept at *y_p. */
static void check_product(struct bench *b, const struct product *p, void **y_p)
{
    size_t size = strcmp(p->x, "f32") == 0 ? 4 : 2;
    bool bias = p->form == LINEAR_BIAS || p->form == ADDMM, across = p->form == MM || p->form == ADDMM;
    double *x, *w, *v, alpha = p->form == ADDMM ? p->alpha : 1, beta = p->form == ADDMM ? p->beta : 1;
    void *xs = numbers(p->x, p->m * p->k, 1, &x), *ws = numbers(p->w, p->k * p->n, 2, &w);
    void *vs = numbers(p->x, p->n, 3, &v), *y = calloc((size_t)(p->m * p->n), size);
    struct ngd_span in = {xs, (uint64_t)(p->m * p->k) * size};
    struct ngd_out out = {y, (uint64_t)(p->m * p->n) * size};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};
    double tolerance = p->w[0] == 'b' ? 0.01 : 0.0015;
    struct ngd_diag diag = {0};
    struct ready r;
    char text[1200];

    product_text(p, text, sizeof(text));
    must(ready_open(&r, b, text, NULL, &diag), &diag);
    must(ngd_buffer_write(r.bound[0], 0, ws, (uint64_t)(p->k * p->n) * 2, &diag), &diag);
    if (bias)
        must(ngd_buffer_write(r.bound[1], 0, vs, (uint64_t)p->n * size, &diag), &diag);
    for (int run = 0; run < 3; run++) {
        launch.eager = run == 2;
        memset(y, 0xff, (size_t)(p->m * p->n) * size);
        must(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag);
        for (int64_t i = 0; i < p->m; i++) {
            for (int64_t j = 0; j < p->n; j++) {
                double sum = 0, all = fabs(beta * v[j]) + 1e-6, got = result_at(p->x, y, i * p->n + j);

                for (int64_t k = 0; k < p->k; k++) {
                    double term = x[i * p->k + k] * w[across ? k * p->n + j : j * p->k + k];

                    sum += term;
                    all += fabs(alpha * term);
                }
                sum = alpha * sum + (bias ? beta * v[j] : 0);
                ck_assert_msg(fabs(got - sum) <= tolerance * all, "form %d, run %d: [%d,%d] is %g, not %g",
                              (int)p->form, run, (int)i, (int)j, got, sum);
            }
        }
    }
    ready_close(&r);
    free(xs);
    free(ws);
    free(vs);
    free(x);
    free(w);
    free(v);
    *y_p = y;
}

START_TEST(product_with_its_weight_in_nz_is_that_of_f64_and_of_nd)
{
    static const int64_t shapes[][3] = {{1, 16, 16}, {3, 33, 17}, {5, 2, 2}, {2, 48, 96}, {17, 15, 31}, {0}};
    static const struct {
        const char *w, *x;
    } dtypes[] = {{"bf16", "bf16"}, {"f16", "f16"}, {"bf16", "f32"}, {"f16", "f32"}};
    int n = 0;

    for (int form = 0; form < FORMS; form++) {
        for (size_t d = 0; d < 4; d++) {
            for (size_t s = 0; shapes[s][0]; s++) {
                struct product p = {(enum form)form, shapes[s][0], shapes[s][1],    shapes[s][2],
                                    dtypes[d].w,     dtypes[d].x,  s % 2 ? 1 : 0.5, s % 3 ? 1 : 0};
                void *y[2];
                struct bench b;

                for (int nz = 0; nz < 2; nz++) {
                    open_device(&b, nz);
                    check_product(&b, &p, &y[nz]);
                    if (nz) {
                        ck_assert_uint_eq(copies(&b), 0);
                        ck_assert_uint_eq(said(&b, "refused by CANN") + said(&b, "for want of memory") +
                                              said(&b, "written by graphs") + said(&b, "after errors"),
                                          0);
                    }
                    close_device(&b);
                }
                /* The simulator adds in the same order. */
                ck_assert_int_eq(memcmp(y[0], y[1], (size_t)(p.m * p.n) * (p.x[1] == '3' ? 4 : 2)), 0);
                free(y[0]);
                free(y[1]);
                n++;
            }
        }
    }
    printf("%d products, with their weights in NZ and in ND\n", n);
    nothing_is_left("products");
}
END_TEST

/* ---- one weight ---------------------------------------------------------------------------------- */

#define ROWS    48
#define COLUMNS 40
#define TEXT                                                                                                  \
    "npugraph 1\ngraph \"g\" {\n param %w : bf16[48,40]\n input %x : bf16[2,40]\n %y = aten.linear(%x, %w)\n" \
    " return \"y\" = %y\n}\n"
#define TURNED                                                                                            \
    "npugraph 1\ngraph \"t\" {\n param %w : bf16[48,40]\n input %x : bf16[2,48]\n %y = aten.mm(%x, %w)\n" \
    " return \"y\" = %y\n}\n"
/* Writes what other graphs have as a weight. */
#define WRITER                                                                                           \
    "npugraph 1\ngraph \"w\" {\n state %w : bf16[48,40]\n input %x : bf16[48,40]\n aten.copy_(%w, %x)\n" \
    " %y = aten.neg(%x)\n return \"y\" = %y\n}\n"

static void fill(uint16_t *w, int n, float seed)
{
    for (int i = 0; i < n; i++)
        w[i] = ngd_f32_to_bf16(cosf((float)i * 0.3f + seed));
}

static void write_weight(struct ngd_buffer *buffer, float seed)
{
    uint16_t w[ROWS * COLUMNS];

    fill(w, ROWS * COLUMNS, seed);
    ck_assert_int_eq(ngd_buffer_write(buffer, 0, w, sizeof(w), NULL), NGD_OK);
}

/* y of TEXT is that of a weight with this seed. */
static ngd_status_t run_of(struct ngd_stream *stream, struct ngd_instance *inst, float seed, bool eager,
                           struct ngd_diag *diag)
{
    uint16_t w[ROWS * COLUMNS], x[2 * COLUMNS], y[2 * ROWS];
    struct ngd_span in = {x, sizeof(x)};
    struct ngd_out out = {y, sizeof(y)};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out, .eager = eager};
    ngd_status_t status;

    fill(w, ROWS * COLUMNS, seed);
    fill(x, 2 * COLUMNS, 9);
    memset(y, 0xff, sizeof(y));
    status = ngd_stream_run(stream, inst, &launch);
    *diag = launch.diag;
    for (int i = 0; i < 2 && !status; i++) {
        for (int j = 0; j < ROWS; j++) {
            double sum = 0, got = (double)ngd_bf16_to_f32(y[i * ROWS + j]);

            for (int k = 0; k < COLUMNS; k++)
                sum += (double)ngd_bf16_to_f32(x[i * COLUMNS + k]) * (double)ngd_bf16_to_f32(w[j * COLUMNS + k]);
            ck_assert_msg(fabs(got - sum) <= 0.01 * COLUMNS, "[%d,%d] is %g, not %g", i, j, got, sum);
        }
    }
    return status;
}

static void check_run(struct bench *b, struct ngd_instance *inst, float seed)
{
    struct ngd_diag diag = {0};

    must(run_of(b->stream, inst, seed, false, &diag), &diag);
}

/* A graph of the same device with the weight of another one. */
static void ready_with(struct ready *r, struct bench *b, const char *text, struct ngd_buffer *weight)
{
    struct ngd_diag diag = {0};

    memset(r, 0, sizeof(*r));
    must(ready_plan(r, b, text, NULL, &diag), &diag);
    must(ngd_exec_create(b->dev, r->plan, &r->exec, &diag), &diag);
    r->bound[0] = ngd_buffer_ref(weight);
    r->n_bound = 1;
    must(ngd_instance_create(r->exec, r->bound, 1, b->pool, &r->inst, &diag), &diag);
}

START_TEST(weight_is_laid_out_once_for_all_graphs_and_never_at_a_replay)
{
    struct ngd_diag diag = {0};
    struct ready a, again, turned;
    struct bench b;
    uint64_t before;
    char *log;

    open_device(&b, true);
    simulator_set("log", "1");
    must(ready_open(&a, &b, TEXT, NULL, &diag), &diag);
    ck_assert_uint_eq(copies(&b), 1);
    write_weight(a.bound[0], 1); /* after it was bound: what was copied is outdated */
    check_run(&b, a.inst, 1);
    ck_assert_uint_eq(copies(&b), 1);
    SIMULATOR(ngd_aclsim_log_clear)();
    before = ngd_device_used_bytes(b.dev);
    ready_with(&again, &b, TEXT, a.bound[0]);
    ready_with(&turned, &b, TURNED, a.bound[0]);
    check_run(&b, again.inst, 1);
    log = SIMULATOR(ngd_aclsim_log)();
    ck_assert_int_eq(times_in(log, "aclnnTransMatmulWeight"), 0);
    ck_assert_int_eq(times_in(log, "aclnnMatmulWeightNz"), 1);
    ck_assert_int_eq(times_in(log, "aclnnMatmul"), 0);
    free(log);
    ck_assert_uint_eq(copies(&b), 1);
    ck_assert_uint_eq(ngd_device_used_bytes(b.dev), before);
    for (int i = 0; i < 3; i++) {
        SIMULATOR(ngd_aclsim_log_clear)();
        check_run(&b, a.inst, 1);
        log = SIMULATOR(ngd_aclsim_log)();
        ck_assert_int_eq(times_in(log, "aclmdlRIExecuteAsync"), 1);
        ck_assert_ptr_null(strstr(log, "aclnn"));
        ck_assert_ptr_null(strstr(log, "aclrtMalloc"));
        free(log);
    }
    ready_close(&a);
    ck_assert_uint_eq(copies(&b), 1);
    check_run(&b, again.inst, 1);
    ready_close(&again);
    ready_close(&turned);
    ck_assert_uint_eq(copies(&b), 0); /* the last one took it along */
    close_device(&b);
    nothing_is_left("shared");
}
END_TEST

START_TEST(weight_that_is_written_is_laid_out_anew_and_stays_as_it_was_written)
{
    uint16_t want[ROWS * COLUMNS], got[ROWS * COLUMNS];
    struct ngd_diag diag = {0};
    struct ready r, other;
    struct bench b;
    int64_t held = 0;

    open_device(&b, true);
    must(ready_open(&r, &b, TEXT, NULL, &diag), &diag);
    must(ready_open(&other, &b, TEXT, NULL, &diag), &diag);
    write_weight(other.bound[0], 5);
    check_run(&b, other.inst, 5);
    for (int i = 1; i <= 3; i++) {
        write_weight(r.bound[0], (float)i);
        for (int k = 0; k < 2; k++) {
            check_run(&b, r.inst, (float)i);
            check_run(&b, other.inst, 5); /* of which nothing was written */
        }
        must(run_of(b.stream, r.inst, (float)i, true, &diag), &diag);
        fill(want, ROWS * COLUMNS, (float)i);
        ck_assert_int_eq(ngd_buffer_read(r.bound[0], 0, got, sizeof(got), &diag), NGD_OK);
        ck_assert_int_eq(memcmp(got, want, sizeof(got)), 0);
        ck_assert_uint_eq(copies(&b), 2);
        /* To the byte in the budget. */
        ck_assert_uint_eq(ngd_device_used_bytes(b.dev),
                          2 * sizeof(want) + ngd_pool_bytes(b.pool) + 2 * nz_bytes(ROWS, COLUMNS));
        if (i == 1)
            held = simulator_count("bytes");
        ck_assert_int_eq(simulator_count("bytes"), held); /* with the room behind each block that CANN adds */
        ck_assert_int_ge(held, (int64_t)ngd_device_used_bytes(b.dev));
    }
    /* One element of it. */
    fill(want, ROWS * COLUMNS, 4);
    write_weight(r.bound[0], 3);
    check_run(&b, r.inst, 3);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        ck_assert_int_eq(ngd_buffer_write(r.bound[0], (uint64_t)i * 2, &want[i], i < 3 ? 2 : 0, NULL), NGD_OK);
    ck_assert_int_eq(ngd_buffer_write(r.bound[0], 6, want + 3, sizeof(want) - 6, NULL), NGD_OK);
    check_run(&b, r.inst, 4);
    ready_close(&r);
    ready_close(&other);
    ck_assert_uint_eq(ngd_device_used_bytes(b.dev), ngd_pool_bytes(b.pool));
    close_device(&b);
    nothing_is_left("written");
}
END_TEST

START_TEST(weight_that_a_bound_graph_writes_is_read_where_it_lies)
{
    uint16_t x[ROWS * COLUMNS], y[ROWS * COLUMNS];
    struct ngd_span in = {x, sizeof(x)};
    struct ngd_out out = {y, sizeof(y)};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ready r, writer, late;
    struct bench b;

    open_device(&b, true);
    must(ready_open(&r, &b, TEXT, NULL, &diag), &diag);
    write_weight(r.bound[0], 1);
    check_run(&b, r.inst, 1);
    ck_assert_uint_eq(copies(&b), 1);
    ready_with(&writer, &b, WRITER, r.bound[0]);
    for (int i = 2; i < 5; i++) {
        fill(x, ROWS * COLUMNS, (float)i);
        must(ngd_stream_run(b.stream, writer.inst, &launch), &launch.diag);
        check_run(&b, r.inst, (float)i);
        ck_assert_uint_eq(copies(&b), 0);
    }
    ready_with(&late, &b, TEXT, r.bound[0]);
    check_run(&b, late.inst, 4);
    ck_assert_uint_ge(said(&b, "written by graphs"), 2);
    ready_close(&writer);
    ready_close(&late);
    ready_with(&late, &b, TEXT, r.bound[0]);
    ck_assert_uint_eq(copies(&b), 1);
    check_run(&b, late.inst, 4);
    check_run(&b, r.inst, 4);
    ready_close(&late);
    ready_close(&r);
    close_device(&b);
    nothing_is_left("a writer");
}
END_TEST

START_TEST(without_memory_for_a_copy_the_weight_is_read_where_it_lies)
{
    struct ngd_diag diag = {0};
    struct ready r;
    struct bench b;

    /* The budget: a copy would leave less than a quarter of it. */
    must(open_with(&b, true, 10000, &diag), &diag);
    must(ready_open(&r, &b, TEXT, NULL, &diag), &diag);
    write_weight(r.bound[0], 1);
    check_run(&b, r.inst, 1);
    ck_assert_uint_eq(copies(&b), 0);
    ck_assert_uint_eq(said(&b, "for want of memory"), 1);
    ready_close(&r);
    close_device(&b);
    /* The device: for the copy, then for the workspace. The pool and the weight come before. */
    for (int i = 0; i < 2; i++) {
        open_device(&b, true);
        must(ready_open(&r, &b, TEXT, NULL, &diag), &diag);
        write_weight(r.bound[0], 1);
        SIMULATOR(ngd_aclsim_fail_call)("aclrtMalloc", i, NGD_ACL_RT_MEMORY_ALLOCATION);
        check_run(&b, r.inst, 1);
        ck_assert_uint_eq(copies(&b), 0);
        ck_assert_uint_eq(said(&b, "for want of memory"), 1);
        ck_assert_uint_eq(ngd_device_used_bytes(b.dev), sizeof(uint16_t[ROWS * COLUMNS]) + ngd_pool_bytes(b.pool));
        ready_close(&r);
        close_device(&b);
    }
    nothing_is_left("no memory");
}
END_TEST

START_TEST(weight_that_cann_does_not_take_in_nz_is_read_where_it_lies)
{
    struct product narrow = {LINEAR, 3, 1, 33, "bf16", "bf16", 1, 1};
    struct product bias = {LINEAR_BIAS, 3, 32, 33, "f16", "f16", 1, 1};
    struct bench b;
    void *y;

    open_device(&b, true);
    check_product(&b, &narrow, &y);
    free(y);
    SIMULATOR(ngd_aclsim_fail_call)("aclnnAddmmWeightNzGetWorkspaceSize", 1, NGD_ACL_NN_PARAM_INVALID);
    check_product(&b, &bias, &y);
    free(y);
    ck_assert_uint_eq(said(&b, "refused by CANN"), 1);
    close_device(&b);
    nothing_is_left("refused");
}
END_TEST

START_TEST(cann_8_1_reads_weights_where_they_lie)
{
    struct product p = {LINEAR, 3, 32, 33, "bf16", "bf16", 1, 1};
    struct ngd_strbuf sb;
    struct bench b;
    void *y;

    simulator_set("api", "8.1");
    open_device(&b, true);
    check_product(&b, &p, &y);
    free(y);
    ngd_strbuf_init(&sb);
    ngd_device_describe(b.dev, &sb);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "weights in NZ: none, this version of CANN lacks"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "aclnnMatmulWeightNz"));
    ngd_strbuf_fini(&sb);
    close_device(&b);
    simulator_set("api", "9.1");
    nothing_is_left("8.1");
}
END_TEST

/* ---- several threads ----------------------------------------------------------------------------- */

struct worker {
    struct ngd_device *dev;
    struct ready *first;
    int index;
};

/* Instances of one executable, made, run and given up beside each other's. */
static void *work(void *arg)
{
    struct worker *w = arg;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
    struct ngd_diag diag = {0};

    must(ngd_stream_create(w->dev, "worker", &stream, &diag), &diag);
    must(ngd_pool_create(w->dev, "worker", &pool), &diag);
    for (int i = 0; i < 6; i++) {
        struct ngd_instance *inst = NULL;

        must(ngd_instance_create(w->first->exec, w->first->bound, 1, pool, &inst, &diag), &diag);
        must(run_of(stream, inst, 1, false, &diag), &diag);
        must(run_of(stream, inst, 1, i % 2, &diag), &diag);
        ngd_instance_destroy(inst);
    }
    ngd_stream_destroy(stream);
    ngd_pool_destroy(pool);
    return NULL;
}

START_TEST(threads_share_a_copy_and_its_last_user_gives_it_back)
{
    struct ngd_diag diag = {0};
    struct worker w[3];
    pthread_t threads[3];
    struct ready r;
    struct bench b;

    open_device(&b, true);
    must(ready_open(&r, &b, TEXT, NULL, &diag), &diag);
    write_weight(r.bound[0], 1);
    for (int i = 0; i < 3; i++) {
        w[i] = (struct worker){b.dev, &r, i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    check_run(&b, r.inst, 1);
    ready_close(&r);
    ck_assert_uint_eq(copies(&b), 0);
    close_device(&b);
    nothing_is_left("threads");
}
END_TEST

/* ---- faults -------------------------------------------------------------------------------------- */

/* Two graphs of a weight, which is written in between. */
static ngd_status_t whole_life(void)
{
    struct ngd_diag diag = {0};
    struct ready r = {0}, other = {0};
    struct bench b;
    ngd_status_t status = open_with(&b, true, (uint64_t)1 << 28, &diag);
    uint16_t w[ROWS * COLUMNS];

    if (!status)
        status = ready_open(&r, &b, TEXT, NULL, &diag);
    if (!status)
        status = ready_open(&other, &b, TEXT, NULL, &diag);
    for (int i = 0; i < 4 && !status; i++) {
        if (i % 2 == 0) {
            fill(w, ROWS * COLUMNS, (float)i + 1);
            status = ngd_buffer_write(r.bound[0], 0, w, sizeof(w), &diag);
            if (!status && i == 0)
                status = ngd_buffer_write(other.bound[0], 0, w, sizeof(w), &diag);
        }
        if (!status)
            status = run_of(b.stream, r.inst, (float)(i / 2 * 2) + 1, i == 3, &diag);
        if (!status && i == 3)
            status = run_of(b.stream, other.inst, 1, false, &diag);
    }
    if (b.stream && ngd_stream_status(b.stream))
        ngd_stream_reset(b.stream);
    if (r.graph)
        ready_close(&r);
    if (other.graph)
        ready_close(&other);
    if (b.dev) {
        ck_assert_uint_eq(ngd_device_used_bytes(b.dev), b.pool ? ngd_pool_bytes(b.pool) : 0);
        close_device(&b);
    }
    return status;
}

START_TEST(any_call_may_fail_once_without_a_crash_a_wrong_result_or_a_leak)
{
    each_call_of_a_device_fails_once(whole_life);
}
END_TEST

/* Those that only copies of weights need: the life goes on without them. */
START_TEST(what_fails_while_a_copy_is_made_fails_no_launch)
{
    static const char *const names[] = {"aclnnCalculateMatmulWeightSizeV2", "aclnnTransMatmulWeightGetWorkspaceSize",
                                        "aclnnTransMatmulWeight", "aclnnMatmulWeightNzGetWorkspaceSize"};
    static const int codes[] = {107000, 207001, 161002};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (int nth = 0; nth < 3; nth++) {
            char when[120];

            SIMULATOR(ngd_aclsim_fail_call)(names[i], nth, codes[nth]);
            snprintf(when, sizeof(when), "call %d of %s failed", nth, names[i]);
            ck_assert_msg(whole_life() == NGD_OK, "%s", when);
            SIMULATOR(ngd_aclsim_fail_call)(NULL, -1, 0);
            nothing_is_left(when);
        }
    }
}
END_TEST

UNIT_MAIN("ascend/nz", product_with_its_weight_in_nz_is_that_of_f64_and_of_nd,
          weight_is_laid_out_once_for_all_graphs_and_never_at_a_replay,
          weight_that_is_written_is_laid_out_anew_and_stays_as_it_was_written,
          weight_that_a_bound_graph_writes_is_read_where_it_lies,
          without_memory_for_a_copy_the_weight_is_read_where_it_lies,
          weight_that_cann_does_not_take_in_nz_is_read_where_it_lies, cann_8_1_reads_weights_where_they_lie,
          threads_share_a_copy_and_its_last_user_gives_it_back,
          any_call_may_fail_once_without_a_crash_a_wrong_result_or_a_leak,
          what_fails_while_a_copy_is_made_fails_no_launch)
