/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over a paged cache on chips and versions: which way each shape takes, and that each way gives what its
 * definition gives, on a simulator that refuses what the public tiling code refuses.
 */
#include "tests/ascend/simulated.h"
#include "tests/ops/attention_case.h"

#define LIMIT_MS "20000"

enum way { ROWS, PREFILL, RAGGED, PARTS };

static const char *const ways[] = {"one row for each sequence (BSH)", "one padded sequence (BSH)",
                                   "several sequences (TND)", "made of other operators"};

/* Sequences have the rows and keys, and cache and table the sizes, that decide. */
static const struct attention_shape several = {.heads = 4,
                                               .kv_heads = 2,
                                               .d = 128,
                                               .block_size = 128,
                                               .n_seqs = 3,
                                               .rows = {5, 0, 2},
                                               .keys = {300, 1, 2},
                                               .blocks = 12,
                                               .table_width = 3};
static const struct attention_shape single = {.heads = 4,
                                              .kv_heads = 2,
                                              .d = 48,
                                              .block_size = 128,
                                              .n_seqs = 1,
                                              .rows = {21},
                                              .keys = {301},
                                              .blocks = 3,
                                              .table_width = 3};
static const struct attention_shape steps = {.heads = 4,
                                             .kv_heads = 2,
                                             .d = 64,
                                             .block_size = 16,
                                             .n_seqs = 3,
                                             .rows = {1, 1, 1},
                                             .keys = {1, 40, 17},
                                             .blocks = 5,
                                             .table_width = 3};

static struct bench opened(const char *soc, const char *api)
{
    struct ngd_diag diag = {0};
    struct bench b;

    simulator_set("soc", soc);
    simulator_set("api", api);
    must(simulated_open(&b, 0, LIMIT_MS, &diag), &diag);
    return b;
}

/* How often the way has been taken on the device. */
static int taken(struct bench *b, enum way way)
{
    struct ngd_strbuf text;
    const char *line;
    int n = -1;

    ngd_strbuf_init(&text);
    ngd_device_describe(b->dev, &text);
    line = strstr(ngd_strbuf_str(&text), "attention over a paged cache: ");
    ck_assert_ptr_nonnull(line);
    for (line = strchr(line, ':') + 1; n < 0 && line; line = strchr(line, ',') ? strchr(line, ',') + 1 : NULL) {
        char *name;
        long count = strtol(line, &name, 10);

        if (strncmp(name + 1, ways[way], strlen(ways[way])) == 0)
            n = (int)count;
    }
    ngd_strbuf_fini(&text);
    ck_assert_int_ge(n, 0);
    return n;
}

/* The shape takes the way, and gives what the definition gives. */
static void goes(struct bench *b, const struct attention_shape *shape, ngd_dtype_t query, ngd_dtype_t cache,
                 enum way way)
{
    struct attention_shape s = *shape;
    struct random r = {31};
    struct attention_data d;
    struct ngd_strbuf text;
    int before = taken(b, way);

    s.qt = query;
    s.ct = cache;
    s.scale = 1 / sqrt((double)s.d);
    ngd_strbuf_init(&text);
    attention_text(&s, &text);
    attention_data_open(&s, &d, &r);
    attention_run(b, &s, &d, ngd_strbuf_str(&text), query == cache ? 1 : 8192);
    ck_assert_msg(taken(b, way) == before + 1, "%s: the way is not: %s", ngd_strbuf_str(&text), ways[way]);
    attention_data_close(&d);
    ngd_strbuf_fini(&text);
}

