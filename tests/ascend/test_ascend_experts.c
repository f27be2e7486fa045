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
         NULL},
        {GATED("2", "1", " %p = npu.grouped_matmul(%r, %n, %w2) {group_list_type=1}\n" SUM), NULL},
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

/* ---- forms of experts ------------------------------------------------------------------------------ */

enum { EXPERTS = 3, K = 64, N = 4, ROWS = 3 };

static const struct form {
    char weight; /* 'f': floats, '8': i8, '4': int4 */
    int groups;  /* of K that have a scale each; 0: a scale for each column; -1: one for all */
    bool one, bias, offset;
    const char *scales; /* dtype: f16 or bf16 */
} forms[] = {
    {'f', 0, false, true, false, NULL},    {'f', 0, true, false, false, NULL},   {'f', 0, true, true, false, NULL},
    {'8', 0, false, false, false, "f16"},  {'8', 0, true, true, true, "f16"},    {'8', -1, false, true, false, "f16"},
    {'8', -1, true, false, false, "bf16"}, {'8', 0, false, true, true, "bf16"},  {'8', 0, true, false, false, "f32"},
    {'4', 0, false, false, true, "f16"},   {'4', 0, true, true, false, "bf16"},  {'4', 2, false, true, true, "f16"},
    {'4', 2, true, true, true, "f16"},     {'4', 2, true, false, false, "bf16"}, {'4', 2, false, false, false, "f32"},
};

static float form_weight(int e, int n, int k)
{
    return (float)((e * 5 + n * 3 + k * 7) % 15 - 7);
}

/* Of a group of K. Powers of two, so that all sums are exact in either half. */
static float form_scale(const struct form *f, int e, int n, int g)
{
    if (f->weight == 'f')
        return 1;
    return (f->groups < 0 ? e : n + e + g) % 2 ? 0.5F : 1;
}

static float form_offset(const struct form *f, int e, int n, int g)
{
    return f->offset ? (float)((n + g + e) % 3 - 1) : 0;
}

static float form_bias(const struct form *f, int e, int n)
{
    return f->bias ? (float)(e - 2 * n) : 0;
}

static float form_x(int row, int k)
{
    return (float)((row + k) % 3 - 1);
}

static float wanted(const struct form *f, int row, int e, int n)
{
    float sum = form_bias(f, e, n);

    for (int k = 0; k < K; k++) {
        const int g = f->groups > 0 ? k / (K / f->groups) : 0;

        sum += form_x(row, k) * (form_weight(e, n, k) + form_offset(f, e, n, g)) * form_scale(f, e, n, g);
    }
    return sum;
}

static void declare_list(struct ngd_strbuf *text, const struct form *f, const char *name, const char *dtype,
                         const char *dims)
{
    for (int e = 0; e < (f->one ? 1 : EXPERTS); e++)
        ngd_strbuf_printf(text, " param %%%s%d : %s[%s%s]\n", name, e, dtype, f->one ? "3," : "", dims);
}

static void name_list(struct ngd_strbuf *text, const struct form *f, const char *name)
{
    for (int e = 0; e < (f->one ? 1 : EXPERTS); e++)
        ngd_strbuf_printf(text, ", %%%s%d", name, e);
}

static void form_text(struct ngd_strbuf *text, const struct form *f)
{
    const char *scales = f->groups > 0 ? "4,2" : f->groups < 0 ? "1" : "4,1";

    ngd_strbuf_append(text, "npugraph 1\ngraph \"f\" {\n");
    declare_list(text, f, "w",
                 f->weight == 'f'   ? "f32"
                 : f->weight == '8' ? "i8"
                                    : "i32",
                 f->weight == '4' ? "4,8" : "4,64");
    if (f->bias)
        declare_list(text, f, "b", "f32", "4");
    if (f->scales)
        declare_list(text, f, "s", f->scales, scales);
    if (f->offset)
        declare_list(text, f, "o", f->scales, scales);
    ngd_strbuf_append(text, " input %x : f32[3,64]\n input %e : i32[3,1]\n input %h : f32[3,1]\n"
                            " %r, %to, %c = npu.moe_init_routing_v2(%x, %e) {expert_num=3}\n"
                            " %p = npu.grouped_matmul(%r, %c");
    name_list(text, f, "w");
    if (f->bias)
        name_list(text, f, "b");
    if (f->scales)
        name_list(text, f, "s");
    if (f->offset)
        name_list(text, f, "o");
    ngd_strbuf_printf(text,
                      ") {group_list_type=1, transpose_weight=true, bias=%s, antiquant_scale=%s, antiquant_offset=%s, "
                      "antiquant_group_size=%d}\n %%y = npu.moe_finalize_routing(%%p, %%h, %%to)\n"
                      " return \"y\" = %%y\n}\n",
                      f->bias ? "true" : "false", f->scales ? "true" : "false", f->offset ? "true" : "false",
                      f->groups > 0 ? K / f->groups : 0);
}

