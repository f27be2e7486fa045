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

UNIT_MAIN("ascend/attention", shapes_take_the_way_that_the_rules_allow, versions_without_a_kernel_take_another_way,
          composition_gives_any_lengths, refused_way_is_followed_by_the_next_one,
          chip_without_paged_decoders_says_so_before_it_asks_cann)