START_TEST(shapes_take_the_way_that_the_rules_allow)
{
    struct attention_shape s;
    struct bench b = opened("Ascend910B4", "8.5");

    goes(&b, &several, NGD_BF16, NGD_BF16, RAGGED);
    goes(&b, &several, NGD_F16, NGD_F16, ROWS); /* TND takes bf16 */
    goes(&b, &single, NGD_F16, NGD_F16, PREFILL);
    goes(&b, &single, NGD_F32, NGD_BF16, PREFILL);
    goes(&b, &steps, NGD_BF16, NGD_BF16, ROWS);
    s = several;
    s.d = 64;
    goes(&b, &s, NGD_BF16, NGD_BF16, RAGGED);
    s.d = 32;
    goes(&b, &s, NGD_BF16, NGD_BF16, ROWS);
    s = several;
    s.blocks = 9; /* what all contexts take together: none longer is asked for */
    goes(&b, &s, NGD_BF16, NGD_BF16, RAGGED);
    s = (struct attention_shape){.heads = 2,
                                 .kv_heads = 1,
                                 .d = 128,
                                 .block_size = 128,
                                 .n_seqs = 3,
                                 .rows = {100, 90, 3}, /* together more than one context has */
                                 .keys = {128, 100, 3},
                                 .blocks = 3,
                                 .table_width = 1};
    goes(&b, &s, NGD_BF16, NGD_BF16, RAGGED);
    s = several;
    s.blocks = 8; /* not all contexts fit together */
    goes(&b, &s, NGD_BF16, NGD_BF16, ROWS);
    s = single;
    s.block_size = 32;
    s.table_width = s.blocks = 10;
    goes(&b, &s, NGD_F16, NGD_F16, ROWS);
    s = steps;
    s.block_size = 8;
    s.table_width = s.blocks = 5;
    goes(&b, &s, NGD_F16, NGD_F16, PARTS);
    goes(&b, &s, NGD_F32, NGD_F16, PARTS);
    close_device(&b);
    nothing_is_left("after all ways");
}
END_TEST

START_TEST(versions_without_a_kernel_take_another_way)
{
    struct attention_shape s = several;
    struct bench b = opened("Ascend910B4", "8.3");

    goes(&b, &several, NGD_BF16, NGD_BF16, RAGGED);
    s.d = 64;
    goes(&b, &s, NGD_BF16, NGD_BF16, ROWS);
    close_device(&b);
    b = opened("Ascend910B4", "8.1");
    goes(&b, &several, NGD_BF16, NGD_BF16, ROWS);
    goes(&b, &single, NGD_BF16, NGD_BF16, PREFILL);
    goes(&b, &single, NGD_F16, NGD_F16, ROWS);
    goes(&b, &steps, NGD_F16, NGD_F16, ROWS);
    close_device(&b);
    b = opened("Ascend910_9382", "8.5");
    goes(&b, &several, NGD_BF16, NGD_BF16, RAGGED);
    goes(&b, &steps, NGD_F16, NGD_F16, ROWS);
    close_device(&b);
}
END_TEST

/* Several shapes of one sequence, one for each part of a chunk. */
START_TEST(composition_gives_any_lengths)
{
    struct attention_shape s = single;
    struct bench b = opened("Ascend910B4", "8.5");

    s.block_size = 24;
    s.table_width = s.blocks = 13;
    goes(&b, &s, NGD_BF16, NGD_BF16, PARTS);
    s = several;
    s.block_size = 24;
    s.table_width = 13;
    s.d = 20;
    goes(&b, &s, NGD_F16, NGD_F16, PARTS);
    close_device(&b);
}
END_TEST

/* As a version whose tiling refuses more than is known. Each call is asked for when planning and when instantiating. */
START_TEST(windows_and_caps_are_made_of_other_operators)
{
    static const int64_t windows[] = {1, 15, 128, 299, 300, 301};
    struct bench b = opened("Ascend910B4", "8.5");
    struct attention_shape s = several;

    for (int i = 0; i < 6; i++) {
        s.window = windows[i];
        goes(&b, &s, NGD_BF16, NGD_BF16, PARTS);
        s.cap = i % 2 ? 0 : 2.5;
    }
    s.window = 0;
    s.cap = 1;
    goes(&b, &s, NGD_F16, NGD_F16, PARTS);
    s = steps;
    s.window = 20;
    goes(&b, &s, NGD_F16, NGD_F16, PARTS);
    bench_close(&b);
}
END_TEST

START_TEST(refused_way_is_followed_by_the_next_one)
{
    const int refusals[] = {561002, 561003, 161002};
    struct bench b = opened("Ascend910B4", "8.5");

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        int before = taken(&b, PREFILL) + taken(&b, ROWS);
        struct attention_shape s = single;
        struct attention_data d;
        struct random r = {5};
        struct ngd_strbuf text;

        s.qt = s.ct = NGD_F16;
        s.scale = 1;
        ngd_strbuf_init(&text);
        attention_text(&s, &text);
        attention_data_open(&s, &d, &r);
        SIMULATOR(ngd_aclsim_fail_call)("aclnnFusedInferAttentionScoreV3GetWorkspaceSize", 0, refusals[i]);
        attention_run(&b, &s, &d, ngd_strbuf_str(&text), 1);
        ck_assert_int_eq(taken(&b, PREFILL) + taken(&b, ROWS), before + 1);
        attention_data_close(&d);
        ngd_strbuf_fini(&text);
    }
    close_device(&b);
    nothing_is_left("after refusals");
}
END_TEST