/* Appends a number as it lies in a buffer. */
static void put_number(struct ngd_strbuf *to, const char *dtype, float v)
{
    const uint16_t f16 = ngd_f32_to_f16(v), bf16 = ngd_f32_to_bf16(v);

    if (strcmp(dtype, "f32") == 0)
        ngd_strbuf_append_n(to, (const char *)&v, 4);
    else
        ngd_strbuf_append_n(to, strcmp(dtype, "f16") == 0 ? (const char *)&f16 : (const char *)&bf16, 2);
}

static void put_form_weight(struct ngd_strbuf *to, const struct form *f, int e)
{
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            const int v = (int)form_weight(e, n, k), next = (int)form_weight(e, n, k + 1);

            if (f->weight == 'f')
                put_number(to, "f32", (float)v);
            else if (f->weight == '8')
                ngd_strbuf_putc(to, (char)v);
            else if (k % 2 == 0) /* the first of a byte is its lower half */
                ngd_strbuf_putc(to, (char)((v & 15) | (next & 15) << 4));
        }
}

static void put_form_list(struct ngd_strbuf *to, const struct form *f, char list, int e)
{
    const int groups = f->groups > 0 ? f->groups : 1;

    if (list == 'w')
        put_form_weight(to, f, e);
    for (int n = 0; list != 'w' && n < (list != 'b' && f->groups < 0 ? 1 : N); n++)
        for (int g = 0; g < (list == 'b' ? 1 : groups); g++)
            put_number(to, list == 'b' ? "f32" : f->scales,
                       list == 'b'   ? form_bias(f, e, n)
                       : list == 's' ? form_scale(f, e, n, g)
                                     : form_offset(f, e, n, g));
}

static void write_form(const struct ready *r, const struct form *f)
{
    const char lists[] = {'w', f->bias ? 'b' : 0, f->scales ? 's' : 0, f->offset ? 'o' : 0};
    struct ngd_diag diag = {0};
    int at = 0;

    for (size_t l = 0; l < sizeof(lists); l++) {
        struct ngd_strbuf data;

        ngd_strbuf_init(&data);
        for (int e = 0; lists[l] && e < EXPERTS; e++) {
            put_form_list(&data, f, lists[l], e);
            if (f->one && e + 1 < EXPERTS)
                continue;
            must(ngd_buffer_write(r->bound[at++], 0, data.data, data.len, &diag), &diag);
            ngd_strbuf_fini(&data);
            ngd_strbuf_init(&data);
        }
        ngd_strbuf_fini(&data);
    }
}

static void check_form(struct bench *b, const struct form *f, int number)
{
    const int32_t chosen[ROWS] = {2, 0, 2};
    const float share[ROWS] = {1, 1, 1};
    float x[ROWS * K], y[ROWS * N];
    const struct ngd_span in[3] = {{x, sizeof(x)}, {chosen, sizeof(chosen)}, {share, sizeof(share)}};
    struct ngd_out out = {y, sizeof(y)};
    struct ngd_launch launch = {.inputs = in, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    struct ready r;

    for (int i = 0; i < ROWS * K; i++)
        x[i] = form_x(i / K, i % K);
    ngd_strbuf_init(&text);
    form_text(&text, f);
    must(ready_open(&r, b, ngd_strbuf_str(&text), NULL, &diag), &diag);
    ngd_strbuf_fini(&text);
    write_form(&r, f);
    must(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag);
    for (int i = 0; i < ROWS * N; i++)
        ck_assert_msg(y[i] == wanted(f, i / N, chosen[i / N], i % N), "form %d: row %d, column %d is %g, not %g",
                      number, i / N, i % N, (double)y[i], (double)wanted(f, i / N, chosen[i / N], i % N));
    ready_close(&r);
}

START_TEST(experts_in_each_form_give_exact_sums)
{
    struct ngd_diag diag = {0};
    struct bench b;

    must(open_device(&b, 0, &diag), &diag);
    for (int i = 0; i < (int)(sizeof(forms) / sizeof(forms[0])); i++)
        check_form(&b, &forms[i], i);
    close_device(&b);
    nothing_is_left("after forms of experts");
}
END_TEST

#define QUANTISED(weight, scale, attributes)                                                            \
    "npugraph 1\ngraph \"q\" {\n param %w : " weight "\n param %s : " scale "\n input %x : f32[3,64]\n" \
    " input %e : i32[3,1]\n input %h : f32[3,1]\n"                                                      \
    " %r, %to, %c = npu.moe_init_routing_v2(%x, %e) {expert_num=3}\n"                                   \
    " %p = npu.grouped_matmul(%r, %c, %w, %s) {group_list_type=1, transpose_weight=true, "              \
    "antiquant_scale=true, " attributes "}\n %y = npu.moe_finalize_routing(%p, %h, %to)\n return \"y\" = %y\n}\n"

START_TEST(experts_in_forms_that_cann_has_not_are_refused_with_what_to_do)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {QUANTISED("u8[3,4,32]", "u8[3,4,2]", "antiquant_group_size=32"),
         "no experts in MXFP4: npugraphctl load makes floats"},
        {QUANTISED("f8_e4m3fn[3,4,64]", "f32[3,4,1]", "antiquant_group_size=0"), "but not in f8_e4m3fn"},
        {QUANTISED("i8[3,4,64]", "f32[3,4,2]", "antiquant_group_size=32"), "rule SCALES"},
        {QUANTISED("i32[3,4,8]", "f16[3,4,2]", "antiquant_group_size=32, antiquant_zero=8"), "antiquant_zero"},
        {QUANTISED("i32[3,4,8]", "f16[3,4,2]", "antiquant_group_size=48"), "multiple"},
    };
    struct bench b;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_diag diag = {0};
        struct ready r;

        must(open_device(&b, 0, &diag), &diag);
        ck_assert_int_ne(ready_open(&r, &b, cases[i].text, NULL, &diag), NGD_OK);
        ck_assert_msg(strstr(diag.text, cases[i].words) != NULL, "%zu: %s", i, diag.text);
        close_device(&b);
    }
}
END_TEST

