/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that fused operators give the bits of the operators that they combine. */
#include "tests/ops/each_isa.h"
#include "tests/ops/random_io.h"
#include <ctype.h>

/* Inputs and states; the fused node; the nodes that it combines. Both make %y. */
static const struct {
    const char *given, *fused, *apart;
} fusions[] = {
    {"input %x : T[M,96]\ninput %w : W[40,96]\ninput %v : W[17,96]\ninput %b : W[40]\ninput %c : W[17]",
     "%p, %q = ngd.multi_linear(%x, %w, %v, %b, %c) {sizes=[40,17]}\n%y = aten.cat(%p, %q) {dim=1}",
     "%p = aten.linear(%x, %w, %b)\n%q = aten.linear(%x, %v, %c)\n%y = aten.cat(%p, %q) {dim=1}"},
    {"input %x : T[M,96]\ninput %g : W[96]\ninput %w : W[40,96]\ninput %v : W[64,96]",
     "%p, %q = ngd.rms_norm_linear(%x, %g, %w, %v) {sizes=[40,64]}\n%y = aten.cat(%p, %q) {dim=1}",
     "%n, %s = npu.rms_norm(%x, %g)\n%p = aten.linear(%n, %w)\n%q = aten.linear(%n, %v)\n"
     "%y = aten.cat(%p, %q) {dim=1}"},
    {"input %x : T[M,96]\ninput %w : W[41,96]\ninput %r : T[M,41]\ninput %b : W[41]",
     "%y = ngd.linear_add(%x, %w, %r, %b)", "%p = aten.linear(%x, %w, %b)\n%y = aten.add.Tensor(%r, %p)"},
    {"input %x : T[M,96]\ninput %w : W[48,96]\ninput %r : T[M,48]", "%y = ngd.linear_add(%x, %w, %r)",
     "%p = aten.linear(%x, %w)\n%y = aten.add.Tensor(%r, %p)"},
    {"input %x : T[M,96]\ninput %w : W[130,96]\ninput %v : W[130,96]\ninput %b : W[130]",
     "%y = ngd.linear_swiglu(%x, %w, %v, none, %b)",
     "%p = aten.linear(%x, %w)\n%q = aten.linear(%x, %v, %b)\n%a = aten.silu(%p)\n%y = aten.mul.Tensor(%a, %q)"},
    {"input %x : T[M,96]\ninput %g : W[96]\ninput %w : W[130,96]\ninput %v : W[130,96]",
     "%y = ngd.rms_norm_linear_swiglu(%x, %g, %w, %v)",
     "%n, %s = npu.rms_norm(%x, %g)\n%p = aten.linear(%n, %w)\n%q = aten.linear(%n, %v)\n%a = aten.silu(%p)\n"
     "%y = aten.mul.Tensor(%a, %q)"},
    {"input %x : T[M,96]\ninput %g : W[32]\ninput %c : f32[M,32]\ninput %l : i32[M]\nstate %k : W[2,4,3,32]\n"
     "state %v : W[2,4,3,32]\n%h = aten.view(%x) {size=[M,3,32]}",
     "%z = ngd.qk_norm_rope_scatter(%h, %h, %h, %c, %c, %l, %k, %v, %g, %g)\n%zw = aten._to_copy(%z) {dtype=f32}\n"
     "%kw = aten._to_copy(%k) {dtype=f32}\n%vw = aten._to_copy(%v) {dtype=f32}\n"
     "%z1 = aten.view(%zw) {size=[M*96]}\n%k1 = aten.view(%kw) {size=[768]}\n%v1 = aten.view(%vw) {size=[768]}\n"
     "%y = aten.cat(%z1, %k1, %v1)",
     "%n, %s = npu.rms_norm(%h, %g)\n%z = npu.rotary_mul(%n, %c, %c)\nnpu.scatter_pa_kv_cache(%z, %h, %l, %k, %v)\n"
     "%zw = aten._to_copy(%z) {dtype=f32}\n%kw = aten._to_copy(%k) {dtype=f32}\n"
     "%vw = aten._to_copy(%v) {dtype=f32}\n%z1 = aten.view(%zw) {size=[M*96]}\n%k1 = aten.view(%kw) {size=[768]}\n"
     "%v1 = aten.view(%vw) {size=[768]}\n%y = aten.cat(%z1, %k1, %v1)"},
    {"input %x : T[M,96]\ninput %g : W[96]\ninput %s : f32[96]",
     "%q, %e, %r, %d, %f = npu.add_rms_norm_dynamic_quant(%x, %x, %g, %s)\n%y = aten._to_copy(%q) {dtype=f32}",
     "%n, %t, %r = npu.add_rms_norm(%x, %x, %g)\n%q, %d = npu.dynamic_quant(%n, %s)\n"
     "%y = aten._to_copy(%q) {dtype=f32}"},
    {"input %x : T[M,96]\ninput %g : W[96]\ninput %s : f32[96]\ninput %o : f32[1]",
     "%q, %e, %r = npu.add_rms_norm_quant(%x, %x, %g, %s, %o) {div_mode=false}\n%y = aten._to_copy(%q) {dtype=f32}",
     "%n, %t, %r = npu.add_rms_norm(%x, %x, %g)\n%q = npu.quantize(%n, %s, %o) {axis=-1, div_mode=false}\n"
     "%y = aten._to_copy(%q) {dtype=f32}"},
    {"input %x : T[M,96]", "%q, %d = npu.swiglu_quant(%x) {activate_left=true, quant_mode=1}\n%y = aten.clone(%d)",
     "%n = npu.swiglu(%x)\n%q, %d = npu.dynamic_quant(%n)\n%y = aten.clone(%d)"},
    {"input %x : T[M,96]\ninput %w : W[32,8]\n%h = aten.view(%x) {size=[3,M,32]}\n%u = aten.unsqueeze(%w) {dim=0}\n"
     "%e = aten.expand(%u) {size=[3,32,8]}",
     "%y = npu.transpose_batchmatmul(%h, %e)",
     "%p = aten.bmm(%h, %e)\n%q = aten.transpose.int(%p) {dim0=0, dim1=1}\n%y = aten.clone(%q)"},
};

