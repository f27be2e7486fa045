/* SPDX-License-Identifier: Apache-2.0 */
/* Indices and rows of padding: what would be wrong does not reach the device, and is refused by name. */
#include "tests/ascend/step.h"

START_TEST(indices_outside_their_tensor_never_reach_the_device)
{
    const int64_t violations = simulator_count("violations"); /* those of other tests in the same process */
    struct step *s = malloc(sizeof(*s));
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;

    must(open_device(&b, 0, &diag), &diag);
    step_init(s, 2, 20);
    must(ready_open(&r, &b, GRAPH, &s->n, &diag), &diag);
    must(write_weight(&r), &diag);
    s->slots[1] = 64;
    ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &s->launch), NGD_ERR_INDEX_RANGE);
    s->slots[1] = -1; /* writes nothing */
    must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
    s->table[1] = 4;
    ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &s->launch), NGD_ERR_INDEX_RANGE);
    s->table[1] = 1;
    s->table[3] = -7; /* beyond the context: not read */
    must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
    s->keys = 65;
    ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &s->launch), NGD_ERR_INDEX_RANGE);
    ck_assert_int_eq(simulator_count("violations"), violations);
    ready_close(&r);
    close_device(&b);
    free(s);
}
END_TEST

/* As many bytes as the input's numbers have, of which some have a sign. */
START_TEST(copied_indices_are_read_in_their_own_width)
{
    static const struct {
        const char *dtype;
        int8_t index[4];
        ngd_status_t status;
    } cases[] = {
        {"i8", {1, 2, 1, 0}, NGD_OK},   {"i8", {-1, 0, 0, 0}, NGD_ERR_INDEX_RANGE}, {"u8", {1, 2, 1, 0}, NGD_OK},
        {"u8", {0, 0, 0, -56}, NGD_OK}, {"u8", {-1, 0, 0, 0}, NGD_ERR_INDEX_RANGE}, {"bool", {1, 1, 0, 1}, NGD_OK},
    };
    const int64_t violations = simulator_count("violations");
    float *w = malloc(sizeof(float) * 210 * 4), z[16];
    struct ngd_diag diag = {0};
    struct bench b;

    for (int i = 0; i < 210 * 4; i++)
        w[i] = (float)i;
    must(open_device(&b, 0, &diag), &diag);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        const struct ngd_span in = {cases[k].index, sizeof(cases[k].index)};
        struct ngd_out out = {z, sizeof(z)};
        struct ngd_launch launch = {.inputs = &in, .outputs = &out};
        struct ready r;
        char text[300];

        snprintf(text, sizeof(text),
                 "npugraph 1\ngraph \"i\" {\n param %%w : f32[210,4]\n input %%t : %s[4]\n"
                 " %%u = aten._to_copy(%%t) {dtype=i32}\n %%z = aten.embedding(%%w, %%u)\n return \"z\" = %%z\n}\n",
                 cases[k].dtype);
        must(ready_open(&r, &b, text, NULL, &diag), &diag);
        must(ngd_buffer_write(r.bound[0], 0, w, sizeof(float) * 210 * 4, &diag), &diag);
        ck_assert_msg(ngd_stream_run(b.stream, r.inst, &launch) == cases[k].status, "case %zu: %s", k,
                      launch.diag.text);
        for (int i = 0; i < 4 && cases[k].status == NGD_OK; i++)
            ck_assert_float_eq(z[4 * i], (float)(4 * (uint8_t)cases[k].index[i]));
        ready_close(&r);
    }
    ck_assert_int_eq(simulator_count("violations"), violations);
    close_device(&b);
    free(w);
}
END_TEST

