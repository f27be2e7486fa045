/* SPDX-License-Identifier: Apache-2.0 */
/* Instantiation and replay: results, bound buffers, host parameters, rows, and what is refused before a launch. */
#include "tests/backend/conform.h"
#include <math.h>

/* ---- results ---- */

/* A graph like a piece of a decoder, with views, casts, a matrix, a norm and a reduction in one plan. */
#define CHAIN                                                                                                          \
    "npugraph 1\ngraph \"chain\" {\n param %w : f32[8,6]\n param %g : f32[6]\n input %x : f32[5,6]\n"                  \
    " input %r : f32[5,1]\n %n, %q = npu.rms_norm(%x, %g)\n %m = aten.linear(%n, %w)\n"                                \
    " %b = aten.mul.Tensor(%m, %r)\n %s = aten.silu(%b)\n %t = aten.t(%s)\n %u = aten.sum.dim_IntList(%t) {dim=[1]}\n" \
    " %p = aten._softmax(%s) {dim=-1}\n return \"p\" = %p, \"u\" = %u, \"n\" = %n\n}\n"

static float wave(uint32_t i, float scale)
{
    return scale * sinf((float)(i * 7 % 31) + 0.25f);
}

struct chain {
    float w[48], g[6], x[30], r[5], p[40], u[8], n[30];
    struct ready ready;
    struct conform_io io;
};

static void chain_open(struct chain *k, struct conform *c)
{
    memset(k, 0, sizeof(*k));
    for (uint32_t i = 0; i < 48; i++)
        k->w[i] = wave(i, 0.5f);
    for (uint32_t i = 0; i < 6; i++)
        k->g[i] = 1 + wave(i, 0.1f);
    for (uint32_t i = 0; i < 30; i++)
        k->x[i] = wave(i + 3, 2);
    for (uint32_t i = 0; i < 5; i++)
        k->r[i] = wave(i + 9, 1);
    conform_ready(&k->ready, c, CHAIN, NULL);
    CONFORM_OK(ngd_buffer_write(k->ready.bound[0], 0, k->w, sizeof(k->w), &diag_));
    CONFORM_OK(ngd_buffer_write(k->ready.bound[1], 0, k->g, sizeof(k->g), &diag_));
    conform_io_init(&k->io, NULL);
    k->io.in[0] = (struct ngd_span){k->x, sizeof(k->x)};
    k->io.in[1] = (struct ngd_span){k->r, sizeof(k->r)};
    k->io.out[0] = (struct ngd_out){k->p, sizeof(k->p)};
    k->io.out[1] = (struct ngd_out){k->u, sizeof(k->u)};
    k->io.out[2] = (struct ngd_out){k->n, sizeof(k->n)};
}

/* Computes the reference in double, operator by operator. */
static void chain_reference(const struct chain *k, double *p, double *u, double *n)
{
    memset(u, 0, 8 * sizeof(*u));
    for (int i = 0; i < 5; i++) {
        double square = 0, sum = 0, s[8];

        for (int j = 0; j < 6; j++)
            square += (double)k->x[i * 6 + j] * k->x[i * 6 + j] / 6;
        for (int j = 0; j < 6; j++)
            n[i * 6 + j] = k->x[i * 6 + j] / sqrt(square + 1e-6) * k->g[j];
        for (int o = 0; o < 8; o++) {
            double v = 0;

            for (int j = 0; j < 6; j++)
                v += n[i * 6 + j] * k->w[o * 6 + j];
            v *= k->r[i];
            s[o] = v / (1 + exp(-v));
            u[o] += s[o];
            sum += exp(s[o]);
        }
        for (int o = 0; o < 8; o++)
            p[i * 8 + o] = exp(s[o]) / sum;
    }
}

static void chain_check(const struct chain *k, double tolerance)
{
    double p[40], u[8], n[30];

    chain_reference(k, p, u, n);
    for (int i = 0; i < 40; i++)
        ck_assert_double_eq_tol(k->p[i], p[i], 1e-5 * tolerance);
    for (int i = 0; i < 8; i++)
        ck_assert_double_eq_tol(k->u[i], u[i], 1e-5 * tolerance);
    for (int i = 0; i < 30; i++)
        ck_assert_double_eq_tol(k->n[i], n[i], 1e-5 * tolerance);
}

