/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/compare.h"
#include "graphs/plan_map.h"
#include "tests/unit/plan_util.h"
#include <math.h>

START_TEST(floats_may_differ_by_rounding_of_the_largest_and_no_more)
{
    const float want[4] = {1000, 1, 0, -2};
    float got[4] = {1000.05f, 1.05f, -0.05f, -2};
    struct ngd_difference diff;
    struct ngd_strbuf sb;

    ck_assert(ngd_compare(NGD_F32, want, want, 4, &diff));
    ck_assert(ngd_compare(NGD_F32, got, want, 4, &diff));
    got[1] = 1.2f;
    got[3] = 5;
    ck_assert(!ngd_compare(NGD_F32, got, want, 4, &diff));
    ck_assert(diff.n == 2 && diff.index == 1 && diff.want == 1);
    ngd_strbuf_init(&sb);
    ngd_difference_print(&diff, 4, &sb);
    ck_assert_str_eq(ngd_strbuf_str(&sb), "2 of 4 elements differ; element 1 is 1.20000005, not 1");
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(nan_and_infinities_equal_themselves_only)
{
    const float want[3] = {NAN, INFINITY, 1};
    const float same[3] = {NAN, INFINITY, 1.00001f}, other[3] = {1, -INFINITY, NAN};
    struct ngd_difference diff;

    ck_assert(ngd_compare(NGD_F32, same, want, 3, &diff));
    ck_assert(!ngd_compare(NGD_F32, other, want, 3, &diff));
    ck_assert_uint_eq(diff.n, 3);
}
END_TEST

START_TEST(integers_must_be_equal_and_halves_may_be_coarser)
{
    const int32_t a[2] = {1000000, 2}, b[2] = {1000001, 2};
    const uint16_t h[2] = {ngd_f32_to_bf16(1.0f), ngd_f32_to_bf16(2.0f)};
    const uint16_t near[2] = {ngd_f32_to_bf16(1.03f), ngd_f32_to_bf16(2.0f)};
    const uint16_t far[2] = {ngd_f32_to_bf16(1.2f), ngd_f32_to_bf16(2.0f)};
    struct ngd_difference diff;

    ck_assert(!ngd_compare(NGD_I32, b, a, 2, &diff));
    ck_assert(diff.n == 1 && diff.got == 1000001);
    ck_assert(ngd_compare(NGD_BF16, near, h, 2, &diff));
    ck_assert(!ngd_compare(NGD_BF16, far, h, 2, &diff));
    ck_assert(ngd_compare(NGD_I32, a, b, 0, &diff));
}
END_TEST

START_TEST(roundings_that_may_be_missing_are_those_of_the_narrowest_dtype)
{
    struct ngd_graph *g =
        parse_graph("npugraph 1\ngraph \"t\" {\n input %x : f32[4]\n %h = aten._to_copy(%x) {dtype=bf16}\n"
                    " %y = aten._to_copy(%h) {dtype=f32}\n return \"y\" = %y\n}\n");
    struct ngd_graph *wide =
        parse_graph("npugraph 1\ngraph \"t\" {\n input %x : f32[4]\n %y = aten.neg(%x)\n return \"y\" = %y\n}\n");
    const ngd_dtype_t narrow = ngd_compare_narrowest(g);
    const float want[3] = {1000, 1, NAN}, near[3] = {1100, 200, NAN}, far[3] = {1300, 1, NAN};
    const int64_t a[1] = {3}, b[1] = {77};
    struct ngd_difference diff;

    ck_assert_int_eq(narrow, NGD_BF16);
    ck_assert_int_eq(ngd_compare_narrowest(wide), NGD_F32);
    ck_assert(ngd_compare_rounded(NGD_F32, narrow, near, want, 3, &diff));
    ck_assert(!ngd_compare_rounded(NGD_F32, NGD_F32, near, want, 3, &diff));
    ck_assert(!ngd_compare_rounded(NGD_F32, narrow, far, want, 3, &diff));
    ck_assert(diff.n == 1 && diff.index == 0);
    ck_assert(ngd_compare_rounded(NGD_I64, narrow, a, b, 1, &diff));
    ngd_graph_unref(g);
    ngd_graph_unref(wide);
}
END_TEST

START_TEST(blocks_of_a_plan_lie_in_its_pool_and_never_meet_in_both_time_and_memory)
{
    static const struct decoder_shape shape = {2, 64, 4, 2, 16, 128, 512};
    char *text = decoder_text(&shape);
    int64_t rows = 8;
    struct ngd_plan *plan = make_plan(text, &rows, 1, &inplace_target);
    struct ngd_plan_block *list;
    struct ngd_strbuf sb;
    uint32_t n;

    ck_assert_int_eq(ngd_plan_blocks(plan, &list, &n), NGD_OK);
    ck_assert_uint_gt(n, 30);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_le(list[i].offset + list[i].bytes, plan->pool_bytes);
        ck_assert_uint_le(list[i].first, list[i].last);
        for (uint32_t k = i + 1; k < n; k++)
            if (list[i].first <= list[k].last && list[k].first <= list[i].last &&
                list[k].offset < list[i].offset + list[i].bytes)
                ck_abort_msg("blocks %u and %u meet", i, k);
    }
    ngd_strbuf_init(&sb);
    ck_assert_int_eq(ngd_plan_map_text(plan, &sb), NGD_OK);
    ck_assert(strstr(ngd_strbuf_str(&sb), "input tok") || strstr(ngd_strbuf_str(&sb), "smaller ones"));
    ngd_strbuf_clear(&sb);
    ck_assert_int_eq(ngd_plan_map_svg(plan, &sb), NGD_OK);
    ck_assert(strstr(ngd_strbuf_str(&sb), "workspace of aten.linear: 4000 bytes"));
    ngd_strbuf_fini(&sb);
    ngd_free(list);
    ngd_plan_unref(plan);
    ngd_free(text);
}
END_TEST