/* A prompt of 5 rows in a graph of 16: the 11 others write nothing, with and without an operator that skips them. */
START_TEST(scattered_indices_are_read_before_the_device_does)
{
    static const char *const ops[] = {"aten.scatter.src(%x, %i, %v) {dim=0}", "aten.scatter_add(%x, %i, %v) {dim=0}",
                                      "aten.scatter.value(%x, %i) {dim=0, value=7}"};
    static const float want[3][6] = {{1, 20, 30, 4, 10, 40}, {1, 22, 33, 4, 15, 46}, {1, 7, 7, 4, 7, 7}};
    const float x[6] = {1, 2, 3, 4, 5, 6}, v[4] = {10, 20, 30, 40};
    int64_t index[4] = {2, 0, 1, 2};
    const struct ngd_span in[3] = {{x, sizeof(x)}, {index, sizeof(index)}, {v, sizeof(v)}};
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (int k = 0; k < 3; k++) {
        float y[6];
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.inputs = in, .outputs = &out};
        struct ready r;
        char text[400];

        snprintf(text, sizeof(text),
                 "npugraph 1\ngraph \"s\" {\n input %%x : f32[3,2]\n input %%i : i64[2,2]\n input %%v : f32[2,2]\n"
                 " %%y = %s\n return \"y\" = %%y\n}\n",
                 ops[k]);
        must(ready_open(&r, &b, text, NULL, &diag), &diag);
        index[3] = 2;
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        for (int i = 0; i < 6; i++)
            ck_assert_float_eq(y[i], want[k][i]);
        index[3] = 3;
        ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &launch), NGD_ERR_INDEX_RANGE);
        ck_assert_int_eq(ngd_stream_status(b.stream), NGD_OK);
        ready_close(&r);
    }
    close_device(&b);
    nothing_is_left("after scatters");
}
END_TEST

#define PUT(symbol, body)                                                                                      \
    "npugraph 1\ngraph \"p\" {\n " symbol "\n input %x : f32[3,2]\n input %i : i64[B]\n input %v : f32[B,2]\n" \
    " %y = aten.index_put(%x, %i, %v)" body "\n return \"y\" = %y\n}\n"

START_TEST(index_put_writes_the_rows_that_there_are_and_no_padding)
{
    static const float want[2][6] = {{1, 2, 30, 40, 10, 20}, {1, 2, 33, 44, 15, 26}};
    const float x[6] = {1, 2, 3, 4, 5, 6}, v[4] = {10, 20, 30, 40};
    int64_t index[2] = {2, 1}, rows = 2;
    const struct ngd_span in[3] = {{x, sizeof(x)}, {index, sizeof(index)}, {v, sizeof(v)}};
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (int k = 0; k < 2; k++) { /* the first one with two rows of padding */
        float y[6];
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.symbols = &rows, .inputs = in, .outputs = &out};
        struct ready r;

        must(ready_open(&r, &b, k ? PUT("sym B 1..8", " {accumulate=true}") : PUT("sym B 1..8 buckets 4, 8", ""), &rows,
                        &diag),
             &diag);
        index[1] = k ? -2 : 1; /* the same */
        for (int eager = 0; eager < 2; eager++) {
            launch.eager = eager;
            must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
            for (int i = 0; i < 6; i++)
                ck_assert_float_eq(y[i], want[k][i]);
        }
        for (int wrong = -4; wrong < 4; wrong += 7) {
            index[1] = wrong;
            ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &launch), NGD_ERR_INDEX_RANGE);
            ck_assert_int_eq(ngd_stream_status(b.stream), NGD_OK);
        }
        ready_close(&r);
    }
    close_device(&b);
    nothing_is_left("after index_put");
}
END_TEST

START_TEST(writes_whose_padding_would_show_are_refused_by_name)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {PUT("sym B 1..8 buckets 4, 8", " {accumulate=true}"), "would be added"},
        {PUT("sym B 0..8 buckets 4, 8", ""), "symbol B, which may be 0"},
        {"npugraph 1\ngraph \"p\" {\n sym B 0..8 buckets 4, 8\n input %x : f32[3,2]\n input %i : i64[B]\n"
         " input %v : f32[B,2]\n %y = aten.index_copy(%x, %i, %v) {dim=0}\n return \"y\" = %y\n}\n",
         "symbol B, which may be 0"},
    };
    struct bench b;
    int64_t rows = 2;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_diag diag = {0};
        struct ready r;

        must(open_device(&b, 0, &diag), &diag);
        ck_assert_msg(ready_open(&r, &b, cases[i].text, &rows, &diag) == NGD_ERR_OP_UNSUPPORTED, "%s", diag.text);
        ck_assert_msg(strstr(diag.text, cases[i].words) != NULL, "%s", diag.text);
        close_device(&b);
    }
}
END_TEST

#define COMPUTED(body)                                                                                              \
    "npugraph 1\ngraph \"c\" {\n sym B 1..8 buckets 4, 8\n state %k : f32[4,16,1,16]\n state %s : f32[4,2]\n"       \
    " input %x : f32[4,2]\n input %a : i32[B]\n input %t : f32[B,1,16]\n input %v : f32[B,2]\n input %o : i32[1]\n" \
    " %i = aten.add.Tensor(%a, %o)\n" body "}\n"