START_TEST(replay_of_a_chain_of_operators_is_right_each_time)
{
    struct chain k;
    struct conform c;

    conform_open(&c, _i);
    chain_open(&k, &c);
    for (int round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 30; i++)
            k.x[i] = wave(i + (uint32_t)round * 11, 1 + (float)round);
        CONFORM_OK(ngd_stream_run(c.b.stream, k.ready.inst, &k.io.launch));
        ck_assert_int_gt(k.io.launch.device_time, 0);
        chain_check(&k, c.backend->tolerance);
    }
    ready_close(&k.ready);
    conform_close(&c);
}
END_TEST

START_TEST(eager_run_gives_the_bits_of_the_replay)
{
    struct chain k, e;
    struct conform c;

    conform_open(&c, _i);
    chain_open(&k, &c);
    CONFORM_OK(ngd_stream_run(c.b.stream, k.ready.inst, &k.io.launch));
    e = k;
    memset(e.p, 0, sizeof(e.p));
    memset(e.u, 0, sizeof(e.u));
    memset(e.n, 0, sizeof(e.n));
    conform_io_init(&e.io, NULL);
    e.io.in[0] = k.io.in[0];
    e.io.in[1] = k.io.in[1];
    e.io.out[0] = (struct ngd_out){e.p, sizeof(e.p)};
    e.io.out[1] = (struct ngd_out){e.u, sizeof(e.u)};
    e.io.out[2] = (struct ngd_out){e.n, sizeof(e.n)};
    e.io.launch.eager = true;
    CONFORM_OK(ngd_stream_run(c.b.stream, k.ready.inst, &e.io.launch));
    ck_assert_mem_eq(e.p, k.p, sizeof(k.p));
    ck_assert_mem_eq(e.u, k.u, sizeof(k.u));
    ck_assert_mem_eq(e.n, k.n, sizeof(k.n));
    CONFORM_OK(ngd_stream_run(c.b.stream, k.ready.inst, &k.io.launch)); /* the next replay works as before */
    ck_assert_mem_eq(e.p, k.p, sizeof(k.p));
    ready_close(&k.ready);
    conform_close(&c);
}
END_TEST

START_TEST(result_that_is_not_wanted_is_not_copied)
{
    struct chain k;
    struct conform c;

    conform_open(&c, _i);
    chain_open(&k, &c);
    k.io.out[0] = (struct ngd_out){NULL, 0};
    k.io.out[2] = (struct ngd_out){NULL, 0};
    CONFORM_OK(ngd_launch_check(k.ready.plan, &k.io.launch, 2, 0, 3, &diag_));
    CONFORM_OK(ngd_stream_run(c.b.stream, k.ready.inst, &k.io.launch));
    for (int i = 0; i < 40; i++)
        ck_assert_float_eq(k.p[i], 0);
    ck_assert_float_ne(k.u[0], 0);
    ready_close(&k.ready);
    conform_close(&c);
}
END_TEST

START_TEST(output_room_that_is_larger_than_the_result_keeps_its_rest)
{
    struct conform c;
    struct conform_double d;
    float room[8];

    conform_open(&c, _i);
    conform_double_open(&d, &c, 1);
    for (int i = 0; i < 8; i++)
        room[i] = -7;
    d.io.out[0] = (struct ngd_out){room, sizeof(room)};
    CONFORM_OK(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch));
    ck_assert_float_eq(room[3], 8);
    for (int i = 4; i < 8; i++)
        ck_assert_float_eq(room[i], -7);
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

/* ---- bound buffers ---- */

#define COUNTER                                                                                      \
    "npugraph 1\ngraph \"counter\" {\n param %by : f32[3]\n state %s : f32[3]\n input %x : f32[3]\n" \
    " %t = aten.add.Tensor(%s, %by)\n aten.copy_(%s, %t)\n %y = aten.mul.Tensor(%t, %x)\n return \"y\" = %y\n}\n"

