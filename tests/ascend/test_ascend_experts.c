/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures of experts on the simulated NPU: numbers that CANN follows, rows of padding, and products by weights as they
 * lie. */
#include "tests/ascend/step.h"

/* Expert e multiplies by e + 1: row t becomes x[t] times the sum over its places of scale * (expert + 1). */
#define MIXTURE(symbol, more)                                                                                       \
    "npugraph 1\ngraph \"m\" {\n " symbol "\n param %w0 : f32[2,2]\n param %w1 : f32[2,2]\n param %w2 : f32[2,2]\n" \
    " input %x : f32[B,2]\n input %e : i64[B,2]\n input %s : f32[B,2]\n"                                            \
    " %r, %to, %n = npu.moe_init_routing_v2(%x, %e) {expert_num=3}\n"                                               \
    " %p = npu.grouped_matmul(%r, %n, %w0, %w1, %w2) {group_list_type=1}\n"                                         \
    " %y = npu.moe_finalize_routing(%p, %s, %to)\n" more "}\n"

static void write_experts(const struct ready *r, int experts)
{
    struct ngd_diag diag = {0};

    for (int e = 0; e < experts; e++) {
        const float f = (float)(e + 1), w[4] = {f, 0, 0, f};

        must(ngd_buffer_write(r->bound[e], 0, w, sizeof(w), &diag), &diag);
    }
}

START_TEST(rows_of_padding_have_experts_and_do_not_show)
{
    static const char *const texts[] = {MIXTURE("sym B 1..8", " return \"y\" = %y\n"),
                                        MIXTURE("sym B 1..8 buckets 8", " return \"y\" = %y\n")};
    const float x[6] = {1, 2, 3, 4, 5, 6}, s[6] = {0.5F, 0.25F, 1, 2, 0.125F, 4};
    int64_t rows = 3, e[6] = {2, 0, 1, 2, 0, 1};
    const struct ngd_span in[3] = {{x, sizeof(x)}, {e, sizeof(e)}, {s, sizeof(s)}};
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (int k = 0; k < 2; k++) {
        float y[6];
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.symbols = &rows, .inputs = in, .outputs = &out};
        struct ready r;

        must(ready_open(&r, &b, texts[k], &rows, &diag), &diag);
        write_experts(&r, 3);
        e[5] = 1;
        for (int eager = 0; eager < 2; eager++) {
            launch.eager = eager;
            must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
            for (int i = 0; i < 6; i++) {
                const int t = i / 2 * 2;

                ck_assert_float_eq(y[i], x[i] * (s[t] * (float)(e[t] + 1) + s[t + 1] * (float)(e[t + 1] + 1)));
            }
        }
        for (int wrong = -1; wrong < 4; wrong += 4) { /* it never reaches the device */
            e[5] = wrong;
            ck_assert_int_eq(ngd_stream_run(b.stream, r.inst, &launch), NGD_ERR_INDEX_RANGE);
            ck_assert_int_eq(ngd_stream_status(b.stream), NGD_OK);
        }
        ready_close(&r);
    }
    close_device(&b);
    nothing_is_left("after mixtures");
}
END_TEST