/* Scatters to columns of [4,2] whose numbers topk has chosen of the columns, or of the four rows. */
#define TOPK(dim, dtype)                                                                      \
    " %w, %n = aten.topk(%x) {k=1, dim=" dim "}\n %c = aten._to_copy(%n) {dtype=" dtype "}\n" \
    " %l = aten._to_copy(%c) {dtype=i64}\n %y = aten.scatter.value(%x, %l) {dim=1, value=1}\n"

/* `host` ends at a wrong index; a device goes on, and what comes of it must not be seen anywhere. */
START_TEST(computed_indices_whose_mistakes_would_stay_are_refused_by_name)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {COMPUTED(" %y = aten.embedding(%x, %i)\n aten.copy_(%s, %x)\n return \"y\" = %y\n"), "stay in a state"},
        {COMPUTED(" npu.scatter_pa_kv_cache(%t, %t, %i, %k, %k)\n return \"x\" = %x\n"), "slots and block tables"},
        {COMPUTED(" %y = aten.index_put(%x, %i, %v)\n return \"y\" = %y\n"), "rows of padding have computed indices"},
        {COMPUTED(" %y = aten.index_copy(%x, %i, %v) {dim=0}\n return \"y\" = %y\n"),
         "rows of padding have computed indices"},
        {COMPUTED(TOPK("-1", "i32") " aten.copy_(%s, %y)\n return \"x\" = %x\n"), NULL},
        {COMPUTED(TOPK("0", "i32") " aten.copy_(%s, %y)\n return \"x\" = %x\n"), "stay in a state"},
        {COMPUTED(TOPK("-1", "i8") " aten.copy_(%s, %y)\n return \"x\" = %x\n"), "stay in a state"},
        /* The state is written before the index is used, on both devices. */
        {COMPUTED(" aten.copy_(%s, %x)\n %y = aten.embedding(%x, %i)\n return \"y\" = %y\n"), NULL},
    };
    struct bench b;
    int64_t rows = 4;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_diag diag = {0};
        struct ready r;
        ngd_status_t status;

        must(open_device(&b, 0, &diag), &diag);
        status = ready_open(&r, &b, cases[i].text, &rows, &diag);
        ck_assert_msg(status == (cases[i].words ? NGD_ERR_OP_UNSUPPORTED : NGD_OK), "%zu: %s", i, diag.text);
        if (cases[i].words)
            ck_assert_msg(strstr(diag.text, cases[i].words) && strstr(diag.text, "node "), "%s", diag.text);
        else
            ready_close(&r);
        close_device(&b);
    }
}
END_TEST

/* A copy of topk's result is placed in the state. Until then the state has what its client wrote. */
START_TEST(a_state_that_topk_writes_later_is_no_index_before)
{
    static const char text[] =
        "npugraph 1\ngraph \"t\" {\n state %s : i32[4,1]\n input %x : f32[4,2]\n %i = aten._to_copy(%s) {dtype=i64}\n"
        " %y = aten.scatter.value(%x, %i) {dim=1, value=1}\n %w, %n = aten.topk(%x) {k=1, dim=-1}\n"
        " %c = aten._to_copy(%n) {dtype=i32}\n aten.copy_(%s, %c)\n return \"y\" = %y\n}\n";
    struct ngd_graph_options options;
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;

    ngd_graph_options_init(&options);
    must(open_device(&b, 0, &diag), &diag);
    b.options = &options;
    ck_assert_int_eq(ready_open(&r, &b, text, NULL, &diag), NGD_ERR_OP_UNSUPPORTED);
    ck_assert_msg(strstr(diag.text, "stay in a state") != NULL, "%s", diag.text);
    close_device(&b);
}
END_TEST