START_TEST(state_written_by_a_replay_is_there_for_the_next_and_for_a_read)
{
    struct conform c;
    struct ready r;
    struct conform_io io;
    const float by[3] = {1, 10, 100}, x[3] = {1, 2, 3};
    float y[3], s[3] = {0.5f, 0, 0};

    conform_open(&c, _i);
    conform_ready(&r, &c, COUNTER, NULL);
    CONFORM_OK(ngd_buffer_write(r.bound[0], 0, by, sizeof(by), &diag_));
    CONFORM_OK(ngd_buffer_write(r.bound[1], 0, s, sizeof(s), &diag_));
    conform_io_init(&io, NULL);
    io.in[0] = (struct ngd_span){x, sizeof(x)};
    io.out[0] = (struct ngd_out){y, sizeof(y)};
    for (int round = 1; round <= 4; round++) {
        io.launch.eager = round == 3;
        CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
        CONFORM_OK(ngd_buffer_read(r.bound[1], 0, s, sizeof(s), &diag_));
        ck_assert_float_eq(s[0], 0.5f + (float)round);
        ck_assert_float_eq(s[2], 100 * (float)round);
        ck_assert_float_eq(y[2], 300 * (float)round);
    }
    s[0] = 7; /* the next replay must see this write */
    CONFORM_OK(ngd_buffer_write(r.bound[1], 0, s, 4, &diag_));
    CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
    ck_assert_float_eq(y[0], 8);
    ready_close(&r);
    conform_close(&c);
}
END_TEST

/* Writes as transformers' StaticCache does, one position a step. A wrong position leaves the cache as it was. */
START_TEST(static_cache_takes_what_each_step_puts_at_its_position)
{
    static const int64_t positions[] = {0, 1, 5, 3, 6, -1, 2};
    struct conform c;
    struct ready r;
    struct conform_io io;
    float cache[2][6][2], want[2][6][2], given[2][2], y[2][6][2];

    conform_open(&c, _i);
    conform_ready(&r, &c,
                  "npugraph 1\ngraph \"cache\" {\n state %c : f32[1,2,6,2]\n input %p : i64[1]\n"
                  " input %k : f32[1,2,1,2]\n %n = aten.index_copy(%c, %p, %k) {dim=2}\n aten.copy_(%c, %n)\n"
                  " %y = aten.add.Tensor(%c, %c)\n return \"y\" = %y\n}\n",
                  NULL);
    for (int i = 0; i < 24; i++)
        (&want[0][0][0])[i] = (float)(i + 1);
    CONFORM_OK(ngd_buffer_write(r.bound[0], 0, want, sizeof(want), &diag_));
    conform_io_init(&io, NULL);
    io.in[1] = (struct ngd_span){given, sizeof(given)};
    io.out[0] = (struct ngd_out){y, sizeof(y)};
    for (int step = 0; step < 7; step++) {
        const int64_t at = positions[step];
        const bool good = at >= 0 && at < 6;

        for (int i = 0; i < 4; i++) {
            given[i / 2][i % 2] = (float)(100 * step + i);
            if (good)
                want[i / 2][at][i % 2] = given[i / 2][i % 2];
        }
        io.in[0] = (struct ngd_span){&at, sizeof(at)};
        io.launch.eager = step == 3;
        ck_assert_int_eq(ngd_stream_run(c.b.stream, r.inst, &io.launch), good ? NGD_OK : NGD_ERR_INDEX_RANGE);
        CONFORM_OK(ngd_buffer_read(r.bound[0], 0, cache, sizeof(cache), &diag_));
        ck_assert_mem_eq(cache, want, sizeof(want));
        for (int i = 0; i < 24 && good; i++)
            ck_assert_float_eq((&y[0][0][0])[i], 2 * (&want[0][0][0])[i]);
    }
    ready_close(&r);
    conform_close(&c);
}
END_TEST