/* Writes the text with its types (%T of x, %W of weights) and its number of rows. */
static void fusion_text(struct ngd_strbuf *sb, const char *given, const char *node, const char *t, const char *w,
                        int rows)
{
    struct ngd_strbuf body;

    ngd_strbuf_init(&body);
    for (const char *p = given; p; p = p == given ? node : NULL) {
        const char *begin = p;

        for (; *p; p++) {
            const bool word = p > begin && (isalnum((unsigned char)p[-1]) || p[-1] == '_' || p[-1] == '%');

            if (*p == 'T' && p[1] == '[' && !word)
                ngd_strbuf_append(&body, t);
            else if (*p == 'W' && p[1] == '[' && !word)
                ngd_strbuf_append(&body, w);
            else if (*p == 'M' && !word && !isalpha((unsigned char)p[1]))
                ngd_strbuf_printf(&body, "%d", rows);
            else
                ngd_strbuf_append_n(&body, p, 1);
        }
        if (begin == given)
            ngd_strbuf_append(&body, "\n");
        p = begin;
    }
    run_text(sb, "", ngd_strbuf_str(&body));
    ngd_strbuf_fini(&body);
}

static void check_fusion(struct bench *b, size_t f, const char *t, const char *w, int rows)
{
    struct ngd_strbuf text[2];
    struct ready r[2];
    struct io io[2];

    for (int k = 0; k < 2; k++) {
        ngd_strbuf_init(&text[k]);
        fusion_text(&text[k], fusions[f].given, k ? fusions[f].apart : fusions[f].fused, t, w, rows);
        open_or_abort(&r[k], b, ngd_strbuf_str(&text[k]), NULL);
        io_open(&io[k], &r[k]);
        if (k == 0)
            io_randomize(&io[0], &r[0]);
        for (uint32_t i = 0; k && i < io[0].n_in; i++)
            memcpy(io[1].in_room[i], io[0].in_room[i], io[0].in[i].bytes);
        ck_assert_int_eq(replay(b, &r[k], &io[k], NULL, false, NULL), NGD_OK);
    }
    ck_assert_uint_eq(io[0].out[0].bytes, io[1].out[0].bytes);
    ck_assert_msg(memcmp(io[0].out_room[0], io[1].out_room[0], io[0].out[0].bytes) == 0,
                  "on %s this\n%sdiffers from\n%s", b->name, ngd_strbuf_str(&text[0]), ngd_strbuf_str(&text[1]));
    for (int k = 0; k < 2; k++) {
        io_close(&io[k]);
        ready_close(&r[k]);
        ngd_strbuf_fini(&text[k]);
    }
}

START_TEST(fused_operators_give_the_bits_of_what_they_stand_for)
{
    static const char *const types[][2] = {
        {"f32", "f32"}, {"f32", "bf16"}, {"f32", "f16"}, {"bf16", "bf16"}, {"f16", "f16"}};
    static const int rows[] = {1, 5, 8, 60};

    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 2);
        for (size_t f = 0; f < sizeof(fusions) / sizeof(fusions[0]); f++)
            for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
                for (size_t m = 0; m < sizeof(rows) / sizeof(rows[0]); m++)
                    check_fusion(&b, f, types[t][0], types[t][1], rows[m]);
        bench_close(&b);
    }
}
END_TEST

UNIT_MAIN("ops/composed", fused_operators_give_the_bits_of_what_they_stand_for)