START_TEST(chip_without_paged_decoders_says_so_before_it_asks_cann)
{
    struct attention_shape s = steps;
    struct bench b = opened("Ascend310P3", "8.5");
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct ready r = {0};
    char *log;

    ck_assert_ptr_nonnull(strstr(ngd_device_info(b.dev)->description, "serves no paged decoder"));
    s.qt = s.ct = NGD_F16;
    s.scale = 1;
    ngd_strbuf_init(&text);
    attention_text(&s, &text);
    simulator_set("log", "1");
    SIMULATOR(ngd_aclsim_log_clear)();
    ck_assert_int_eq(ready_open(&r, &b, ngd_strbuf_str(&text), NULL, &diag), NGD_ERR_OP_UNSUPPORTED);
    ck_assert_msg(strstr(diag.text, "310P") && strstr(diag.text, "serves no paged decoder"), "%s", diag.text);
    log = SIMULATOR(ngd_aclsim_log)();
    ck_assert_int_eq(times_in(log, "aclrtMalloc"), 0);
    ck_assert_int_eq(times_in(log, "aclnnFusedInferAttentionScoreV3GetWorkspaceSize"), 0);
    free(log);
    simulator_set("log", "0");
    ngd_strbuf_fini(&text);
    close_device(&b);
}
END_TEST

/* A context without keys or blocks: all rows are of no sequence. One that cannot be counted is refused by name. */
START_TEST(tables_and_caches_of_no_size_give_zeros)
{
    struct attention_shape s = {
        .heads = 2, .kv_heads = 1, .d = 16, .block_size = 16, .n_seqs = 2, .blocks = 4, .table_width = 0, .tail = 2};
    struct bench b = opened("Ascend910B4", "8.5");
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    struct ready r = {0};

    goes(&b, &s, NGD_BF16, NGD_BF16, PARTS);
    goes(&b, &s, NGD_F32, NGD_F16, PARTS);
    s.blocks = 0;
    s.table_width = 3;
    goes(&b, &s, NGD_BF16, NGD_BF16, PARTS);
    s.heads = s.n_seqs = s.blocks = 1;
    s.d = 4096;
    s.block_size = INT64_C(1) << 30;
    s.table_width = 1 << 20;
    s.qt = s.ct = NGD_BF16;
    s.scale = 1;
    ngd_strbuf_init(&text);
    attention_text(&s, &text);
    ck_assert_int_eq(ready_open(&r, &b, ngd_strbuf_str(&text), NULL, &diag), NGD_ERR_OP_UNSUPPORTED);
    ck_assert_msg(strstr(diag.text, "too large") != NULL, "%s", diag.text);
    ngd_strbuf_fini(&text);
    close_device(&b);
    nothing_is_left("after tables and caches of no size");
}
END_TEST

START_TEST(latent_caches_and_sinks_are_served)
{
    struct bench b = opened("Ascend910B4", "8.5");
    struct attention_shape s = steps;

    s.sinks = true;
    goes(&b, &s, NGD_BF16, NGD_BF16, PARTS);
    goes(&b, &s, NGD_F32, NGD_F16, PARTS);
    s = several;
    s.sinks = true;
    goes(&b, &s, NGD_BF16, NGD_BF16, PARTS);
    s = steps; /* the sizes that CANN's operator takes */
    s.heads = 4;
    s.kv_heads = 1;
    s.d = 512;
    s.rope = 64;
    goes(&b, &s, NGD_BF16, NGD_BF16, ROWS);
    goes(&b, &s, NGD_F32, NGD_F16, ROWS);
    s.sinks = true;
    goes(&b, &s, NGD_BF16, NGD_BF16, PARTS);
    for (int i = 0; i < 3; i++) {
        s = i ? several : steps;
        s.kv_heads = 1;
        s.rope = i == 2 ? 256 : 16; /* wider than the latent, too */
        s.sinks = i == 2;
        goes(&b, &s, NGD_BF16, NGD_BF16, PARTS);
        goes(&b, &s, NGD_F32, NGD_F16, PARTS);
    }
    close_device(&b);
    nothing_is_left("after latent caches and sinks");
}
END_TEST

