/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/graph_pack.h"
#include "graphs/memplan.h"
#include "graphs/plan_pack.h"
#include "tests/unit/plan_util.h"

static const struct decoder_shape small = {
    .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .ffn = 128, .vocab = 96};

static const char *const mlp = "npugraph 1\ngraph \"mlp\" {\n  sym B 1..16 buckets 4, 16\n  param %w : f32[32,16]\n"
                               "  input %x : f32[B,16]\n  %y = aten.linear(%x, %w)\n  %z = aten.silu(%y)\n"
                               "  %a = aten.add.Tensor(%z, %y)\n  return \"a\" = %a\n}\n";

/* Another graph with the same inputs and outputs, such as passes make. */
static const char *const other = "npugraph 1\ngraph \"mlp\" {\n  sym B 1..16 buckets 4, 16\n  param %w : f32[32,16]\n"
                                 "  input %x : f32[B,16]\n  %y = aten.linear(%x, %w)\n  %z = aten.silu(%y)\n"
                                 "  %a = aten.add.Tensor(%y, %z)\n  return \"a\" = %a\n}\n";

struct packed {
    struct ngd_graph *source;
    struct ngd_key key;
    struct ngd_plan *plan;
    struct ngd_strbuf bytes;
};

/* Packs a plan of `planned` with a key of `source`. */
static void pack(struct packed *p, const char *source, const char *planned, int64_t rows)
{
    struct ngd_digest options = {{0}};
    struct ngd_graph *g = parse_graph(planned);
    struct ngd_key key;

    memset(p, 0, sizeof(*p));
    ngd_strbuf_init(&p->bytes);
    p->source = parse_graph(source);
    ck_assert_int_eq(ngd_key_make(p->source, &options, &rows, 1, &p->key, NULL), NGD_OK);
    ck_assert_int_eq(ngd_key_make(g, &options, &rows, 1, &key, NULL), NGD_OK);
    ck_assert_int_eq(ngd_plan_create(g, &key, NULL, &inplace_target, &p->plan, NULL), NGD_OK);
    ngd_plan_pack(p->plan, p->source, &p->bytes);
    ck_assert(!p->bytes.failed);
    ngd_graph_unref(g);
}

static ngd_status_t unpack(const struct packed *p, const void *data, size_t n, const struct ngd_plan_target *target,
                           struct ngd_plan **plan_p, struct ngd_diag *diag)
{
    void *copy = ngd_memdup(data, n ? n : 1); /* exactly n bytes, so that a sanitizer sees reads past the end */
    ngd_status_t status = ngd_plan_unpack(p->source, &p->key, NULL, target, copy, n, plan_p, diag);

    ngd_free(copy);
    return status;
}

static void unpacked_fini(struct packed *p)
{
    ngd_plan_unref(p->plan);
    ngd_graph_unref(p->source);
    ngd_strbuf_fini(&p->bytes);
}

/* Prints a plan without its first line, which has the key. */
static char *print(const struct ngd_plan *plan)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_plan_print(plan, &sb);
    return ngd_strbuf_steal(&sb);
}

static void check_same(const struct packed *p)
{
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    char *a = print(p->plan), *b;

    if (unpack(p, p->bytes.data, p->bytes.len, &inplace_target, &plan, &diag))
        ck_abort_msg("%s", diag.text);
    b = print(plan);
    ck_assert_str_eq(strchr(a, '\n'), strchr(b, '\n'));
    ck_assert(ngd_key_equal(&plan->key, &p->key));
    check_plan(plan);
    ngd_plan_unref(plan);
    ngd_free(a);
    ngd_free(b);
}

START_TEST(plan_comes_back_as_it_was)
{
    char *decoder = decoder_text(&small);
    struct packed p;

    for (int64_t rows = 1; rows <= 512; rows *= 8) {
        pack(&p, decoder, decoder, rows);
        check_same(&p);
        unpacked_fini(&p);
    }
    ngd_free(decoder);
}
END_TEST