START_TEST(instances_of_one_executable_keep_their_buffers_apart)
{
    struct conform c;
    struct ready r;
    struct ngd_buffer *other[2];
    struct ngd_instance *second = NULL;
    struct conform_io io;
    const float by[2][3] = {{1, 1, 1}, {5, 5, 5}}, x[3] = {1, 1, 1};
    float y[3];

    conform_open(&c, _i);
    conform_ready(&r, &c, COUNTER, NULL);
    CONFORM_OK(ngd_buffer_write(r.bound[0], 0, by[0], sizeof(by[0]), &diag_));
    other[0] = conform_buffer(&c, by[1], sizeof(by[1]), "by");
    other[1] = conform_buffer(&c, NULL, sizeof(by[1]), "s");
    CONFORM_OK(ngd_instance_create(r.exec, other, 2, c.b.pool, &second, &diag_));
    ck_assert_ptr_eq(ngd_instance_exec(second), r.exec);
    ngd_buffer_unref(other[0]); /* the instance holds a reference */
    ngd_buffer_unref(other[1]);
    conform_io_init(&io, NULL);
    io.in[0] = (struct ngd_span){x, sizeof(x)};
    io.out[0] = (struct ngd_out){y, sizeof(y)};
    for (int round = 1; round <= 3; round++) {
        CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
        ck_assert_float_eq(y[0], (float)round);
        CONFORM_OK(ngd_stream_run(c.b.stream, second, &io.launch));
        ck_assert_float_eq(y[0], 5 * (float)round);
    }
    ngd_instance_destroy(second);
    ngd_instance_destroy(NULL);
    ready_close(&r);
    conform_close(&c);
}
END_TEST

START_TEST(instance_keeps_its_executable_and_its_plan_alive)
{
    struct conform c;
    struct conform_double d;

    conform_open(&c, _i);
    conform_double_open(&d, &c, 4);
    ck_assert_ptr_eq(ngd_exec_plan(d.r.exec), d.r.plan);
    ck_assert_uint_gt(ngd_exec_bytes(d.r.exec), 0);
    ck_assert_ptr_eq(ngd_exec_ref(d.r.exec), d.r.exec);
    ck_assert_ptr_null(ngd_exec_unref(d.r.exec));
    d.r.exec = ngd_exec_unref(d.r.exec);
    d.r.plan = ngd_plan_unref(d.r.plan);
    ngd_graph_unref(d.r.graph);
    d.r.graph = NULL;
    CONFORM_OK(ngd_stream_run(c.b.stream, d.r.inst, &d.io.launch));
    conform_double_check(&d);
    ck_assert_ptr_null(ngd_exec_unref(NULL));
    conform_double_close(&d);
    conform_close(&c);
}
END_TEST

START_TEST(buffers_that_do_not_fit_a_graph_are_refused_by_name)
{
    struct conform c;
    struct ready r;
    struct ngd_instance *inst = NULL;
    struct ngd_buffer *small, *bound[3];
    struct ngd_diag diag = {0};

    conform_open(&c, _i);
    conform_ready(&r, &c, COUNTER, NULL);
    small = conform_buffer(&c, NULL, 11, "too small");
    bound[0] = r.bound[0];
    bound[1] = bound[2] = r.bound[1];
    ck_assert_int_eq(ngd_instance_create(r.exec, bound, 1, c.b.pool, &inst, &diag), NGD_ERR_BINDING_MISSING);
    conform_says(diag.text, "counter|2 buffers|not 1");
    ck_assert_int_eq(ngd_instance_create(r.exec, bound, 3, c.b.pool, &inst, &diag), NGD_ERR_BINDING_MISMATCH);
    bound[1] = NULL;
    ck_assert_int_eq(ngd_instance_create(r.exec, bound, 2, c.b.pool, &inst, &diag), NGD_ERR_BINDING_MISSING);
    conform_says(diag.text, "\"s\"|counter|no buffer");
    bound[1] = small;
    ck_assert_int_eq(ngd_instance_create(r.exec, bound, 2, c.b.pool, &inst, &diag), NGD_ERR_BINDING_MISMATCH);
    conform_says(diag.text, "too small|11 bytes|\"s\"|needs 12");
    ck_assert_int_eq(ngd_instance_create(r.exec, bound, 2, c.b.pool, &inst, NULL), NGD_ERR_BINDING_MISMATCH);
    ck_assert_ptr_null(inst);
    ck_assert(ngd_buffer_is_last(small));
    ngd_buffer_unref(small);
    ready_close(&r);
    conform_close(&c);
}
END_TEST

/* ---- host parameters ---- */