/* The rows of a launch are made from the i64 that the request has. */
START_TEST(table_may_be_a_copy_of_wider_numbers)
{
    const int64_t violations = simulator_count("violations");
    struct attention_shape s = steps;
    struct bench b = opened("Ascend910B4", "8.5");
    struct ngd_strbuf text, copied;
    struct random r = {31};
    struct attention_data d;
    const char *type, *call;
    int64_t wide[9], n;

    s.qt = s.ct = NGD_BF16;
    s.scale = 0.125;
    ngd_strbuf_init(&text);
    ngd_strbuf_init(&copied);
    attention_text(&s, &text);
    attention_data_open(&s, &d, &r);
    n = s.n_seqs * s.table_width;
    ck_assert_int_eq(n, 9);
    for (int64_t i = 0; i < n; i++)
        wide[i] = d.table[i] < 0 ? INT64_C(0x7fffffff00000000) : d.table[i];
    type = strstr(ngd_strbuf_str(&text), "i32[");
    call = strstr(type, " %y = ");
    ngd_strbuf_printf(&copied, "%.*si64%.*s %%u = aten._to_copy(%%t) {dtype=i32}\n",
                      (int)(type - ngd_strbuf_str(&text)), ngd_strbuf_str(&text), (int)(call - type - 3), type + 3);
    type = strstr(call, "%t,");
    ngd_strbuf_printf(&copied, "%.*s%%u%s", (int)(type - call), call, type + 2);
    free(d.table);
    d.table = malloc(sizeof(wide));
    memcpy(d.table, wide, sizeof(wide));
    s.table_width *= 2; /* in halves of an i64 */
    attention_run(&b, &s, &d, ngd_strbuf_str(&copied), 1);
    ck_assert_int_eq(taken(&b, ROWS), 1);
    ck_assert_int_eq(simulator_count("violations"), violations);
    attention_data_close(&d);
    ngd_strbuf_fini(&copied);
    ngd_strbuf_fini(&text);
    close_device(&b);
}
END_TEST

/* Also where no sequence has any: the table is not read then. */
START_TEST(rows_of_no_sequence_are_zeros)
{
    const struct {
        const struct attention_shape *shape;
        enum way way;
    } cases[] = {{&several, RAGGED}, {&single, PREFILL}, {&steps, ROWS}};
    const int64_t violations = simulator_count("violations");
    struct attention_shape composed = single;
    struct bench b = opened("Ascend910B4", "8.5");

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct attention_shape s = *cases[i].shape;

        s.tail = 2;
        goes(&b, &s, NGD_BF16, NGD_BF16, cases[i].way);
        goes(&b, &s, NGD_F32, NGD_BF16, cases[i].way);
        s.tail = cases[i].way == ROWS ? 3 : 21;
        memset(s.rows, 0, sizeof(s.rows));
        goes(&b, &s, NGD_BF16, NGD_BF16, cases[i].way);
    }
    composed.block_size = 24;
    composed.table_width = composed.blocks = 13;
    composed.tail = 2;
    goes(&b, &composed, NGD_BF16, NGD_BF16, PARTS);
    ck_assert_int_eq(simulator_count("violations"), violations);
    close_device(&b);
    nothing_is_left("after rows of no sequence");
}
END_TEST

#define PADDED                                                                                                       \
    "npugraph 1\ngraph \"a\" {\n sym A 0..8 buckets 8\n sym C 0..8 buckets 8\n param %k : bf16[12,128,1,64]\n"       \
    " param %v : bf16[12,128,1,64]\n input %a : bf16[A,2,64]\n input %c : bf16[C,2,64]\n input %t : i32[3,3]\n"      \
    " host %ql : i64[3]\n host %kl : i64[3]\n"                                                                       \
    " %y = npu.fused_infer_attention_score(%a, %k, %v, %t, %ql, %kl) {num_heads=2, num_key_value_heads=1, scale=1, " \
    "block_size=128}\n"                                                                                              \
    " %z = npu.fused_infer_attention_score(%c, %k, %v, %t, %ql, %kl) {num_heads=2, num_key_value_heads=1, scale=1, " \
    "block_size=128}\n return \"y\" = %y, \"z\" = %z\n}\n"