/* One copy more, before the operator, and two operators that keep the device from a fault. */
START_TEST(computed_indices_come_back_with_the_outputs_and_cost_others_nothing)
{
    static const char computed[] =
        "npugraph 1\ngraph \"c\" {\n param %w : f32[4,2]\n input %a : i64[2]\n input %b : i64[2]\n"
        " %i = aten.add.Tensor(%a, %b)\n %y = aten.embedding(%w, %i)\n return \"y\" = %y\n}\n",
                      given[] = "npugraph 1\ngraph \"g\" {\n param %w : f32[4,2]\n input %i : i64[2]\n"
                                " %y = aten.index.Tensor(%w, %i)\n return \"y\" = %y\n}\n";
    const int64_t a[2] = {1, 2}, wrong[2] = {1, 9}, zero[2] = {0, 0};
    const int64_t violations = simulator_count("violations");
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;
    float y[4];
    struct ngd_out out = {y, sizeof(y)};
    char *log;

    simulator_set("log", "1");
    must(open_device(&b, 0, &diag), &diag);
    for (int k = 0; k < 2; k++) {
        struct ngd_span in[2] = {{a, sizeof(a)}, {zero, sizeof(zero)}};
        struct ngd_launch launch = {.inputs = in, .outputs = &out};

        must(ready_open(&r, &b, k ? given : computed, NULL, &diag), &diag);
        SIMULATOR(ngd_aclsim_log_clear)();
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        log = SIMULATOR(ngd_aclsim_log)();
        ck_assert_int_eq(times_in(log, "aclnnRemainderTensorTensor"), k ? 0 : 1);
        ck_assert_int_eq(times_in(log, "aclrtMemcpyAsync"), k ? 2 : 4); /* inputs, output; and the indices */
        free(log);
        in[0].data = wrong;
        ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &launch), NGD_ERR_INDEX_RANGE);
        ck_assert_msg(strstr(launch.diag.text, "index 9 is outside") != NULL, "%s", launch.diag.text);
        ready_close(&r);
    }
    ck_assert_int_eq(simulator_count("violations"), violations);
    close_device(&b);
    nothing_is_left("after computed indices");
}
END_TEST

START_TEST(rows_of_padding_write_nothing_to_the_cache)
{
    static const char *const apis[] = {"9.1", "8.1"};
    struct step *s = malloc(sizeof(*s));
    uint16_t cache[2][4 * 16 * 16];
    float y[2][5 * 32];
    struct ngd_diag diag = {0};

    for (int api = 0; api < 2; api++) {
        int64_t bucket = 16;
        struct bench b;
        struct ready r;

        simulator_set("api", apis[api]);
        must(open_device(&b, 0, &diag), &diag);
        must(ready_open(&r, &b, PADDED, &bucket, &diag), &diag);
        must(write_weight(&r), &diag);
        memset(cache[api], 0x11, sizeof(cache[api]));
        must(ngd_buffer_write(r.bound[1], 0, cache[api], sizeof(cache[api]), &diag), &diag);
        step_init(s, 5, 20);
        s->slots[2] = -1;
        for (int i = 0; i < 2; i++) {
            s->launch.eager = i;
            must(ngd_stream_run(b.stream, r.inst, &s->launch), &s->launch.diag);
        }
        memcpy(y[api], s->y, sizeof(y[api]));
        must(ngd_buffer_read(r.bound[1], 0, cache[api], sizeof(cache[api]), &diag), &diag);
        for (int slot = 0; slot < 64; slot++) {
            bool written = slot >= 15 && slot < 20 && slot != 17;

            ck_assert_msg((cache[api][slot * 16] != 0x1111) == written, "slot %d of %s", slot, apis[api]);
        }
        ready_close(&r);
        close_device(&b);
        nothing_is_left(apis[api]);
    }
    ck_assert_mem_eq(cache[0], cache[1], sizeof(cache[0]));
    ck_assert_mem_eq(y[0], y[1], sizeof(y[0]));
    free(s);
}
END_TEST

/* As tests/ops/test_integers.c has them for the host. */
START_TEST(scalars_beside_integers_have_all_their_bits)
{
    static const struct {
        const char *dtype, *op;
        int64_t want[2];
    } cases[] = {
        {"i64", "aten.full_like(%x) {fill_value=9007199254740993}", {9007199254740993, 9007199254740993}},
        {"i64", "aten.masked_fill.Scalar(%x, %t) {value=-9007199254740993}", {0, -9007199254740993}},
    };
    const int64_t x[2] = {0, 1};
    const struct ngd_span in = {x, sizeof(x)};
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        int64_t y[2] = {0};
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.inputs = &in, .outputs = &out};
        struct ready r;
        char text[400];

        snprintf(text, sizeof(text),
                 "npugraph 1\ngraph \"s\" {\n input %%i : i64[2]\n %%x = aten._to_copy(%%i) {dtype=%s}\n"
                 " %%t = aten.eq.Scalar(%%x) {other=1}\n %%y = %s\n"
                 " %%z = aten._to_copy(%%y) {dtype=i64}\n return \"z\" = %%z\n}\n",
                 cases[k].dtype, cases[k].op);
        must(ready_open(&r, &b, text, NULL, &diag), &diag);
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        for (int i = 0; i < 2; i++)
            ck_assert_msg(y[i] == cases[k].want[i], "%s: %lld", cases[k].op, (long long)y[i]);
        ready_close(&r);
    }
    close_device(&b);
}
END_TEST