/* On each chip and with padding of the kernel's own: a row of NaN has experts that there are. */
START_TEST(gates_are_of_experts_that_there_are_whatever_the_row)
{
    static const char *const socs[] = {"Ascend910B4", "Ascend310P3", "Ascend950PR"};
    static const int64_t widths[] = {1, 8, 32, 40};
    static float x[3 * 40];

    for (size_t s = 0; s < sizeof(socs) / sizeof(socs[0]); s++) {
        for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
            const int64_t n = widths[w], k = n > 4 ? 4 : n;
            struct ngd_diag diag = {0};
            float y[3 * 4];
            int32_t e[3 * 4];
            struct ngd_out out[2] = {{y, (size_t)(3 * k) * 4}, {e, (size_t)(3 * k) * 4}};
            const struct ngd_span in = {x, (size_t)(3 * n) * 4};
            struct ngd_launch launch = {.inputs = &in, .outputs = out};
            struct ready r;
            struct bench b;
            char text[300];

            for (int64_t i = 0; i < n; i++) {
                x[i] = (float)(i * 7 % n); /* the largest is where that is n - 1 */
                x[n + i] = NAN;
                x[2 * n + i] = i == 0 ? INFINITY : 0;
            }
            simulator_set("soc", socs[s]);
            must(open_device(&b, 0, &diag), &diag);
            snprintf(text, sizeof(text),
                     "npugraph 1\ngraph \"g\" {\n input %%x : f32[3,%lld]\n"
                     " %%y, %%e = npu.moe_gating_top_k_softmax(%%x) {k=%lld}\n return \"y\" = %%y, \"e\" = %%e\n}\n",
                     (long long)n, (long long)k);
            must(ready_open(&r, &b, text, NULL, &diag), &diag);
            must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
            for (int64_t j = 0; j < k; j++) {
                ck_assert_int_eq(e[j] * 7 % n, n - 1 - j);
                ck_assert_float_eq_tol(y[j] / y[0], expf(-(float)j), 1e-5F);
            }
            for (int64_t i = 0; i < 3 * k; i++)
                ck_assert_msg(e[i] >= 0 && e[i] < n, "%s, %lld experts: expert %d", socs[s], (long long)n, e[i]);
            ready_close(&r);
            close_device(&b);
        }
    }
    simulator_set("soc", "Ascend910B4");
    nothing_is_left("after gates");
}
END_TEST

#define GATED(experts, k, more)                                                                          \
    "npugraph 1\ngraph \"g\" {\n param %w0 : f32[2,2]\n param %w1 : f32[2,2]\n param %w2 : f32[2,2,2]\n" \
    " param %b0 : f32[2]\n param %b1 : f32[2]\n input %x : f32[4,2]\n"                                   \
    " input %g : f32[4," experts "]\n %s, %e = aten.topk(%g) {k=" k "}\n"                                \
    " %r, %to, %n = npu.moe_init_routing_v2(%x, %e) {expert_num=2}\n" more "}\n"
#define PRODUCT  " %p = npu.grouped_matmul(%r, %n, %w0, %w1) {group_list_type=1}\n"
#define SUM      " %y = npu.moe_finalize_routing(%p, %s, %to)\n return \"y\" = %y\n"
#define UNPADDED "sym B 1..8"
#define BUCKETS  "sym B 1..8 buckets 8"

/* What CANN would follow outside a tensor, and what padding would change. */
START_TEST(numbers_that_may_be_wrong_and_padding_that_would_show_are_refused_by_name)
{
    static const struct {
        const char *text, *words; /* NULL: it is taken */
    } cases[] = {
        {GATED("2", "1", PRODUCT SUM), NULL},
        {"npugraph 1\ngraph \"g\" {\n input %x : f32[4,2]\n input %g : f32[4,3]\n"
         " %s, %e = npu.moe_gating_top_k_softmax(%g) {k=1}\n"
         " %r, %to, %n = npu.moe_init_routing_v2(%x, %e) {expert_num=2}\n return \"r\" = %r\n}\n",
         "only those that npu.moe_gating_top_k_softmax"},
        {"npugraph 1\ngraph \"g\" {\n input %x : f32[4,2]\n input %g : f32[4,2]\n"
         " %s, %e = npu.moe_gating_top_k_softmax(%g) {k=1}\n"
         " %r, %to, %n = npu.moe_init_routing_v2(%x, %e) {expert_num=2}\n return \"r\" = %r\n}\n",
         NULL},
        {GATED("3", "1", PRODUCT SUM), "only those that npu.moe_gating_top_k_softmax or aten.topk gives"},
        {GATED("2", "1",
               " %f = aten.add.Tensor(%e, %e)\n %r2, %to2, %n2 = npu.moe_init_routing_v2(%x, %f) {expert_num=4}\n"
               " return \"r\" = %r2\n"),
         "only those that npu.moe_gating_top_k_softmax or aten.topk gives"},
        {GATED("2", "1",
               " %m = aten.add.Tensor(%n, %n)\n %p = npu.grouped_matmul(%r, %m, %w0, %w1) {group_list_type=1}\n" SUM),
         "group_list must be result 2 of npu.moe_init_routing_v2"},
        {GATED("2", "1", " %p = npu.grouped_matmul(%r, %n, %w0, %w1)\n" SUM), "group_list_type must be 1"},
        {GATED("2", "1", " %p = npu.grouped_matmul(%r, %n, %w0, %w1, %b0, %b1) {group_list_type=1, bias=true}\n" SUM),
         "without biases"},
        {GATED("2", "1", " %p = npu.grouped_matmul(%r, %n, %w2) {group_list_type=1}\n" SUM), "a tensor each"},
        {GATED("2", "1",
               PRODUCT " %u = aten.add.Tensor(%to, %to)\n %y = npu.moe_finalize_routing(%p, %s, %u)\n"
                       " return \"y\" = %y\n"),
         "expanded_src_to_dst_row must be result 1"},
        {GATED("2", "2",
               " %x2 = aten.slice.Tensor(%r) {dim=0, start=0, end=4}\n"
               " %p = npu.grouped_matmul(%x2, %n, %w0, %w1) {group_list_type=1}\n return \"p\" = %p\n"),
         "group_list must be result 2 of npu.moe_init_routing_v2 for the same rows"},
        {MIXTURE(UNPADDED, " return \"y\" = %y, \"n\" = %n\n"), NULL},
        {MIXTURE(BUCKETS, " return \"y\" = %y, \"n\" = %n\n"), "rows of padding have experts too"},
        {MIXTURE(BUCKETS, " return \"y\" = %y, \"p\" = %p\n"), "rows of padding have experts too"},
        {MIXTURE(BUCKETS, " %q = aten.neg(%to)\n return \"y\" = %y, \"q\" = %q\n"), "rows of padding have experts too"},
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
            ck_assert_msg(strstr(diag.text, cases[i].words) != NULL, "%zu: %s", i, diag.text);
        else
            ready_close(&r);
        close_device(&b);
    }
}
END_TEST