/* With passes, exact symbols have become numbers, and values have other names. */
START_TEST(plan_that_passes_made_comes_back_as_it_was)
{
    static const char *const exact =
        "npugraph 1\ngraph \"e\" {\n  sym N 1..64\n  sym B 1..8 buckets 4, 8\n  input %x : f32[N,16]\n"
        "  input %y : f32[B,16]\n  %a = aten.add.Tensor(%x, %x)\n  %b = aten.view(%a) {size=[N*16]}\n"
        "  %c = aten.view(%b) {size=[N,16]}\n  %d = aten.silu(%y)\n  return \"c\" = %c, \"d\" = %d\n}\n";
    char *decoder = decoder_text(&small);
    const char *const texts[] = {exact, decoder};
    static const int64_t symbols[2][2] = {{5, 3}, {7, 0}};
    struct ngd_graph_options options;

    ngd_graph_options_init(&options);
    for (int i = 0; i < 2; i++) {
        struct ngd_digest none = {{0}};
        struct ngd_graph *g = parse_graph(texts[i]);
        struct ngd_plan *plan = NULL, *again = NULL;
        struct ngd_strbuf bytes;
        struct ngd_diag diag = {0};
        struct ngd_key key;
        char *a, *b;

        ngd_strbuf_init(&bytes);
        ck_assert_int_eq(ngd_key_make(g, &none, symbols[i], g->n_symbols, &key, NULL), NGD_OK);
        ck_assert_int_eq(ngd_plan_create(g, &key, &options, &inplace_target, &plan, NULL), NGD_OK);
        if (i == 0) /* N became 5 */
            ck_assert(!ngd_digest_equal(&plan->graph->digest, &g->digest));
        ngd_plan_pack(plan, g, &bytes);
        if (ngd_plan_unpack(g, &key, &options, &inplace_target, bytes.data, bytes.len, &again, &diag))
            ck_abort_msg("%s", diag.text);
        a = print(plan);
        b = print(again);
        ck_assert_str_eq(a, b);
        ngd_free(a);
        ngd_free(b);
        ngd_plan_unref(plan);
        ngd_plan_unref(again);
        ngd_strbuf_fini(&bytes);
        ngd_graph_unref(g);
    }
    ngd_free(decoder);
}
END_TEST

START_TEST(plan_of_a_changed_graph_brings_the_graph_along)
{
    struct ngd_graph *made = NULL;
    struct packed p;

    pack(&p, mlp, other, 4);
    ck_assert_int_eq(ngd_plan_unpack_graph(p.bytes.data, p.bytes.len, &made, NULL), NGD_OK);
    ck_assert(ngd_digest_equal(&made->digest, &p.plan->graph->digest));
    ck_assert(ngd_graph_digest_holds(made));
    made = ngd_graph_unref(made);
    check_same(&p);
    unpacked_fini(&p);
    pack(&p, mlp, mlp, 4);
    ck_assert_int_eq(ngd_plan_unpack_graph(p.bytes.data, p.bytes.len, &made, NULL), NGD_OK);
    ck_assert_ptr_null(made);
    unpacked_fini(&p);
}
END_TEST

/* Unpacks changed bytes, without a checksum around them. The result must be an error or a valid plan. */
static void check_damaged(const struct packed *p, const char *data, size_t n, const struct ngd_plan_target *target)
{
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status = unpack(p, data, n, target, &plan, &diag);

    if (status) {
        ck_assert_ptr_null(plan);
        ck_assert_int_eq(diag.status, status);
        ck_assert_int_ne(status, NGD_ERR_INTERNAL);
        return;
    }
    check_plan(plan);
    ngd_plan_unref(plan);
}

START_TEST(every_changed_byte_is_refused_or_harmless)
{
    static const uint8_t flips[] = {0x01, 0x40, 0x80, 0xff};
    struct packed p;

    pack(&p, mlp, other, 16);
    for (size_t i = 0; i < p.bytes.len; i++) {
        for (size_t k = 0; k < sizeof(flips); k++) {
            p.bytes.data[i] ^= (char)flips[k];
            check_damaged(&p, p.bytes.data, p.bytes.len, &inplace_target);
            p.bytes.data[i] ^= (char)flips[k];
        }
    }
    check_same(&p);
    unpacked_fini(&p);
}
END_TEST

START_TEST(every_truncation_is_refused)
{
    struct ngd_plan *plan = NULL;
    struct packed p;

    pack(&p, mlp, other, 16);
    for (size_t n = 0; n < p.bytes.len; n++)
        ck_assert_int_eq(unpack(&p, p.bytes.data, n, &inplace_target, &plan, NULL), NGD_ERR_FILE_TRUNCATED);
    ngd_strbuf_putc(&p.bytes, 0);
    ck_assert_int_eq(unpack(&p, p.bytes.data, p.bytes.len, &inplace_target, &plan, NULL), NGD_ERR_FILE_CORRUPT);
    ck_assert_ptr_null(plan);
    unpacked_fini(&p);
}
END_TEST

static ngd_status_t hungry_select(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    ngd_status_t status = stub_select(ctx, plan, call, strided_p, workspace_p, diag);

    *workspace_p = *workspace_p ? *workspace_p + (1 << 20) : 0;
    return status;
}