/* By CANN's operator, and of other operators where a version or a chip lacks it. */
START_TEST(clipped_swiglu_is_that_of_the_documents_with_and_without_its_operator)
{
    static const char *const apis[] = {"8.5", "8.1"}, *const dtypes[] = {"f32", "bf16"};
    const float alpha = 1.702F, limit = 1.5F;
    float x[2 * 8], y[2 * 4];
    const struct ngd_span in = {x, sizeof(x)};
    struct ngd_out out = {y, sizeof(y)};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};

    for (int i = 0; i < 16; i++)
        x[i] = (float)(i * 5 % 13 - 6) / 2;
    for (int v = 0; v < 8; v++) {
        const bool interleaved = v & 1;
        struct ngd_diag diag = {0};
        struct bench b;
        struct ready r;
        char text[400];

        simulator_set("api", apis[v >> 1 & 1]);
        must(open_device(&b, 0, &diag), &diag);
        snprintf(text, sizeof(text),
                 "npugraph 1\ngraph \"c\" {\n input %%x : f32[2,8]\n %%h = aten._to_copy(%%x) {dtype=%s}\n"
                 " %%z = npu.clipped_swiglu(%%h) {limit=1.5, bias=0.5, interleaved=%s}\n"
                 " %%y = aten._to_copy(%%z) {dtype=f32}\n return \"y\" = %%y\n}\n",
                 dtypes[v >> 2], interleaved ? "true" : "false");
        must(ready_open(&r, &b, text, NULL, &diag), &diag);
        must(ngd_stream_run(b.stream, r.inst, &launch), &launch.diag);
        for (int i = 0; i < 8; i++) {
            const float *row = x + i / 4 * 8;
            const float g = fminf(row[interleaved ? i % 4 * 2 : i % 4], limit);
            const float u = fmaxf(fminf(row[interleaved ? i % 4 * 2 + 1 : i % 4 + 4], limit), -limit);
            const float want = g / (1 + expf(-alpha * g)) * (u + 0.5F);

            ck_assert_msg(fabsf(y[i] - want) <= (v >> 2 ? 0.01F : 1e-5F), "%d: element %d is %g, not %g", v, i,
                          (double)y[i], (double)want);
        }
        ready_close(&r);
        close_device(&b);
    }
    simulator_set("api", "9.1");
}
END_TEST

UNIT_MAIN("ascend/experts", experts_in_each_form_give_exact_sums,
          experts_in_forms_that_cann_has_not_are_refused_with_what_to_do,
          clipped_swiglu_is_that_of_the_documents_with_and_without_its_operator,
          gates_are_of_experts_that_there_are_whatever_the_row, rows_of_padding_have_experts_and_do_not_show,
          numbers_that_may_be_wrong_and_padding_that_would_show_are_refused_by_name,
          lists_of_1_and_128_experts_are_multiplied_and_129_are_refused,
          quantised_weights_are_multiplied_in_any_order_in_which_they_lie)