START_TEST(comparisons_with_scalars_have_all_their_bits)
{
    static const struct {
        const char *op;
        bool want[2];
    } cases[] = {
        {"eq.Scalar", {false, true}}, {"ne.Scalar", {true, false}},  {"lt.Scalar", {true, false}},
        {"le.Scalar", {true, true}},  {"gt.Scalar", {false, false}}, {"ge.Scalar", {false, true}},
    };
    const int64_t x[2] = {INT64_MAX - 1, INT64_MAX};
    const struct ngd_span in = {x, sizeof(x)};
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        uint8_t y[2] = {7, 7};
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.inputs = &in, .outputs = &out};
        struct ready r;
        char text[300];

        snprintf(text, sizeof(text),
                 "npugraph 1\ngraph \"s\" {\n input %%x : i64[2]\n %%y = aten.%s(%%x) {other=9223372036854775807}\n"
                 " return \"y\" = %%y\n}\n",
                 cases[k].op);
        must(ready_open(&r, &b, text, NULL, &diag), &diag);
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        ck_assert_msg(y[0] == cases[k].want[0] && y[1] == cases[k].want[1], "%s: %d %d", cases[k].op, y[0], y[1]);
        ready_close(&r);
    }
    close_device(&b);
}
END_TEST

/* ---- copies of other integers ------------------------------------------------------------------------ */

static const char *const integers[] = {"bool", "u8", "i8", "i32", "i64"};
enum { INTEGERS = sizeof(integers) / sizeof(integers[0]) };

/* "%s2", which is i32, from the input %s by way of another integer. */
static void put_copies(struct ngd_strbuf *text, const char *symbol, const char *rest, const char *from, const char *by)
{
    ngd_strbuf_printf(text,
                      "npugraph 1\ngraph \"c\" {\n %s\n input %%s : %s[N]\n %%s1 = aten._to_copy(%%s) {dtype=%s}\n"
                      " %%s2 = aten._to_copy(%%s1) {dtype=i32}\n%s}\n",
                      symbol, from, by, rest);
}

static uint64_t put_integer(char *to, const char *dtype, int64_t value)
{
    const uint64_t size = strcmp(dtype, "i64") == 0 ? 8 : strcmp(dtype, "i32") == 0 ? 4 : 1;

    memcpy(to, &value, size); /* little endian */
    return size;
}

/* Opened and run once; the status of either. result: the weights, then %y in their place; or the cache, read. */
static ngd_status_t run_copies(struct bench *b, const char *text, int64_t n, const char *index, uint64_t bytes,
                               float *result, uint64_t room, struct ngd_diag *diag)
{
    static const float x[8 * 16] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const struct ngd_span in[2] = {{x, (uint64_t)n * 64}, {index, bytes}};
    const bool cache = strstr(text, "state") != NULL;
    struct ngd_out out;
    struct ngd_launch launch = {.symbols = &n, .inputs = in + !cache, .outputs = &out};
    int64_t bucket = cache ? 8 : 1;
    ngd_status_t status;
    float output[2 * 16];
    struct ready r;

    status = ready_open(&r, b, text, &bucket, diag);
    if (status)
        return status;
    if (!cache)
        must(ngd_buffer_write(r.bound[0], 0, result, room, diag), diag);
    out = (struct ngd_out){output, cache ? (uint64_t)n * 64 : 4};
    status = ngd_stream_run(b->stream, r.inst, &launch);
    *diag = launch.diag;
    if (!cache)
        memcpy(result, output, 4);
    if (status == NGD_OK && cache)
        must(ngd_buffer_read(r.bound[0], 0, result, room, diag), diag);
    ready_close(&r);
    return status;
}