#define HEADS 2
#define DIM   16
#define BLOCK 16 /* devices take blocks of a multiple of 16, and caches of half precision */
#define TABLE 4
#define CACHE (5 * BLOCK * DIM)
#define ATTEND                                                                                               \
    "npugraph 1\ngraph \"attend\" {\n param %k : f16[5,16,1,16]\n param %v : f16[5,16,1,16]\n"               \
    " input %q : f16[1,2,16]\n input %bt : i32[1,4]\n host %ql : i64[1]\n host %kl : i64[1]\n"               \
    " %y = npu.fused_infer_attention_score(%q, %k, %v, %bt, %ql, %kl) {num_heads=2, num_key_value_heads=1, " \
    "scale=0.5, block_size=16}\n return \"y\" = %y\n}\n"

static void attend_reference(const uint16_t *q, const uint16_t *k, const uint16_t *v, const int32_t *table,
                             int64_t length, double *y)
{
    for (int h = 0; h < HEADS; h++) {
        double score[TABLE * BLOCK], sum = 0, top = -INFINITY;

        for (int64_t t = 0; t < length; t++) {
            const uint16_t *row = k + (table[t / BLOCK] * BLOCK + t % BLOCK) * DIM;

            score[t] = 0;
            for (int d = 0; d < DIM; d++)
                score[t] += 0.5 * (double)ngd_f16_to_f32(q[h * DIM + d]) * (double)ngd_f16_to_f32(row[d]);
            top = fmax(top, score[t]);
        }
        for (int64_t t = 0; t < length; t++)
            sum += score[t] = exp(score[t] - top);
        for (int d = 0; d < DIM; d++) {
            y[h * DIM + d] = 0;
            for (int64_t t = 0; t < length; t++)
                y[h * DIM + d] +=
                    score[t] / sum * (double)ngd_f16_to_f32(v[(table[t / BLOCK] * BLOCK + t % BLOCK) * DIM + d]);
        }
    }
}

static void check_half(uint16_t got, double want, double tolerance)
{
    ck_assert_double_eq_tol((double)ngd_f16_to_f32(got), want, 2e-3 * fmax(1, fabs(want)) * tolerance);
}

/*
 * There is one executable and one instance: nothing is captured again, and every launch has the lengths that it was
 * given.
 */
START_TEST(host_parameters_change_at_each_replay_without_a_capture)
{
    static const int64_t lengths[] = {1, 64, 18, 16, 47, 1, 33, 32, 48, 64};
    const int32_t table[TABLE] = {3, 0, 4, 1};
    uint16_t k[CACHE], v[CACHE], q[HEADS * DIM], y[HEADS * DIM];
    int64_t one = 1, length;
    struct conform_io io;
    struct conform c;
    struct ready r;

    for (uint32_t i = 0; i < CACHE; i++) {
        k[i] = ngd_f32_to_f16(wave(i, 1));
        v[i] = ngd_f32_to_f16(wave(i + 17, 3));
    }
    for (uint32_t i = 0; i < HEADS * DIM; i++)
        q[i] = ngd_f32_to_f16(wave(i + 5, 2));
    conform_open(&c, _i);
    conform_ready(&r, &c, ATTEND, NULL);
    CONFORM_OK(ngd_buffer_write(r.bound[0], 0, k, sizeof(k), &diag_));
    CONFORM_OK(ngd_buffer_write(r.bound[1], 0, v, sizeof(v), &diag_));
    conform_io_init(&io, NULL);
    io.in[0] = (struct ngd_span){q, sizeof(q)};
    io.in[1] = (struct ngd_span){table, sizeof(table)};
    io.hosts[0] = (struct ngd_host_value){&one, 1};
    io.hosts[1] = (struct ngd_host_value){&length, 1};
    io.out[0] = (struct ngd_out){y, sizeof(y)};
    for (size_t i = 0; i < 2 * sizeof(lengths) / sizeof(lengths[0]); i++) {
        double want[HEADS * DIM];

        length = lengths[i / 2];
        io.launch.eager = i % 2;
        CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
        attend_reference(q, k, v, table, length, want);
        for (int e = 0; e < HEADS * DIM; e++)
            check_half(y[e], want[e], c.backend->tolerance);
    }
    ready_close(&r);
    conform_close(&c);
}
END_TEST