/* Two queries of one bucket, whose rows differ: the lengths are checked for each. Without rows nothing is read. */
START_TEST(rows_of_each_query_are_those_of_the_launch)
{
    static const struct {
        int64_t rows[2], ends[3];
        ngd_status_t status;
    } cases[] = {{{5, 5}, {2, 2, 5}, NGD_OK}, {{5, 2}, {2, 2, 5}, NGD_ERR_INDEX_RANGE}, {{0, 0}, {0, 0, 0}, NGD_OK}};
    const int64_t violations = simulator_count("violations"), keys[3] = {9, 9, 9};
    static const char none[8 * 2 * 64 * 2];
    static char y[2][sizeof(none)];
    struct bench b = opened("Ascend910B4", "8.5");

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int32_t wrong = cases[i].ends[2] ? 0 : 999999, table[9] = {wrong, 0, 0, wrong, 0, 0, wrong, 0, 0};
        const uint64_t bytes[2] = {(uint64_t)cases[i].rows[0] * 256, (uint64_t)cases[i].rows[1] * 256};
        const struct ngd_span in[3] = {{none, bytes[0]}, {none, bytes[1]}, {table, sizeof(table)}};
        const struct ngd_host_value hosts[2] = {{cases[i].ends, 3}, {keys, 3}};
        struct ngd_out out[2] = {{y[0], bytes[0]}, {y[1], bytes[1]}};
        struct ngd_launch launch = {.symbols = cases[i].rows, .inputs = in, .hosts = hosts, .outputs = out};
        struct ngd_diag diag = {0};
        struct ready r;

        must(ready_open(&r, &b, PADDED, cases[i].rows, &diag), &diag);
        ck_assert_msg(ngd_stream_run(b.stream, r.inst, &launch) == cases[i].status, "case %zu: %s", i,
                      launch.diag.text);
        ready_close(&r);
    }
    ck_assert_int_eq(simulator_count("violations"), violations);
    close_device(&b);
    nothing_is_left("after rows of each query");
}
END_TEST

/* The plan has room for updates of any lengths, as the library says it if it can. */
START_TEST(workspace_is_the_largest_that_updates_may_need)
{
    static const char name[] = "aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize";
    uint64_t bytes[2];

    simulator_set("log", "1");
    for (int has = 0; has < 2; has++) {
        struct bench b = opened("Ascend910B4", has ? "8.2" : "8.1");
        struct attention_shape s = steps;
        struct ngd_diag diag = {0};
        struct ngd_strbuf text;
        struct ready r;
        char *log;

        s.qt = s.ct = NGD_BF16;
        s.scale = 1;
        ngd_strbuf_init(&text);
        attention_text(&s, &text);
        SIMULATOR(ngd_aclsim_log_clear)();
        must(ready_open(&r, &b, ngd_strbuf_str(&text), NULL, &diag), &diag);
        log = SIMULATOR(ngd_aclsim_log)();
        ck_assert_int_eq(times_in(log, name) > 0, has);
        free(log);
        bytes[has] = r.plan->calls[0].workspace_bytes;
        ck_assert_int_eq(r.plan->calls[0].op->id, NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE);
        ready_close(&r);
        ngd_strbuf_fini(&text);
        close_device(&b);
    }
    simulator_set("log", "0");
    ck_assert_uint_eq(bytes[1] - bytes[0], 8192); /* as the simulator answers */
}
END_TEST

/* ---- rows of padding -------------------------------------------------------------------------------- */

#define BUCKETED(block)                                                                                        \
    "npugraph 1\ngraph \"a\" {\n sym B 1..8 buckets 8\n state %k : bf16[4," block ",1,64]\n"                   \
    " state %v : bf16[4," block ",1,64]\n input %q : bf16[B,2,64]\n input %t : i32[B,2]\n host %ql : i64[B]\n" \
    " host %kl : i64[B]\n %y = npu.fused_infer_attention_score(%q, %k, %v, %t, %ql, %kl) {num_heads=2, "       \
    "num_key_value_heads=1, scale=0.125, block_size=" block "}\n return \"y\" = %y\n}\n"