START_TEST(taps_have_names_that_the_graph_does_not)
{
    struct ngd_graph *g = parse_graph("npugraph 1\ngraph \"t\" {\n input %__tap.0.0 : f32[4]\n"
                                      " %__tap1.x = aten.neg(%__tap.0.0)\n %__tap3.1.0 = aten.exp(%__tap1.x)\n"
                                      " %__tap02.1.0 = aten.abs(%__tap3.1.0)\n return \"tap:__tap1.x\" = %__tap1.x,"
                                      " \"tap1:\" = %__tap3.1.0, \"tap\" = %__tap02.1.0\n}\n"),
                     *tapped, *twice;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_graph_print_tapped(g, &sb);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "%__tap2.0.0 = aten.clone(%__tap1.x)"));
    tapped = parse_graph(ngd_strbuf_str(&sb));
    ck_assert_uint_eq(tapped->n_outputs, 6);
    ck_assert_str_eq(tapped->outputs[0].name, "tap:__tap1.x");
    ck_assert_str_eq(tapped->outputs[3].name, "tap2:__tap1.x");
    ck_assert_str_eq(ngd_tap_value(tapped->outputs[3].name), "__tap1.x");
    ck_assert_str_eq(ngd_tap_value(tapped->outputs[4].name), "__tap3.1.0");
    ngd_strbuf_clear(&sb);
    ngd_graph_print_tapped(tapped, &sb);
    twice = parse_graph(ngd_strbuf_str(&sb));
    ck_assert_uint_eq(twice->n_outputs, 12);
    ck_assert_str_eq(twice->outputs[6].name, "tap3:__tap1.x");
    ngd_strbuf_fini(&sb);
    ngd_graph_unref(twice);
    ngd_graph_unref(tapped);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(a_tapped_graph_parses_and_has_every_nodes_results_behind_its_own)
{
    struct ngd_graph *g = parse_graph("npugraph 1\ngraph \"t\" {\n state %s : f32[4]\n input %x : f32[4]\n"
                                      " %v, %i = aten.topk(%x) {k=2}\n aten.copy_(%s, %x)\n %y = aten.neg(%s)\n"
                                      " return \"y\" = %y\n}\n");
    struct ngd_graph *tapped;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_graph_print_tapped(g, &sb);
    tapped = parse_graph(ngd_strbuf_str(&sb));
    ck_assert_uint_eq(tapped->n_outputs, 4);
    ck_assert_str_eq(tapped->outputs[0].name, "y");
    ck_assert_str_eq(tapped->outputs[1].name, "tap:v");
    ck_assert_str_eq(tapped->outputs[2].name, "tap:i");
    ck_assert_str_eq(tapped->outputs[3].name, "tap:y");
    ngd_strbuf_fini(&sb);
    ngd_graph_unref(tapped);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(bits_are_compared_and_of_a_nan_that_it_is_one)
{
    const float want[4] = {1, 0, NAN, -2};
    const uint32_t other_nan = 0xffc00001;
    float got[4] = {1, 0, 0, -2};
    struct ngd_difference diff;

    memcpy(&got[2], &other_nan, 4);
    ck_assert(ngd_compare_bits(NGD_F32, got, want, 4, &diff));
    got[0] = nextafterf(1, 2);
    got[1] = -0.0f;
    ck_assert(ngd_compare(NGD_F32, got, want, 4, &diff));
    ck_assert(!ngd_compare_bits(NGD_F32, got, want, 4, &diff));
    ck_assert(diff.n == 2 && diff.index == 0 && diff.want == 1);
}
END_TEST

UNIT_MAIN("graphs/compare", bits_are_compared_and_of_a_nan_that_it_is_one,
          floats_may_differ_by_rounding_of_the_largest_and_no_more, nan_and_infinities_equal_themselves_only,
          integers_must_be_equal_and_halves_may_be_coarser,
          roundings_that_may_be_missing_are_those_of_the_narrowest_dtype,
          blocks_of_a_plan_lie_in_its_pool_and_never_meet_in_both_time_and_memory,
          taps_have_names_that_the_graph_does_not, a_tapped_graph_parses_and_has_every_nodes_results_behind_its_own)