/* The launches are queued together, each with its own values. A later update must not affect an earlier launch. */
START_TEST(host_parameters_of_queued_launches_stay_with_their_launch)
{
    enum { N = 8 };
    const int32_t table[TABLE] = {0, 1, 2, 3};
    uint16_t k[CACHE], v[CACHE], q[HEADS * DIM], y[N][HEADS * DIM];
    int64_t one = 1, lengths[N];
    static struct conform_io io[N];
    struct conform_gate gate;
    struct conform c;
    struct ready r;

    for (uint32_t i = 0; i < CACHE; i++) {
        k[i] = ngd_f32_to_f16(wave(i, 1));
        v[i] = ngd_f32_to_f16((float)i);
    }
    for (uint32_t i = 0; i < HEADS * DIM; i++)
        q[i] = ngd_f32_to_f16(wave(i, 1));
    conform_open(&c, _i);
    conform_ready(&r, &c, ATTEND, NULL);
    CONFORM_OK(ngd_buffer_write(r.bound[0], 0, k, sizeof(k), &diag_));
    CONFORM_OK(ngd_buffer_write(r.bound[1], 0, v, sizeof(v), &diag_));
    conform_gate_close_on(&gate, c.b.stream);
    for (int i = 0; i < N; i++) {
        lengths[i] = 1 + i * 24 % 64;
        conform_io_init(&io[i], NULL);
        io[i].in[0] = (struct ngd_span){q, sizeof(q)};
        io[i].in[1] = (struct ngd_span){table, sizeof(table)};
        io[i].hosts[0] = (struct ngd_host_value){&one, 1};
        io[i].hosts[1] = (struct ngd_host_value){&lengths[i], 1};
        io[i].out[0] = (struct ngd_out){y[i], sizeof(y[i])};
        CONFORM_OK(ngd_stream_launch(c.b.stream, r.inst, &io[i].launch));
    }
    conform_gate_open(&gate);
    CONFORM_OK(ngd_stream_sync(c.b.stream));
    for (int i = 0; i < N; i++) {
        double want[HEADS * DIM];

        CONFORM_OK(io[i].launch.status);
        attend_reference(q, k, v, table, lengths[i], want);
        for (int e = 0; e < HEADS * DIM; e++)
            check_half(y[i][e], want[e], c.backend->tolerance);
    }
    ready_close(&r);
    conform_close(&c);
}
END_TEST

/* ---- rows of a bucketed symbol ---- */

#define ROWS                                                                                                \
    "npugraph 1\ngraph \"rows\" {\n sym N 1..9 buckets 4, 9\n param %w : f32[3,5]\n input %x : f32[N,5]\n"  \
    " input %e : i32[N]\n %m = aten.linear(%x, %w)\n %y = aten.exp(%m)\n %p = aten._softmax(%y) {dim=-1}\n" \
    " %d = aten.add.Tensor(%e, %e)\n return \"p\" = %p, \"d\" = %d\n}\n"

