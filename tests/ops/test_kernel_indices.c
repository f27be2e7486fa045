/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that bad indices end a replay with INDEX_RANGE and harm nothing. */
#include "tests/ops/direct.h"
#include "tests/ops/random_io.h"

#define THREADS 4

static const struct {
    const char *body; /* the index is the last input, of 4 elements */
    int64_t limit;
    bool from_end; /* negative indices are valid down to -limit */
} indexed[] = {
    {"input %w : f32[9,5]\ninput %i : i64[4]\n%y = aten.embedding(%w, %i)", 9, false},
    {"input %w : bf16[9,5]\ninput %i : i32[2,2]\n%y = aten.embedding(%w, %i)", 9, false},
    {"input %x : f32[6,9]\ninput %i : i64[4]\n%y = aten.index_select(%x, %i) {dim=1}", 9, false},
    {"input %x : f32[9,6]\ninput %i : i32[4]\n%y = aten.index_select(%x, %i) {dim=0}", 9, false},
    {"input %x : f32[9,6]\ninput %i : i64[4]\n%y = aten.index.Tensor(%x, %i)", 9, true},
    {"input %x : f32[9,6]\ninput %i : i64[2,2]\n%y = aten.gather(%x, %i) {dim=0}", 9, false},
    {"input %x : i64[2,9]\ninput %i : i32[2,2]\n%y = aten.gather(%x, %i) {dim=1}", 9, false},
    {"input %x : f32[9,6]\ninput %s : f32[2,2]\ninput %i : i64[2,2]\n%y = aten.scatter.src(%x, %i, %s) {dim=0}", 9,
     false},
    {"input %x : u8[2,9]\ninput %s : u8[2,2]\ninput %i : i32[2,2]\n%y = aten.scatter.src(%x, %i, %s) {dim=1}", 9,
     false},
    {"input %x : f32[9,6]\ninput %s : f32[4,6]\ninput %i : i64[4]\n%y = aten.index_put(%x, %i, %s)", 9, true},
    {"input %x : f32[9,6]\ninput %s : f32[2,2,6]\ninput %i : i32[2,2]\n%y = aten.index_put(%x, %i, %s) "
     "{accumulate=true}",
     9, true},
    {"input %x : f32[9,6]\ninput %s : f32[4,6]\ninput %i : i64[4]\n%y = aten.index_copy(%x, %i, %s) {dim=0}", 9, false},
    {"input %x : bf16[6,9,2]\ninput %s : bf16[6,4,2]\ninput %i : i32[4]\n%y = aten.index_copy(%x, %i, %s) {dim=1}", 9,
     false},
    {"input %x : bf16[2,9]\ninput %s : bf16[2,2]\ninput %i : i32[2,2]\n%y = aten.scatter_add(%x, %i, %s) {dim=1}", 9,
     false},
    {"input %x : f32[2,5]\ninput %i : i64[2,2]\n%y, %z, %s = npu.moe_init_routing_v2(%x, %i) {expert_num=9}", 9, false},
    {"input %x : bf16[4,3]\ninput %i : i32[4,1]\n%y, %z, %s = npu.moe_init_routing_v2(%x, %i) {expert_num=2}", 2,
     false},
    {"input %x : f32[4,5]\ninput %w : f32[5,3]\ninput %i : i64[4]\n"
     "%y = npu.grouped_matmul(%x, %i, %w, %w, %w, %w) {group_list_type=1}",
     5, false},
    {"input %x : f32[6,5]\ninput %w : bf16[5,3]\ninput %i : i64[4]\n"
     "%y = npu.grouped_matmul(%x, %i, %w, %w, %w, %w)",
     7, false},
    {"input %x : f16[4,5]\ninput %s : f32[2,2]\ninput %i : i32[4]\n%y = npu.moe_finalize_routing(%x, %s, %i)", 4,
     false},
    {"input %x : i8[9,2]\ninput %i : i64[2,2]\n%y = aten.scatter.value(%x, %i) {dim=0, value=-3}", 9, false},
};

static void put_index(char *p, bool wide, uint32_t at, int64_t v)
{
    int32_t narrow = (int32_t)v;

    memcpy(p + at * (wide ? 8 : 4), wide ? (const void *)&v : (const void *)&narrow, wide ? 8 : 4);
}

/* Runs with v as the last index, and checks that the rest of the pool is unchanged. */
static void check_index(const struct ngd_plan *plan, ngd_isa_t isa, int64_t v, ngd_status_t want, const char *body)
{
    const uint32_t last = plan->graph->n_inputs - 1;
    bool wide = plan->graph->values[plan->graph->inputs[last]].type.dtype == NGD_I64;
    struct direct d;
    char *before;

    direct_open(&d, plan, isa, THREADS);
    for (uint32_t i = 0; i <= last; i++)
        memset(direct_input(&d, i), 0, plan->inputs[i].bytes);
    put_index(direct_input(&d, last), wide, 3, v);
    before = ngd_memdup(d.pool, plan->pool_bytes);
    ck_assert_msg(direct_run(&d, NULL, NULL, 1) == want, "index %lld, %s\n%s", (long long)v, ngd_isa_name(isa), body);
    ck_assert_msg(direct_guards_intact(&d), "index %lld writes outside the pool\n%s", (long long)v, body);
    for (uint32_t o = 0; o < plan->graph->n_outputs; o++) {
        const struct ngd_plan_tensor *out = &plan->tensors[plan->outputs[o].tensor];

        memset(before + out->offset, 0, out->bytes);
        memset(d.pool + out->offset, 0, out->bytes);
    }
    ck_assert_msg(memcmp(before, d.pool, plan->pool_bytes) == 0, "index %lld writes outside the results\n%s",
                  (long long)v, body);
    ngd_free(before);
    direct_close(&d);
}

