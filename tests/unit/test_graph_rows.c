/* SPDX-License-Identifier: Apache-2.0 */
/* Tests bucketed symbols: graphs whose padding stays invisible are accepted, others are refused. */
#include "tests/unit/graph_util.h"

#define S "sym B 1..16 buckets 4, 16\n"
#define E "sym K 1..64\n"

START_TEST(operators_that_keep_rows_apart_are_accepted)
{
    static const char *const bodies[] = {
        S "input %x : f32[B,8]\ninput %b : f32[8]\n%y = aten.add.Tensor(%x, %b)\n%z = aten.mul.Tensor(%y, %x)\n"
          "return %z",
        S "input %x : f32[B*2,8]\n%y = aten.view(%x) {size=[B, 16]}\n%z = aten.view(%y) {size=[-1]}\nreturn %z",
        S E "input %x : f32[B,K,8]\n%q = aten.view(%x) {size=[B, K*8]}\nreturn %q",
        S
        "input %x : f32[B,2,8]\n%y = aten.permute(%x) {dims=[0, 2, 1]}\n%z = aten.transpose.int(%y) {dim0=1, dim1=-1}\n"
        "return %z",
        S "input %x : f32[B,8]\n%y = aten.unsqueeze(%x) {dim=1}\n%z = aten.squeeze.dim(%y) {dim=1}\nreturn %z",
        S "input %x : f32[8]\n%y = aten.expand(%x) {size=[B, 8]}\nreturn %y",
        S "input %x : f32[1,8]\ninput %y : f32[B,8]\n%z = aten.mul.Tensor(%x, %y)\nreturn %z",
        S "input %x : f32[B,8]\n%y = aten._softmax(%x) {dim=-1}\n%m = aten.mean.dim(%y) {dim=[1], keepdim=true}\n"
          "%s = aten.sum.dim_IntList(%y) {dim=[-1]}\n%a = aten.argmax(%y) {dim=1}\n%c = aten.cumsum(%y) {dim=1}\n"
          "%n = aten.any.dim(%y) {dim=-1, keepdim=true}\n%l = aten.all.dims(%y) {dim=[1]}\n"
          "return %m, %s, %a, %c, %n, %l",
        S "input %x : f32[B,8]\ninput %z : f32[2,8]\n%a = aten.stack(%x, %x) {dim=1}\n"
          "%b = aten.repeat(%a) {repeats=[1,2,3]}\n%c = aten.repeat(%z) {repeats=[B,1]}\nreturn %b, %c",
        S "input %q : f32[B,2,3,8]\ninput %m : f32[B,1,3,3]\n%y = aten.scaled_dot_product_attention(%q, %q, %q, %m)\n"
          "%z = aten.scaled_dot_product_attention(%y, %y, %y) {is_causal=true}\nreturn %z",
        S "input %x : f32[B,8]\n%a, %b = aten.split.Tensor(%x) {split_size=5, dim=1}\n%c = aten.full_like(%a) "
          "{fill_value=2}\n%d, %e, %f = aten.unbind.int(%b) {dim=1}\n%z = aten.zeros() {size=[2*B]}\nreturn %c, %f, %z",
        S "input %x : f32[B,8]\n%a, %b = aten.split_with_sizes(%x) {split_sizes=[4, 4], dim=1}\n"
          "%c = aten.cat(%b, %a) {dim=1}\n%d = aten.select.int(%c) {dim=1, index=0}\nreturn %d",
        S
        "input %x : f32[B,8]\n%y = aten.slice.Tensor(%x) {dim=0}\n%z = aten.slice.Tensor(%y) {dim=1, end=4}\nreturn %z",
        S "input %x : f32[B,8]\ninput %i : i64[B,3]\n%y = aten.gather(%x, %i) {dim=1}\nreturn %y",
        S "param %t : f32[100,8]\ninput %i : i32[B]\n%y = aten.index_select(%t, %i) {dim=0}\n%e = aten.embedding(%t, "
          "%i)\n"
          "%x = aten.index.Tensor(%t, %i)\nreturn %y, %e, %x",
        S "param %x : f32[16,8]\ninput %i : i64[B]\ninput %v : f32[B,8]\n%y = aten.index_put(%x, %i, %v)\nreturn %y",
        S "param %x : f32[16,8]\ninput %i : i64[B]\ninput %v : f32[B,8]\n%y = aten.index_copy(%x, %i, %v) {dim=0}\n"
          "return %y",
        S "input %x : f32[B,8]\ninput %i : i64[3]\ninput %v : f32[B,3]\n%y = aten.index_copy(%x, %i, %v) {dim=1}\n"
          "return %y",
        S "input %x : f32[B,8]\ninput %s : f32[B,3]\n%y = aten.slice_scatter(%x, %s) {dim=1, end=3}\nreturn %y",
        S "input %x : f32[B,8]\n%y = aten.constant_pad_nd(%x) {pad=[1,2]}\nreturn %y",
        S "input %x : f32[B,8]\ninput %i : i64[B,3]\ninput %s : f32[B,3]\n%y = aten.scatter.src(%x, %i, %s) {dim=1}\n"
          "return %y",
        S "input %x : f32[B,8]\nparam %w : f32[8]\n%y = aten.layer_norm(%x, %w) {normalized_shape=[8]}\n"
          "%z, %r = npu.rms_norm(%y, %w)\n%s = npu.swiglu(%z)\nreturn %s",
        S "%y = aten.arange.start_step() {end=B}\n%z = aten.full() {size=[B, 2], fill_value=1}\nreturn %y, %z",
        S "input %x : f32[B,4,8]\ninput %y : f32[B,8,2]\n%z = aten.bmm(%x, %y)\nreturn %z",
        S "input %x : f32[B,8]\nparam %g : f32[8]\nparam %w : bf16[8,8]\n%p, %q = ngd.rms_norm_linear(%x, %g, %w, %w) "
          "{sizes=[8,8]}\n%u = ngd.linear_swiglu(%p, %w, %w)\n%y = ngd.linear_add(%u, %w, %q)\nreturn %y",
        S "input %a : f32[B,8]\nparam %w : f32[8,4]\nparam %b : f32[4]\n%m = aten.addmm(%b, %a, %w)\n"
          "%n = aten.mm(%a, %w)\nreturn %m, %n",
        /* The last row of each prompt: a table of padded rows, reached by indices below its actual rows. */
        "sym T 1..64 buckets 64\nsym S 1..8 buckets 8\ninput %x : f32[T,8]\ninput %i : i32[S]\n"
        "%y = aten.index.Tensor(%x, %i)\nreturn %y",
        /* A symbol beside an exact one; an unused input; a list of host numbers. */
        S E "input %x : f32[B,K]\nhost %h : i64[B]\n%y = aten.sum.dim_IntList(%x) {dim=[1]}\nreturn %y",
        S "input %unused : f32[B,2]\ninput %x : f32[4]\nreturn %x",
        /* Query rows and sequences with symbols of their own. */
        "sym T 1..64 buckets 64\nsym S 1..8 buckets 8\nstate %k : f32[32,16,2,8]\nstate %v : f32[32,16,2,8]\n"
        "input %q : f32[T,4,8]\ninput %n : f32[T,2,8]\ninput %slots : i32[T]\ninput %t : i32[S,8]\nhost %ql : i64[S]\n"
        "host %kl : i64[S]\nnpu.scatter_pa_kv_cache(%n, %n, %slots, %k, %v)\n"
        "%o = npu.fused_infer_attention_score(%q, %k, %v, %t, %ql, %kl) {num_heads=4, num_key_value_heads=2, scale=1, "
        "block_size=16}\nreturn %o",
        /* The same over a latent cache. */
        "sym T 1..64 buckets 64\nsym S 1..8 buckets 8\nstate %k : f32[32,16,1,8]\nstate %r : f32[32,16,1,4]\n"
        "input %q : f32[T,4,8]\ninput %p : f32[T,4,4]\ninput %n : f32[T,1,8]\ninput %m : f32[T,1,4]\n"
        "input %slots : i32[T]\ninput %t : i32[S,8]\nhost %ql : i64[S]\nhost %kl : i64[S]\n"
        "npu.scatter_pa_kv_cache(%n, %m, %slots, %k, %r)\n"
        "%o = npu.fused_infer_attention_score(%q, %k, %k, %t, %ql, %kl, %p, %r) {num_heads=4, num_key_value_heads=1, "
        "scale=1, block_size=16}\nreturn %o",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        ngd_graph_unref(parse_body(bodies[i]));
}
END_TEST

START_TEST(types_that_would_put_padding_between_data_are_refused)
{
    static const struct refusal refusals[] = {
        {S "input %x : f32[4,B]\nreturn %x", NGD_ERR_GRAPH_NOT_ROWWISE,
         "input %x|f32[4,B]|dimension 0 only|symbol exact"},
        {S "input %x : f32[B + 1]\nreturn %x", NGD_ERR_GRAPH_NOT_ROWWISE, "symbol times a constant"},
        {S E "input %x : f32[B,K]\n%y = aten.view(%x) {size=[-1]}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "f32[B*K]|symbol times a constant"},
        {S "input %x : f32[B*B]\nreturn %x", NGD_ERR_GRAPH_NOT_ROWWISE, "symbol times a constant"},
        {S "input %x : f32[min(B, 4)]\nreturn %x", NGD_ERR_GRAPH_NOT_ROWWISE, "symbol times a constant"},
        {S "param %x : f32[B]\nreturn %x", NGD_ERR_GRAPH_NOT_ROWWISE, "param %x|cannot be padded"},
        {S "state %x : f32[B]\nreturn %x", NGD_ERR_GRAPH_NOT_ROWWISE, "state %x|cannot be padded"},
        {S "host %h : i64[B + 1]\ninput %x : f32[4]\nreturn %x", NGD_ERR_GRAPH_NOT_ROWWISE, "host %h"},
        {S "input %x : f32[B,4]\n%y = aten.t(%x)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "%y|f32[4,B]|dimension 0 only"},
        {S "input %x : f32[B,4]\n%y = aten.unsqueeze(%x) {dim=0}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "f32[1,B,4]"},
        {S "input %x : f32[B,4]\n%y = aten.view(%x) {size=[4, B]}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "f32[4,B]"},
        {S "input %x : f32[B]\ninput %m : f32[4,1]\n%y = aten.mul.Tensor(%m, %x)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "f32[4,B]"},
        {S "input %x : f32[B,4]\nparam %w : f32[4,8]\n%t = aten.mm(%x, %w)\n%e = aten.expand(%t) {size=[2, -1, -1]}\n"
           "return %e",
         NGD_ERR_GRAPH_NOT_ROWWISE, "%e|f32[2,B,8]"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(operators_that_mix_rows_are_refused_by_name)
{
    static const struct refusal refusals[] = {
        {S "input %x : f32[5,4]\ninput %w : f32[B,4]\n%y = ngd.multi_linear(%x, %w) {sizes=[B]}\n"
           "return %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "a weight has rows of it"},
        {S "input %x : f32[B]\ninput %c : f32[B]\n%y = npu.quantize(%x, %c) {axis=0}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten._softmax(%x) {dim=0}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "node %y (aten._softmax, line 5)|symbol B has buckets|along dimension 0|symbol exact"},
        {S "input %x : f32[B,4]\n%y = aten.sum.dim_IntList(%x)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "along dimension 0"},
        {S "input %q : f32[B,4]\n%y = aten.scaled_dot_product_attention(%q, %q, %q)\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "sees all rows of keys"},
        {S "input %q : f32[B*2,3,4]\ninput %k : f32[B*2,3,4]\n"
           "%y = aten.scaled_dot_product_attention(%q, %k, %k) {enable_gqa=true}\nreturn %y",
         NGD_ERR_GRAPH_SHAPE, "enable_gqa"},
        {S "input %x : f32[B,4]\n%y = aten.stack(%x, %x) {dim=-3}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "dimension"},
        {S "input %x : f32[B,4]\n%y = aten.repeat(%x) {repeats=[2,1]}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "padding would end up between rows"},
        {S "input %x : f32[B,4]\n%y = aten.repeat(%x) {repeats=[2,1,1]}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.softmax.int(%x) {dim=-2}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "along dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.var.correction(%x)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "along dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.any(%x)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "along dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.all.dim(%x) {dim=-2}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "along dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.amax(%x) {dim=[1, 0]}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.argmax(%x) {dim=-2}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "dimension 0"},
        {S "input %x : f32[B,4]\n%y, %i = aten.topk(%x) {k=1, dim=0}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.cumsum(%x) {dim=0}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.prod.dim_int(%x) {dim=0}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.cat(%x, %x)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "between rows"},
        {S "input %x : f32[B,4]\n%y = aten.slice.Tensor(%x) {end=1}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.slice.Tensor(%x) {start=-1}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.select.int(%x) {dim=0, index=0}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "dimension 0"},
        {S "input %x : f32[B*2,4]\n%y, %z = aten.split.Tensor(%x) {split_size=B}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "attribute depends on it"},
        {S "input %x : f32[B*2,4]\n%y, %z = aten.split_with_sizes(%x) {split_sizes=[B, B]}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "attribute depends on it"},
        {S "param %t : f32[100,8]\ninput %i : i32[B]\n%e = aten.embedding(%t, %i)\n%x = aten.index.Tensor(%e, %i)\n"
           "return %x",
         NGD_ERR_GRAPH_NOT_ROWWISE, "any row of the table"},
        {S "input %x : f32[B,8]\ninput %i : i64[3]\n%y = aten.index_select(%x, %i) {dim=0}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "dimension 0"},
        {S "sym C 1..4\ninput %x : f32[B,8]\ninput %i : i64[1,3]\n%y = aten.gather(%x, %i) {dim=1}\ninput %c : "
           "f32[C]\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "the index has not"},
        {S "param %x : f32[16,8]\ninput %i : i64[B,3]\ninput %s : f32[B,3]\n%y = aten.scatter.src(%x, %i, %s) {dim=1}\n"
           "return %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "tensor that has none"},
        {S "input %x : f32[B,8]\ninput %i : i64[4]\ninput %v : f32[4,8]\n%y = aten.index_put(%x, %i, %v)\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "any of which may be written"},
        {S "input %x : f32[B,8]\ninput %i : i64[4]\ninput %v : f32[4,8]\n%y = aten.index_copy(%x, %i, %v) {dim=0}\n"
           "return %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "any of which may be written"},
        {S "input %x : f32[B,8]\ninput %i : i64[B]\ninput %v : f32[B,B]\n%y = aten.index_copy(%x, %i, %v) {dim=1}\n"
           "return %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "may size dimension 0 only"},
        {S "input %x : f32[B,8]\ninput %s : f32[8]\n%y = aten.select_scatter(%x, %s) {dim=0, index=0}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "works along dimension 0"},
        {S "input %x : f32[B,8]\n%y = aten.constant_pad_nd(%x) {pad=[0,0,1,0]}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.tril(%x)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "mixes rows"},
        {S "input %x : f32[B]\nparam %w : f32[4]\n%v = aten.view(%x) {size=[B]}\n"
           "%y = aten.layer_norm(%v) {normalized_shape=[B]}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "attribute depends on it"},
        {S "input %x : f32[B]\ninput %g : f32[B]\n%y, %r = npu.rms_norm(%x, %g)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "along dimension 0"},
        {S "input %x : f32[B*2]\n%y = npu.swiglu(%x)\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "along dimension 0"},
        {S "input %x : f32[B,4]\n%y = aten.slice.Tensor(%x) {dim=1, start=min(B, 2), end=4}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "attribute depends on it"},
        {S "%y = aten.arange.start_step() {start=B, end=B + 4}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "attribute depends on it"},
        {S "%y = aten.full() {size=[4, B], fill_value=0}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE, "dimension 0 only"},
        {S "input %x : f32[8,4]\ninput %y : f32[B,4]\n%w = aten.neg(%y)\n%z = aten.linear(%x, %w)\nreturn %z",
         NGD_ERR_GRAPH_NOT_ROWWISE, "the weight has rows of it"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(the_same_graphs_are_fine_when_the_symbol_is_exact)
{
    static const char *const bodies[] = {
        "sym B 1..16 exact\ninput %x : f32[4,B]\nparam %p : f32[B]\n%y = aten.add.Tensor(%x, %p)\nreturn %y",
        "sym B 1..16\ninput %x : f32[B,4]\n%y = aten._softmax(%x) {dim=0}\n%z = aten.cat(%y, %y)\n"
        "%l = aten.slice.Tensor(%z) {start=-1}\nreturn %l",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        ngd_graph_unref(parse_body(bodies[i]));
}
END_TEST

#define BATCH "sym B 1..16 batch buckets 4, 16\n"

START_TEST(graphs_whose_replays_may_run_together_are_accepted)
{
    static const char *const bodies[] = {
        BATCH "input %x : f32[B,8]\nparam %b : f32[8]\n%y = aten.add.Tensor(%x, %b)\n%z = aten.mul.Tensor(%y, %x)\n"
              "return %z",
        BATCH "input %x : f32[B*2,8]\n%y = aten.view(%x) {size=[B, 16]}\n%z = aten.view(%y) {size=[-1]}\nreturn %z",
        BATCH E "input %x : f32[B,K,8]\n%q = aten.view(%x) {size=[B, K*8]}\nreturn %q",
        BATCH "input %x : f32[B,8]\n%y = aten._softmax(%x) {dim=-1}\n%m = aten.mean.dim(%y) {dim=[1], keepdim=true}\n"
              "%a = aten.argmax(%y) {dim=1}\n%c = aten.cumsum(%y) {dim=1}\nreturn %m, %a, %c",
        BATCH "input %x : f32[B,8]\n%a = aten.stack(%x, %x) {dim=1}\n%b = aten.repeat(%a) {repeats=[1,2,3]}\nreturn %b",
        BATCH "input %q : f32[B,2,3,8]\nparam %m : bool[3,3]\n%y = aten.scaled_dot_product_attention(%q, %q, %q, %m)\n"
              "return %y",
        BATCH "input %x : f32[B,8]\ninput %i : i64[B,3]\n%y = aten.gather(%x, %i) {dim=1}\nreturn %y",
        BATCH "param %t : f32[100,8]\ninput %i : i32[B]\n%e = aten.embedding(%t, %i)\n%x = aten.index.Tensor(%t, %i)\n"
              "%s = aten.index_select(%t, %i) {dim=0}\nreturn %e, %x, %s",
        BATCH "input %x : f32[B,8]\n%o = aten.full() {size=[B, 8], fill_value=1}\n%y = aten.add.Tensor(%x, %o)\n"
              "return %y",
        BATCH "input %x : f32[B,8]\nparam %c : f32[8]\n%e = aten.expand(%c) {size=[B, 8]}\n"
              "%y = aten.cat(%x, %e) {dim=1}\nreturn %y",
        /* Values without rows are computed once, and are the same for all requests. */
        BATCH "input %x : f32[B,8]\nparam %c : f32[8,8]\n%s = aten.tril(%c)\n%r = aten.arange.start_step() {end=8}\n"
              "%m = aten.mm(%x, %s)\n%f = aten._to_copy(%r) {dtype=f32}\n%y = aten.add.Tensor(%m, %f)\nreturn %y",
        /* A state that is only read. */
        BATCH "input %x : f32[B,8]\nstate %c : f32[8]\n%y = aten.add.Tensor(%x, %c)\nreturn %y",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct ngd_graph *g = parse_body(bodies[i]);

        ck_assert_uint_eq(ngd_graph_batch_symbol(g), 0);
        ngd_graph_unref(g);
    }
}
END_TEST

START_TEST(graphs_whose_replays_would_see_one_another_are_refused_by_name)
{
    static const struct refusal refusals[] = {
        {BATCH "input %x : f32[B,8]\ninput %s : f32[1]\n%y = aten.mul.Tensor(%x, %s)\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "input \"s\" is f32[1]|symbol B is the batch|dimension 0|without `batch`"},
        {BATCH "input %x : f32[B,8]\nparam %w : f32[8]\nreturn %x, %w", NGD_ERR_GRAPH_NOT_ROWWISE,
         "output \"w\" is f32[8]|symbol B is the batch"},
        {BATCH "input %x : f32[B,8]\nhost %n : i64[]\nreturn %x", NGD_ERR_GRAPH_NOT_ROWWISE,
         "host parameter \"n\" holds for a whole replay"},
        {BATCH "input %x : f32[B,8]\n%r = aten.arange.start_step() {end=B}\n%y = aten._to_copy(%r) {dtype=f32}\n"
               "return %x, %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "node %r (aten.arange.start_step|see one another|row's number"},
        {BATCH "param %t : f32[16,8]\ninput %i : i64[B,3]\n%y = aten.gather(%t, %i) {dim=1}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "node %y (aten.gather|has no rows of the batch|row's number"},
        {BATCH "input %x : f32[B,8]\nparam %i : i64[1,3]\nparam %s : f32[1,3]\n"
               "%y = aten.scatter.src(%x, %i, %s) {dim=1}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "node %y (aten.scatter.src|has no rows of the batch"},
        {BATCH "param %x : f32[16,8]\ninput %i : i64[B]\ninput %v : f32[B,8]\n%p = aten.index_put(%x, %i, %v)\n"
               "%y = aten.index_select(%p, %i) {dim=0}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "node %p (aten.index_put|see one another"},
        {BATCH "param %x : f32[16,8]\ninput %i : i64[B]\ninput %v : f32[B,8]\n"
               "%p = aten.index_copy(%x, %i, %v) {dim=0}\n%y = aten.index_select(%p, %i) {dim=0}\nreturn %y",
         NGD_ERR_GRAPH_NOT_ROWWISE, "node %p (aten.index_copy|see one another"},
        {BATCH "input %x : f32[B,8]\nstate %s : f32[8]\nparam %c : f32[8]\naten.copy_(%s, %c)\nreturn %x",
         NGD_ERR_GRAPH_NOT_ROWWISE, "aten.copy_|writes a state|without `batch`"},
        {BATCH "input %x : f32[B,8]\n%y = aten._softmax(%x) {dim=0}\nreturn %y", NGD_ERR_GRAPH_NOT_ROWWISE,
         "along dimension 0"},
        {"sym B 1..16 batch\ninput %x : f32[B]\nreturn %x", NGD_ERR_GRAPH_PARSE, "buckets"},
        {"sym B 1..16 batch exact\ninput %x : f32[B]\nreturn %x", NGD_ERR_GRAPH_PARSE, "buckets"},
        {"sym B 1..16 batch buckets 16\nsym C 1..16 batch buckets 16\ninput %x : f32[B]\ninput %y : f32[C]\nreturn %x",
         NGD_ERR_GRAPH_SYMBOL, "B and C are both the batch"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(batch_is_printed_and_is_part_of_the_digest)
{
    static const char plain[] = "sym B 1..16 buckets 4, 16\ninput %x : f32[B]\nreturn %x",
                      batch[] = "sym B 1..16 batch buckets 4, 16\ninput %x : f32[B]\nreturn %x";
    struct ngd_graph *g = parse_body(batch), *again;
    char *text = print_graph(g);

    ck_assert_ptr_nonnull(strstr(text, "sym B 1..16 batch buckets 4, 16\n"));
    again = parse_text(text);
    ck_assert(ngd_digest_equal(&g->digest, &again->digest));
    ck_assert_str_ne(digest_of(plain), digest_of(batch));
    ck_assert_int_eq(ngd_graph_set_batch(g, 0, NULL), NGD_ERR_GRAPH_SYMBOL); /* it is sealed */
    ngd_free(text);
    ngd_graph_unref(again);
    ngd_graph_unref(g);
}
END_TEST

UNIT_MAIN("graphs/graph rows", operators_that_keep_rows_apart_are_accepted,
          types_that_would_put_padding_between_data_are_refused, operators_that_mix_rows_are_refused_by_name,
          the_same_graphs_are_fine_when_the_symbol_is_exact, graphs_whose_replays_may_run_together_are_accepted,
          graphs_whose_replays_would_see_one_another_are_refused_by_name, batch_is_printed_and_is_part_of_the_digest)