START_TEST(rows_that_are_asked_for_are_the_rows_that_are_computed)
{
    float w[15], x[45], p[10][30], all[27];
    int32_t e[9], d[10];
    struct conform_io io;
    struct conform c;

    conform_open(&c, _i);
    for (uint32_t i = 0; i < 15; i++)
        w[i] = wave(i, 1);
    for (uint32_t i = 0; i < 45; i++)
        x[i] = wave(i, 2);
    for (int i = 0; i < 9; i++)
        e[i] = i + 1;
    for (int64_t bucket = 4; bucket <= 9; bucket += 5) {
        struct ready r;

        conform_ready(&r, &c, ROWS, &bucket);
        ck_assert_int_eq(r.plan->symbols[0], bucket);
        CONFORM_OK(ngd_buffer_write(r.bound[0], 0, w, sizeof(w), &diag_));
        for (int64_t n = bucket; n >= 1; n--) {
            for (int i = 0; i < 30; i++)
                p[n][i] = -7;
            memset(d, 0x55, sizeof(d));
            conform_io_init(&io, &n);
            io.in[0] = (struct ngd_span){x, (uint64_t)n * 20};
            io.in[1] = (struct ngd_span){e, (uint64_t)n * 4};
            io.out[0] = (struct ngd_out){p[n], (uint64_t)n * 12};
            io.out[1] = (struct ngd_out){d, (uint64_t)n * 4};
            ck_assert_uint_eq(ngd_plan_output_bytes(r.plan, 0, &n), (uint64_t)n * 12);
            CONFORM_OK(ngd_launch_check(r.plan, &io.launch, 2, 0, 2, &diag_));
            io.launch.eager = n % 2;
            CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
            for (int i = 0; i < n; i++)
                ck_assert_int_eq(d[i], 2 * (i + 1));
            ck_assert_int_eq(d[n], 0x55555555);
            ck_assert_float_eq(p[n][n * 3], -7);
            if (bucket == 9 && n == 9)
                memcpy(all, p[n], sizeof(all));
            for (int64_t i = 0; bucket == 9 && i < n * 3; i++) /* a row does not depend on how many there are */
                ck_assert(c.backend->exact_rows ? p[n][i] == all[i]
                                                : fabsf(p[n][i] - all[i]) <= 1e-5 * c.backend->tolerance);
        }
        ready_close(&r);
    }
    conform_close(&c);
}
END_TEST

/* ---- what is refused before a launch ---- */

START_TEST(launch_whose_data_does_not_fit_is_refused_by_name)
{
    float x[45] = {0}, p[27];
    int32_t e[9] = {0}, d[9];
    int64_t n = 3, bucket = 4, values[2] = {1, 1};
    struct conform_io io;
    struct conform c;
    struct ready r, a;
    struct ngd_diag diag = {0};

    conform_open(&c, _i);
    conform_ready(&r, &c, ROWS, &bucket);
    conform_io_init(&io, &n);
    io.in[0] = (struct ngd_span){x, 60};
    io.in[1] = (struct ngd_span){e, 12};
    io.out[0] = (struct ngd_out){p, 36};
    io.out[1] = (struct ngd_out){d, 12};
    CONFORM_OK(ngd_launch_check(r.plan, &io.launch, 2, 0, 2, &diag_));
    ck_assert_int_eq(ngd_launch_check(r.plan, &io.launch, 1, 0, 2, &diag), NGD_ERR_INPUT_COUNT);
    conform_says(diag.text, "rows|2 inputs|not 1");
    ck_assert_int_eq(ngd_launch_check(r.plan, &io.launch, 2, 1, 2, &diag), NGD_ERR_HOST_PARAM);
    ck_assert_int_eq(ngd_launch_check(r.plan, &io.launch, 2, 0, 3, &diag), NGD_ERR_OUTPUT_UNKNOWN);
    io.in[0].bytes = 61;
    ck_assert_int_eq(ngd_launch_check(r.plan, &io.launch, 2, 0, 2, &diag), NGD_ERR_INPUT_SIZE);
    conform_says(diag.text, "\"x\"|61 bytes|60");
    io.in[0] = (struct ngd_span){NULL, 60};
    ck_assert_int_eq(ngd_launch_check(r.plan, &io.launch, 2, 0, 2, &diag), NGD_ERR_INPUT_SIZE);
    io.in[0] = (struct ngd_span){x, 60};
    io.out[0].bytes = 35;
    ck_assert_int_eq(ngd_launch_check(r.plan, &io.launch, 2, 0, 2, &diag), NGD_ERR_INVALID_ARGUMENT);
    conform_says(diag.text, "\"p\"|35 bytes|36");
    io.out[0].bytes = 36;
    for (int i = 0; i < 4; i++) {
        static const int64_t outside[] = {0, -1, 5, INT64_MAX};

        n = outside[i];
        ck_assert_int_eq(ngd_launch_check(r.plan, &io.launch, 2, 0, 2, &diag), NGD_ERR_GUARD_FAILED);
        conform_says(diag.text, "N");
    }
    io.launch.symbols = NULL;
    ck_assert_int_eq(ngd_launch_check(r.plan, &io.launch, 2, 0, 2, NULL), NGD_ERR_GUARD_FAILED);
    ready_close(&r);
    conform_ready(&a, &c, ATTEND, NULL);
    conform_io_init(&io, NULL);
    io.in[0] = (struct ngd_span){x, 64};
    io.in[1] = (struct ngd_span){e, 16};
    io.out[0] = (struct ngd_out){p, 64};
    io.hosts[0] = (struct ngd_host_value){values, 1};
    io.hosts[1] = (struct ngd_host_value){values, 2};
    ck_assert_int_eq(ngd_launch_check(a.plan, &io.launch, 2, 2, 1, &diag), NGD_ERR_HOST_PARAM);
    conform_says(diag.text, "\"kl\"|2 values|needs 1");
    io.hosts[1] = (struct ngd_host_value){NULL, 1};
    ck_assert_int_eq(ngd_launch_check(a.plan, &io.launch, 2, 2, 1, &diag), NGD_ERR_HOST_PARAM);
    ready_close(&a);
    conform_close(&c);
}
END_TEST