START_TEST(layout_of_other_kernels_is_refused)
{
    static const struct ngd_plan_target hungry = {.arch = "hungry", .select = hungry_select, .inplace = true};
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct packed p;

    pack(&p, mlp, mlp, 16);
    ck_assert_int_eq(unpack(&p, p.bytes.data, p.bytes.len, &hungry, &plan, &diag), NGD_ERR_FILE_CORRUPT);
    ck_assert_str_eq(diag.text, "graph mlp: the stored memory layout belongs to another plan");
    /* Without reuse in place there are more blocks. */
    ck_assert_int_eq(unpack(&p, p.bytes.data, p.bytes.len, &stub_target, &plan, &diag), NGD_ERR_FILE_CORRUPT);
    ck_assert_ptr_null(plan);
    unpacked_fini(&p);
}
END_TEST

START_TEST(plan_of_other_inputs_is_refused)
{
    static const struct {
        const char *from, *to;
    } changes[] = {
        {"%w : f32[32,16]", "%w : f32[32,16] = \"other.name\""},
        {"buckets 4, 16", "buckets 16"},
        {"1..16", "1..15"},
        {"\"a\" =", "\"b\" ="},
        {"input %x : f32[B,16]", "input %x : f32[B,16]\n  input %more : f32[B]"},
        {"param %w", "state %w"},
    };
    struct packed p;

    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct ngd_plan *plan = NULL;
        struct ngd_diag diag = {0};
        struct ngd_strbuf sb;
        const char *at = strstr(mlp, changes[i].from);

        ck_assert_ptr_nonnull(at);
        ngd_strbuf_init(&sb);
        ngd_strbuf_append_n(&sb, mlp, (size_t)(at - mlp));
        ngd_strbuf_append(&sb, changes[i].to);
        ngd_strbuf_append(&sb, at + strlen(changes[i].from));
        pack(&p, mlp, ngd_strbuf_str(&sb), 4);
        ck_assert_int_eq(unpack(&p, p.bytes.data, p.bytes.len, &inplace_target, &plan, &diag), NGD_ERR_FILE_CORRUPT);
        ck_assert_ptr_nonnull(strstr(diag.text, "has other inputs or outputs"));
        unpacked_fini(&p);
        ngd_strbuf_fini(&sb);
    }
}
END_TEST

START_TEST(every_failed_allocation_leaves_nothing)
{
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    struct ngd_plan *plan = NULL;
    struct packed p;
    int n = 0;

    pack(&p, mlp, other, 4);
    while (status == NGD_ERR_NO_MEMORY && n < 1000) {
        ck_assert_ptr_null(plan);
        ngd_mem_fail_after(n++);
        status = ngd_plan_unpack(p.source, &p.key, NULL, &inplace_target, p.bytes.data, p.bytes.len, &plan, NULL);
        ngd_mem_fail_after(-1);
    }
    ck_assert_int_eq(status, NGD_OK);
    ck_assert_int_gt(n, 10);
    ngd_plan_unref(plan);
    unpacked_fini(&p);
}
END_TEST

/* ---- the check of layouts ---- */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static bool by_pairs(const struct ngd_memplan_block *b, uint32_t n, uint64_t peak)
{
    for (uint32_t i = 0; i < n; i++) {
        if (b[i].offset % 64 || b[i].offset + b[i].bytes > peak || b[i].first > b[i].last)
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (b[i].bytes && b[k].bytes && b[i].first <= b[k].last && b[k].first <= b[i].last &&
                b[i].offset < b[k].offset + b[k].bytes && b[k].offset < b[i].offset + b[i].bytes)
                return false;
    }
    return true;
}

START_TEST(check_of_layouts_agrees_with_every_pair)
{
    struct ngd_memplan_block b[12];
    uint32_t good = 0;
    uint64_t seed = 7;

    for (int run = 0; run < 200000; run++) {
        uint32_t n = draw(&seed, 12);
        uint64_t peak = 64 * (8 + draw(&seed, 56));
        bool want;

        for (uint32_t i = 0; i < n; i++) {
            b[i].first = draw(&seed, 8);
            b[i].last = b[i].first + draw(&seed, 3) - (draw(&seed, 200) == 0 && b[i].first ? 1 : 0);
            b[i].bytes = draw(&seed, 4) ? draw(&seed, 300) : 64 * draw(&seed, 4);
            b[i].offset = 64 * draw(&seed, 60) + (draw(&seed, 300) == 0);
        }
        want = by_pairs(b, n, peak);
        good += want && n > 3;
        ck_assert_int_eq(ngd_memplan_check(b, n, 64, peak), want ? NGD_OK : NGD_ERR_FILE_CORRUPT);
    }
    ck_assert_uint_gt(good, 5000);
}
END_TEST

UNIT_MAIN("graphs/plan_pack", plan_comes_back_as_it_was, plan_that_passes_made_comes_back_as_it_was,
          plan_of_a_changed_graph_brings_the_graph_along, every_changed_byte_is_refused_or_harmless,
          every_truncation_is_refused, layout_of_other_kernels_is_refused, plan_of_other_inputs_is_refused,
          every_failed_allocation_leaves_nothing, check_of_layouts_agrees_with_every_pair)