/* Whatever lies in block 0: numbers, or NaN. Neither the result nor the cache knows. */
START_TEST(block_that_padding_reads_reaches_no_result)
{
    static const struct {
        const char *text, *api;
        int64_t block;
        enum way way;
    } cases[] = {
        {BUCKETED("16"), "8.5", 16, ROWS}, {BUCKETED("16"), "8.1", 16, ROWS}, {BUCKETED("8"), "8.5", 8, PARTS}};
    const int64_t ends[2] = {1, 2}, keys[2] = {7, 12}, rows = 2;
    const int32_t table[4] = {2, 3, 1, 2};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int64_t block = cases[i].block * 64, all = 4 * block;
        uint16_t y[2][2 * 2 * 64], q[2 * 2 * 64], *cache = calloc((size_t)all, 2), *after = calloc((size_t)all, 2);
        const struct ngd_span in[2] = {{q, sizeof(q)}, {table, sizeof(table)}};
        const struct ngd_host_value hosts[2] = {{ends, 2}, {keys, 2}};
        struct bench b = opened("Ascend910B4", cases[i].api);
        int64_t bucket = 8;

        for (size_t k = 0; k < sizeof(q) / sizeof(q[0]); k++)
            q[k] = ngd_f32_to_bf16(sinf((float)k));
        for (int nan = 0; nan < 2; nan++) {
            struct ngd_out out = {y[nan], sizeof(y[nan])};
            struct ngd_launch launch = {.symbols = &rows, .inputs = in, .hosts = hosts, .outputs = &out};
            struct ngd_diag diag = {0};
            struct ready r;

            must(ready_open(&r, &b, cases[i].text, &bucket, &diag), &diag);
            for (int64_t k = 0; k < all; k++)
                cache[k] = nan && k < block ? 0x7fc0 : ngd_f32_to_bf16(cosf((float)k));
            for (uint32_t k = 0; k < 2; k++)
                must(ngd_buffer_write(r.bound[k], 0, cache, (uint64_t)all * 2, &diag), &diag);
            must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
            must(ngd_buffer_read(r.bound[0], 0, after, (uint64_t)all * 2, &diag), &diag);
            ck_assert_mem_eq(after, cache, (size_t)all * 2);
            ready_close(&r);
        }
        ck_assert_int_eq(taken(&b, cases[i].way), 2);
        for (size_t k = 0; k < sizeof(y[0]) / sizeof(y[0][0]); k++)
            ck_assert_msg(y[0][k] == y[1][k] && isfinite(ngd_bf16_to_f32(y[1][k])), "case %zu, element %zu", i, k);
        close_device(&b);
        free(cache);
        free(after);
    }
    nothing_is_left("after rows of padding");
}
END_TEST

START_TEST(stored_plans_are_of_a_version_of_cann)
{
    char arch[96];
    struct bench b = opened("Ascend910B4", "8.5");

    snprintf(arch, sizeof(arch), "%s", ngd_device_info(b.dev)->arch);
    close_device(&b);
    b = opened("Ascend910B4", "8.3");
    ck_assert_str_ne(ngd_device_info(b.dev)->arch, arch);
    close_device(&b);
}
END_TEST

/* ---- several attentions in a graph ------------------------------------------------------------------- */

#define HEADS " {num_heads=2, num_key_value_heads=1, scale=0.25, block_size="
#define TWO(graph)                                                                                                    \
    "npugraph 1\ngraph \"a\" {\n param %l : bf16[4,16,1,16]\n param %w : bf16[4,16,1,16]\n input %q : bf16[2,2,16]\n" \
    " input %t : i32[2,3]\n host %ql : i64[2]\n host %kl : i64[2]\n" graph                                            \
    " %z = npu.fused_infer_attention_score(%q, %l, %w, %t, %ql, %kl)" HEADS "16}\n"

struct two {
    struct numbers q, k[2], v[2]; /* caches of blocks of 16 and of 128 */
    int32_t table[6];
    int64_t ends[2], keys[2], none[2];
};

static void two_init(struct two *t)
{
    struct random r = {3};

    *t = (struct two){.table = {0, 1, 2, 3, 2, 1}, .ends = {1, 2}, .keys = {40, 33}};
    numbers_random(&t->q, NGD_BF16, 2 * 2 * 16, 1, &r);
    for (int i = 0; i < 2; i++) {
        const int64_t n = 4 * 16 * (i ? 128 : 16);

        numbers_random(&t->k[i], NGD_BF16, n, 1, &r);
        numbers_random(&t->v[i], NGD_BF16, n, 3, &r);
    }
}

static void two_fini(struct two *t)
{
    numbers_close(&t->q);
    for (int i = 0; i < 2; i++) {
        numbers_close(&t->k[i]);
        numbers_close(&t->v[i]);
    }
}