START_TEST(launch_that_pauses_lets_others_run_and_goes_on_to_the_same_bits)
{
    struct chain whole, k, other;
    struct conform c;
    struct ngd_stream *stream = NULL;
    uint32_t pauses = 0;

    conform_open(&c, _i);
    chain_open(&whole, &c);
    chain_open(&k, &c);
    chain_open(&other, &c);
    CONFORM_OK(ngd_stream_create(c.b.dev, "goes on", &stream, &diag_));
    CONFORM_OK(ngd_stream_run(c.b.stream, whole.ready.inst, &whole.io.launch));
    for (int round = 0; round < 2; round++) {
        k.io.launch.pause_at = 1; /* it has passed, so there is a pause after each call */
        pauses = 0;
        do {
            CONFORM_OK(ngd_stream_run(pauses % 2 ? c.b.stream : stream, k.ready.inst, &k.io.launch));
            ck_assert_int_gt(k.io.launch.device_time, 0);
            memset(k.x, 0xff, sizeof(k.x)); /* allowed, since the inputs have been copied */
            if (!k.io.launch.paused)
                break;
            pauses++;
            CONFORM_OK(ngd_stream_run(c.b.stream, other.ready.inst, &other.io.launch));
            chain_check(&other, c.backend->tolerance);
        } while (pauses < 1000);
        ck_assert_mem_eq(k.p, whole.p, sizeof(k.p));
        ck_assert_mem_eq(k.u, whole.u, sizeof(k.u));
        ck_assert_mem_eq(k.n, whole.n, sizeof(k.n));
        memcpy(k.x, whole.x, sizeof(k.x));
        memset(k.p, 0, sizeof(k.p));
    }
    if (ngd_device_info(c.b.dev)->pauses)
        ck_assert_uint_ge(pauses, 3);
    /* With enough time there is no pause. */
    k.io.launch.pause_at = NGD_NSEC_NEVER;
    CONFORM_OK(ngd_stream_run(c.b.stream, k.ready.inst, &k.io.launch));
    ck_assert(!k.io.launch.paused);
    chain_check(&k, c.backend->tolerance);
    ngd_stream_destroy(stream);
    ready_close(&k.ready);
    ready_close(&whole.ready);
    ready_close(&other.ready);
    conform_close(&c);
}
END_TEST

TCase *conform_replay(void)
{
    TCase *tcase = tcase_create("replay");

    CONFORM_ADD(tcase, replay_of_a_chain_of_operators_is_right_each_time, eager_run_gives_the_bits_of_the_replay,
                result_that_is_not_wanted_is_not_copied, output_room_that_is_larger_than_the_result_keeps_its_rest,
                state_written_by_a_replay_is_there_for_the_next_and_for_a_read,
                static_cache_takes_what_each_step_puts_at_its_position,
                instances_of_one_executable_keep_their_buffers_apart, instance_keeps_its_executable_and_its_plan_alive,
                buffers_that_do_not_fit_a_graph_are_refused_by_name,
                host_parameters_change_at_each_replay_without_a_capture,
                host_parameters_of_queued_launches_stay_with_their_launch,
                rows_that_are_asked_for_are_the_rows_that_are_computed,
                launch_that_pauses_lets_others_run_and_goes_on_to_the_same_bits,
                launch_whose_data_does_not_fit_is_refused_by_name);
    return tcase;
}