START_TEST(indices_that_a_copy_makes_smaller_are_those_of_the_host)
{
    static const int64_t values[] = {0, 1, 44, 209, 210, 255, 256, 300, -1, -56, -300};
    struct ngd_diag diag = {0};
    struct bench b, host;

    simulator_set("api", "9.1");
    bench_open(&host, NGD_ISA_SCALAR, 1);
    must(open_device(&b, 0, &diag), &diag);
    for (int from = 0; from < INTEGERS; from++)
        for (int by = 0; by < INTEGERS; by++)
            for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
                float weights[2][210];
                ngd_status_t got[2];
                struct ngd_strbuf text;
                char index[8];
                uint64_t bytes = put_integer(index, integers[from], from ? values[k] : values[k] & 1);

                ngd_strbuf_init(&text);
                put_copies(&text, "sym N 1..1\n param %w : f32[210,1]",
                           " %y = aten.embedding(%w, %s2)\n"
                           " return \"y\" = %y\n",
                           integers[from], integers[by]);
                for (int d = 0; d < 2; d++) {
                    for (int i = 0; i < 210; i++)
                        weights[d][i] = (float)i;
                    got[d] = run_copies(d ? &b : &host, ngd_strbuf_str(&text), 1, index, bytes, weights[d],
                                        sizeof(weights[d]), &diag);
                }
                ck_assert_msg(got[0] == got[1] && (got[0] || weights[0][0] == weights[1][0]),
                              "%lld, %s by %s: %s and %s: %s", (long long)values[k], integers[from], integers[by],
                              ngd_status_name(got[0]), ngd_status_name(got[1]), diag.text);
                ngd_strbuf_fini(&text);
            }
    close_device(&b);
    bench_close(&host);
}
END_TEST

/* Six rows of padding: they write nothing, or the graph is refused. */
START_TEST(slots_of_padding_are_none_in_each_integer)
{
    enum { SLOTS = 320, BYTES = SLOTS * 16 * 2 };
    const int64_t violations = simulator_count("violations");
    float *cache[2] = {malloc(BYTES), malloc(BYTES)};
    struct ngd_diag diag = {0};
    struct bench b, host;
    int refused = 0;

    simulator_set("api", "9.1");
    bench_open(&host, NGD_ISA_SCALAR, 1);
    must(open_device(&b, 0, &diag), &diag);
    for (int from = 0; from < INTEGERS; from++)
        for (int by = 0; by < INTEGERS; by++) {
            const bool narrows = by < from && !(from == 4 && by == 3), unsigned_ = from < 2;
            struct ngd_strbuf text;
            ngd_status_t status;
            char slots[16];
            uint64_t bytes = put_integer(slots, integers[from], 1);

            put_integer(slots + bytes, integers[from], 0);
            ngd_strbuf_init(&text);
            put_copies(&text, "sym N 1..8 buckets 8\n state %k : f16[20,16,1,16]\n input %x : f32[N,1,16]",
                       " npu.scatter_pa_kv_cache(%x, %x, %s2, %k, %k)\n return \"x\" = %x\n", integers[from],
                       integers[by]);
            must(run_copies(&host, ngd_strbuf_str(&text), 2, slots, 2 * bytes, cache[0], BYTES, &diag), &diag);
            status = run_copies(&b, ngd_strbuf_str(&text), 2, slots, 2 * bytes, cache[1], BYTES, &diag);
            ck_assert_msg(status == (narrows || unsigned_ || (from == 2 && by == 1) ? NGD_ERR_OP_UNSUPPORTED : NGD_OK),
                          "%s by %s: %s", integers[from], integers[by], diag.text);
            if (status == NGD_OK)
                ck_assert_mem_eq(cache[0], cache[1], BYTES);
            else
                ck_assert_msg(strstr(diag.text, "slot"), "%s", diag.text);
            refused += status != NGD_OK;
            ngd_strbuf_fini(&text);
        }
    ck_assert_int_lt(refused, INTEGERS * INTEGERS - 5);
    ck_assert_int_eq(simulator_count("violations"), violations);
    close_device(&b);
    bench_close(&host);
    free(cache[0]);
    free(cache[1]);
}
END_TEST

UNIT_MAIN("ascend/indices", indices_outside_their_tensor_never_reach_the_device,
          copied_indices_are_read_in_their_own_width, scattered_indices_are_read_before_the_device_does,
          index_put_writes_the_rows_that_there_are_and_no_padding, writes_whose_padding_would_show_are_refused_by_name,
          computed_indices_whose_mistakes_would_stay_are_refused_by_name,
          a_state_that_topk_writes_later_is_no_index_before,
          computed_indices_come_back_with_the_outputs_and_cost_others_nothing,
          rows_of_padding_write_nothing_to_the_cache, scalars_beside_integers_have_all_their_bits,
          comparisons_with_scalars_have_all_their_bits, indices_that_a_copy_makes_smaller_are_those_of_the_host,
          slots_of_padding_are_none_in_each_integer)