static void two_open(struct two *t, struct ready *r, struct bench *b, const char *text, int caches)
{
    struct ngd_diag diag = {0};

    must(ready_open(r, b, text, NULL, &diag), &diag);
    for (uint32_t i = 0; i < (uint32_t)caches; i++) {
        must(ngd_buffer_write(r->bound[2 * i], 0, t->k[i].data, numbers_bytes(&t->k[i]), &diag), &diag);
        must(ngd_buffer_write(r->bound[2 * i + 1], 0, t->v[i].data, numbers_bytes(&t->v[i]), &diag), &diag);
    }
}

START_TEST(attentions_of_other_block_sizes_have_rows_of_their_own)
{
    char z[2][128], y[128];
    struct bench b = opened("Ascend910B4", "8.5");
    struct two t;

    two_init(&t);
    for (int both = 0; both < 2; both++) {
        const struct ngd_span in[2] = {{t.q.data, sizeof(y)}, {t.table, sizeof(t.table)}};
        const struct ngd_host_value hosts[2] = {{t.ends, 2}, {t.keys, 2}};
        struct ngd_out out[2] = {{z[both], sizeof(y)}, {y, sizeof(y)}};
        struct ngd_launch launch = {.inputs = in, .hosts = hosts, .outputs = out};
        struct ready r;

        two_open(&t, &r, &b,
                 both ? TWO(" param %m : bf16[4,128,1,16]\n param %x : bf16[4,128,1,16]\n"
                            " %y = npu.fused_infer_attention_score(%q, %m, %x, %t, %ql, %kl)" HEADS
                            "128}\n") " return \"z\" = %z, \"y\" = %y\n}\n"
                      : TWO("") " return \"z\" = %z\n}\n",
                 1 + both);
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        ready_close(&r);
    }
    ck_assert_mem_eq(z[1], z[0], sizeof(y));
    two_fini(&t);
    close_device(&b);
}
END_TEST

/* It has no operator in the captured graph, and so no update. */
START_TEST(empty_attention_takes_no_update_from_the_others)
{
    char z[2][128], y[1];
    struct bench b = opened("Ascend910B4", "8.5");
    struct ngd_strbuf text;
    struct ready r;
    struct two t;

    two_init(&t);
    two_open(&t, &r, &b,
             TWO(" input %e : bf16[0,2,16]\n host %el : i64[2]\n"
                 " %y = npu.fused_infer_attention_score(%e, %l, %w, %t, %el, %kl)" HEADS
                 "16}\n") " return \"z\" = %z, \"y\" = %y\n}\n",
             1);
    for (int i = 0; i < 8; i++) {
        const int64_t keys[2] = {40 - i % 2 * 30, 33};
        const struct ngd_span in[3] = {{t.q.data, sizeof(z[0])}, {t.table, sizeof(t.table)}, {y, 0}};
        const struct ngd_host_value hosts[3] = {{t.ends, 2}, {keys, 2}, {t.none, 2}};
        char now[128];
        struct ngd_out out[2] = {{now, sizeof(now)}, {y, 0}};
        struct ngd_launch launch = {.inputs = in, .hosts = hosts, .outputs = out, .eager = i < 2};

        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        if (i < 2)
            memcpy(z[i], now, sizeof(now));
        ck_assert_mem_eq(now, z[i % 2], sizeof(now));
    }
    ngd_strbuf_init(&text);
    ngd_device_describe(b.dev, &text);
    ck_assert_msg(strstr(ngd_strbuf_str(&text), "updates of host parameters 6\n") != NULL, "%s", ngd_strbuf_str(&text));
    ngd_strbuf_fini(&text);
    ready_close(&r);
    two_fini(&t);
    close_device(&b);
}
END_TEST

UNIT_MAIN("ascend/attention", shapes_take_the_way_that_the_rules_allow, versions_without_a_kernel_take_another_way,
          composition_gives_any_lengths, windows_and_caps_are_made_of_other_operators,
          refused_way_is_followed_by_the_next_one, chip_without_paged_decoders_says_so_before_it_asks_cann,
          tables_and_caches_of_no_size_give_zeros, latent_caches_and_sinks_are_served,
          table_may_be_a_copy_of_wider_numbers, attentions_of_other_block_sizes_have_rows_of_their_own,
          empty_attention_takes_no_update_from_the_others, rows_of_no_sequence_are_zeros,
          rows_of_each_query_are_those_of_the_launch, workspace_is_the_largest_that_updates_may_need,
          block_that_padding_reads_reaches_no_result, stored_plans_are_of_a_version_of_cann)