/* A graph of so many experts, with one row. */
static void mixture_of(struct ngd_strbuf *text, int experts)
{
    ngd_strbuf_append(text, "npugraph 1\ngraph \"l\" {\n");
    for (int e = 0; e < experts; e++)
        ngd_strbuf_printf(text, " param %%w%d : f32[2,2]\n", e);
    ngd_strbuf_printf(text,
                      " input %%x : f32[1,2]\n input %%e : i32[1,1]\n input %%s : f32[1,1]\n"
                      " %%r, %%to, %%n = npu.moe_init_routing_v2(%%x, %%e) {expert_num=%d}\n"
                      " %%p = npu.grouped_matmul(%%r, %%n",
                      experts);
    for (int e = 0; e < experts; e++)
        ngd_strbuf_printf(text, ", %%w%d", e);
    ngd_strbuf_append(text, ") {group_list_type=1, transpose_weight=true}\n"
                            " %y = npu.moe_finalize_routing(%p, %s, %to)\n return \"y\" = %y\n}\n");
}

/* One is stacked, 128 are CANN's longest list. */
START_TEST(lists_of_1_and_128_experts_are_multiplied_and_129_are_refused)
{
    static const int numbers[] = {1, 2, 128, 129};
    const float x[2] = {3, 5}, s = 0.5F;
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
        const int32_t e = numbers[k] - 1;
        const struct ngd_span in[3] = {{x, sizeof(x)}, {&e, sizeof(e)}, {&s, sizeof(s)}};
        float y[2];
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.inputs = in, .outputs = &out};
        struct ngd_strbuf text;
        struct ready r;
        ngd_status_t status;

        ngd_strbuf_init(&text);
        mixture_of(&text, numbers[k]);
        status = ready_open(&r, &b, ngd_strbuf_str(&text), NULL, &diag);
        ngd_strbuf_fini(&text);
        if (numbers[k] > 128) {
            ck_assert_int_eq(status, NGD_ERR_OP_UNSUPPORTED);
            ck_assert_msg(strstr(diag.text, "lists have 128 tensors at most") != NULL, "%s", diag.text);
            continue;
        }
        must(status, &diag);
        write_experts(&r, numbers[k]);
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        ck_assert_float_eq(y[0], 3 * s * (float)(e + 1));
        ck_assert_float_eq(y[1], 5 * s * (float)(e + 1));
        ready_close(&r);
    }
    close_device(&b);
    nothing_is_left("after lists");
}
END_TEST