START_TEST(an_index_outside_its_dimension_fails_and_writes_nothing_else)
{
    static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, (int64_t)1 << 40};

    for (size_t i = 0; i < sizeof(indexed) / sizeof(indexed[0]); i++) {
        const int64_t limit = indexed[i].limit;
        const ngd_status_t negative = indexed[i].from_end ? NGD_OK : NGD_ERR_INDEX_RANGE;
        struct ngd_strbuf text;
        struct ngd_diag diag = {0};
        struct ready r = {0};
        struct bench b;
        bool wide;

        ngd_strbuf_init(&text);
        run_text(&text, "", indexed[i].body);
        bench_open(&b, ngd_cpu_isa(), 1);
        if (ready_plan(&r, &b, ngd_strbuf_str(&text), NULL, &diag))
            ck_abort_msg("%s\n%s", diag.text, ngd_strbuf_str(&text));
        wide = r.graph->values[r.graph->inputs[r.graph->n_inputs - 1]].type.dtype == NGD_I64;
        check_index(r.plan, ngd_cpu_isa(), limit - 1, NGD_OK, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), limit, NGD_ERR_INDEX_RANGE, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), -1, negative, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), -limit, negative, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), -limit - 1, NGD_ERR_INDEX_RANGE, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), INT32_MAX, NGD_ERR_INDEX_RANGE, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), INT32_MIN, NGD_ERR_INDEX_RANGE, indexed[i].body);
        for (size_t k = 0; wide && k < sizeof(far) / sizeof(far[0]); k++)
            check_index(r.plan, ngd_cpu_isa(), far[k], NGD_ERR_INDEX_RANGE, indexed[i].body);
        ready_close(&r);
        bench_close(&b);
        ngd_strbuf_fini(&text);
    }
}
END_TEST

START_TEST(a_replay_after_one_with_a_bad_index_is_right)
{
    static const char body[] = "input %w : f32[9,5]\ninput %i : i32[4]\n%y = aten.embedding(%w, %i)";
    static const int32_t bad[] = {0, 1, 9, 2}, good[] = {8, 1, 0, 2};
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;
    struct io io;

    ngd_strbuf_init(&text);
    run_text(&text, "", body);
    bench_open(&b, ngd_cpu_isa(), 1);
    open_or_abort(&r, &b, ngd_strbuf_str(&text), NULL);
    io_open(&io, &r);
    io_randomize(&io, &r);
    memset(io.out_room[0], 0x5a, io.out[0].bytes);
    memcpy(io.in_room[1], bad, sizeof(bad));
    ck_assert_int_eq(replay(&b, &r, &io, NULL, false, &diag), NGD_ERR_INDEX_RANGE);
    ck_assert_ptr_nonnull(strstr(diag.text, "index 9"));
    for (uint64_t i = 0; i < io.out[0].bytes; i++)
        ck_assert_int_eq(io.out_room[0][i], 0x5a);
    memcpy(io.in_room[1], good, sizeof(good));
    ck_assert_int_eq(replay(&b, &r, &io, NULL, false, NULL), NGD_OK);
    ck_assert_mem_eq(io.out_room[0], io.in_room[0] + 8 * 20, 20);
    io_close(&io);
    ready_close(&r);
    bench_close(&b);
    ngd_strbuf_fini(&text);
}
END_TEST

/*
 * If x itself has padded rows, an index into them is as bad as one behind the tensor. The plan is made with fixed
 * sizes, and x's rows are declared afterwards, so that the test does not depend on which graphs validation accepts.
 */
START_TEST(an_index_into_padded_rows_fails_and_one_from_the_end_counts_actual_rows)
{
    static const int64_t good[] = {0, 2, -1}, bad[] = {0, 3, 1}, symbols[] = {3};
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct ready r = {0};
    struct direct d;
    struct bench b;

    ngd_strbuf_init(&text);
    run_text(&text, "", "input %x : f32[8,4]\ninput %i : i64[3]\n%y = aten.index.Tensor(%x, %i)");
    bench_open(&b, ngd_cpu_isa(), 1);
    ck_assert_int_eq(ready_plan(&r, &b, ngd_strbuf_str(&text), NULL, &diag), NGD_OK);
    r.plan->tensors[r.plan->inputs[0].tensor].row_sym = 0;
    r.plan->tensors[r.plan->inputs[0].tensor].row_mult = 1;
    direct_open(&d, r.plan, ngd_cpu_isa(), 1);
    fill_random(NGD_F32, direct_input(&d, 0), 32);
    memcpy(direct_input(&d, 1), bad, sizeof(bad));
    ck_assert_int_eq(direct_run(&d, symbols, NULL, 1), NGD_ERR_INDEX_RANGE);
    memcpy(direct_input(&d, 1), good, sizeof(good));
    ck_assert_int_eq(direct_run(&d, symbols, NULL, 1), NGD_OK);
    ck_assert_mem_eq(direct_output(&d, 0) + 16, direct_input(&d, 0) + 32, 16);
    ck_assert_mem_eq(direct_output(&d, 0) + 32, direct_input(&d, 0) + 32, 16);
    direct_close(&d);
    ready_close(&r);
    bench_close(&b);
    ngd_strbuf_fini(&text);
}
END_TEST

UNIT_MAIN("ops/kernel_indices", an_index_into_padded_rows_fails_and_one_from_the_end_counts_actual_rows,
          an_index_outside_its_dimension_fails_and_writes_nothing_else, a_replay_after_one_with_a_bad_index_is_right)