/* Weights and scales in each order in which they may lie: [K,N] and its transpose, along K and along N. */
START_TEST(quantised_weights_are_multiplied_in_any_order_in_which_they_lie)
{
    static const struct {
        const char *weight, *scale, *views;
    } cases[] = {
        {"i8[64,8]", "f16[2,8]", ""},
        {"i8[8,64]", "f16[8,2]", " %wv = aten.t(%w)\n %sv = aten.t(%s)\n"},
        {"i8[8,64]", "f16[2,8]", " %wv = aten.t(%w)\n"},
        {"i8[64,8]", "f16[8,2]", " %sv = aten.t(%s)\n"},
        {"i32[8,8]", "f16[8,2]", " %wv = aten.t(%w)\n %sv = aten.t(%s)\n"}, /* along K, as checkpoints have it */
        {"i32[8,8]", "f16[2,8]", ""},                                       /* along K, contiguous: copied */
        {"i32[64,1]", "f16[2,8]", ""},                                      /* along N */
    };
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bool turned_w = strstr(cases[i].views, "%wv") != NULL, turned_s = strstr(cases[i].views, "%sv") != NULL;
        const bool int4 = cases[i].weight[1] == '3', along_n = int4 && cases[i].weight[4] == '6';
        uint8_t w[64 * 8] = {0};
        uint16_t s[16];
        float x[64], y[8], want[8] = {0};
        const struct ngd_span in = {x, sizeof(x)};
        struct ngd_out out = {y, sizeof(y)};
        struct ngd_launch launch = {.inputs = &in, .outputs = &out};
        struct ready r;
        char text[600];

        for (int k = 0; k < 64; k++) {
            x[k] = (float)(k % 5 - 2);
            for (int n = 0; n < 8; n++) {
                const int v = (k * 3 + n * 5) % 15 - 7, word = along_n ? k : turned_w ? n * 8 + k / 8 : k / 8 * 8 + n;
                const int nibble = along_n ? n : k % 8;

                if (int4)
                    w[word * 4 + nibble / 2] |= (uint8_t)((v & 15) << (nibble % 2 ? 4 : 0));
                else
                    w[turned_w ? n * 64 + k : k * 8 + n] = (uint8_t)v;
                want[n] += x[k] * (float)v * (k < 32 ? 1.0F : 2.0F) * (n % 2 ? 0.5F : 1);
            }
        }
        for (int g = 0; g < 2; g++)
            for (int n = 0; n < 8; n++) /* 1, 0.5 and twice that in f16 */
                s[turned_s ? n * 2 + g : g * 8 + n] = (uint16_t)((n % 2 ? 0x3800 : 0x3c00) + g * 0x400);
        snprintf(text, sizeof(text),
                 "npugraph 1\ngraph \"q\" {\n param %%w : %s\n param %%s : %s\n input %%x : f32[1,64]\n%s"
                 " %%y = npu.weight_quant_batchmatmul(%%x, %s, %s, none, none, none, none) {antiquant_group_size=32}\n"
                 " return \"y\" = %%y\n}\n",
                 cases[i].weight, cases[i].scale, cases[i].views, turned_w ? "%wv" : "%w", turned_s ? "%sv" : "%s");
        must(ready_open(&r, &b, text, NULL, &diag), &diag);
        must(ngd_buffer_write(r.bound[0], 0, w, int4 ? 256 : 512, &diag), &diag);
        must(ngd_buffer_write(r.bound[1], 0, s, sizeof(s), &diag), &diag);
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        for (int n = 0; n < 8; n++)
            ck_assert_msg(y[n] == want[n], "case %zu: column %d is %g, not %g", i, n, (double)y[n], (double)want[n]);
        ready_close(&r);
    }
    close_device(&b);
    nothing_is_left("after quantised weights");
}
END_TEST

UNIT_MAIN("ascend/experts", gates_are_of_experts_that_there_are_whatever_the_row,
          rows_of_padding_have_experts_and_do_not_show,
          numbers_that_may_be_wrong_and_padding_that_would_show_are_refused_by_name,
          lists_of_1_and_128_experts_are_multiplied_and_129_are_refused,
          quantised_weights_are_multiplied_in_any_order_in_which_they_lie)
