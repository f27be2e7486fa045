/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the operator table, and the types that each shape rule gives. Refusals: test_graph_errors.c. */
#include "tests/unit/graph_util.h"
#include <ctype.h>

static const struct {
    const char *body, *value, *type;
} cases[] = {
    {"input %x : f16[4,B]\n%a = aten.neg(%x)\n%b = aten.abs(%a)\n%c = aten.exp(%b)\n%d = aten.log(%c)\n"
     "%e = aten.sqrt(%d)\n%f = aten.rsqrt(%e)\n%g = aten.reciprocal(%f)\n%h = aten.sin(%g)\n%i = aten.cos(%h)\n"
     "%j = aten.tanh(%i)\n%k = aten.erf(%j)\n%l = aten.sigmoid(%k)\n%m = aten.silu(%l)\n%n = aten.relu(%m)\n"
     "%o = aten.floor(%n)\n%p = aten.ceil(%o)\n%q = aten.round(%p)\n%r = aten.gelu(%q)\n%s = aten.clamp(%r) {max=1}\n"
     "%t = aten.erfc(%s)\n%y = aten.clone(%t)",
     "y", "f16[4,B]"},
    {"input %x : i32[B]\n%a = aten.neg(%x)\n%b = aten.abs(%a)\n%c = aten.relu(%b)\n%d = aten.clamp(%c) {min=0}\n"
     "%e = aten.bitwise_not(%d)\n%y = aten.mul.Scalar(%e) {other=3}",
     "y", "i32[B]"},
    {"input %x : f32[B,3]\n%y = aten.logical_not(%x)", "y", "bool[B,3]"},
    {"input %x : bool[B,3]\n%y = aten.bitwise_not(%x)", "y", "bool[B,3]"},
    {"input %x : f32[B]\n%y = aten._to_copy(%x) {dtype=i8}", "y", "i8[B]"},
    {"input %x : f32[B,1,3]\ninput %z : f32[4,1]\n%a = aten.add.Tensor(%x, %z) {alpha=0.5}\n%b = aten.sub.Tensor(%a, "
     "%x)\n"
     "%c = aten.mul.Tensor(%z, %b)\n%d = aten.div.Tensor(%c, %c)\n%e = aten.remainder.Tensor(%d, %c)\n"
     "%f = aten.maximum(%e, %x)\n%g = aten.minimum(%z, %f)\n%y = aten.pow.Tensor_Tensor(%g, %c)",
     "y", "f32[B,4,3]"},
    {"input %x : f32[]\ninput %z : f32[B]\n%y = aten.add.Tensor(%x, %z)", "y", "f32[B]"},
    {"input %x : bf16[B]\n%a = aten.pow.Tensor_Scalar(%x) {exponent=2}\n%b = aten.add.Scalar(%a) {other=1.5}\n"
     "%c = aten.sub.Scalar(%b) {other=1, alpha=2}\n%d = aten.mul.Scalar(%c) {other=-inf}\n%y = aten.div.Scalar(%d) "
     "{other=3}",
     "y", "bf16[B]"},
    {"input %x : u8[B,2]\ninput %z : u8[2]\n%a = aten.eq.Tensor(%x, %z)\n%b = aten.ne.Tensor(%x, %z)\n"
     "%c = aten.lt.Tensor(%x, %z)\n%d = aten.le.Tensor(%x, %z)\n%e = aten.gt.Tensor(%x, %z)\n%f = aten.ge.Tensor(%x, "
     "%z)\n"
     "%g = aten.logical_and(%a, %b)\n%h = aten.logical_or(%g, %c)\n%i = aten.logical_xor(%h, %d)\n"
     "%j = aten.bitwise_and.Tensor(%i, %e)\n%k = aten.bitwise_or.Tensor(%j, %f)\n%y = aten.bitwise_xor.Tensor(%k, %a)",
     "y", "bool[B,2]"},
    {"input %x : f32[B]\n%a = aten.eq.Scalar(%x) {other=1}\n%b = aten.ne.Scalar(%x) {other=1}\n"
     "%c = aten.lt.Scalar(%x) {other=1}\n%d = aten.le.Scalar(%x) {other=1}\n%e = aten.gt.Scalar(%x) {other=nan}\n"
     "%y = aten.ge.Scalar(%x) {other=1}",
     "y", "bool[B]"},
    {"input %c : bool[B,1]\ninput %a : i64[3]\ninput %b : i64[]\n%y = aten.where.self(%c, %a, %b)", "y", "i64[B,3]"},
    {"input %a : f32[B,4]\ninput %b : bf16[4,6]\n%y = aten.mm(%a, %b)", "y", "f32[B,6]"},
    {"input %a : f16[B,2,4]\ninput %b : f16[B,4,C]\n%y = aten.bmm(%a, %b)", "y", "f16[B,2,C]"},
    {"input %a : f32[B,4]\ninput %b : f32[4,6]\ninput %c : f16[6]\n%y = aten.addmm(%c, %a, %b)", "y", "f32[B,6]"},
    {"input %x : f32[B,C,4]\ninput %w : f16[6,4]\ninput %b : f32[6]\n%y = aten.linear(%x, %w, %b)", "y", "f32[B,C,6]"},
    {"input %x : f32[4]\ninput %w : f32[6,4]\n%y = aten.linear(%x, %w)", "y", "f32[6]"},
    {"input %w : i8[100,4]\ninput %i : i64[B,2]\n%y = aten.embedding(%w, %i)", "y", "i8[B,2,4]"},
    {"input %x : f32[B,3,4]\ninput %w : f32[3,4]\n%y = aten.layer_norm(%x, none, %w) {normalized_shape=[3, 4]}", "y",
     "f32[B,3,4]"},
    {"input %x : bf16[B,3,4]\n%a, %b, %y = aten.native_layer_norm(%x) {normalized_shape=[3, 4], eps=1e-5}", "y",
     "f32[B,1,1]"},
    {"input %x : f32[B,3,4]\ninput %g : bf16[4]\n%a, %y = npu.rms_norm(%x, %g)", "y", "f32[B,3,1]"},
    {"input %x : f32[B,3,4]\ninput %g : bf16[4]\n%y, %r = npu.gemma_rms_norm(%x, %g)", "y", "f32[B,3,4]"},
    {"input %x : bf16[B,4]\ninput %g : bf16[4]\n%a, %y, %b = npu.add_rms_norm(%x, %x, %g)", "y", "f32[B,1]"},
    {"input %x : bf16[B,4]\n%y = aten._softmax(%x) {dim=-2, half_to_float=true}", "y", "f32[B,4]"},
    {"input %x : bf16[B,4]\n%y = aten._log_softmax(%x) {dim=1}", "y", "bf16[B,4]"},
    {"input %x : f16[B,4,8]\ninput %c : f32[B,1,8]\ninput %s : f16[B,8]\n%y = npu.rotary_mul(%x, %c, %s)", "y",
     "f16[B,4,8]"},
    {"input %x : f32[B,C*2]\n%y = npu.swiglu(%x)", "y", "f32[B,C]"},
    {"input %x : f32[B,C*2]\n%y = npu.clipped_swiglu(%x)", "y", "f32[B,C]"},
    {"input %x : bf16[B,4]\ninput %g : bf16[4]\n%a, %y, %b, %c = npu.add_rms_norm_cast(%x, %x, %g)", "a", "f32[B,4]"},
    {"input %x : bf16[B,4]\ninput %g : bf16[4]\ninput %s : f32[4]\n"
     "%a, %b, %c = npu.add_rms_norm_quant(%x, %x, %g, %s, none, none, %s)",
     "b", "i8[B,4]"},
    {"input %x : f32[B,3,4]\ninput %g : bf16[4]\n%a, %b, %c, %d, %e = npu.add_rms_norm_dynamic_quant(%x, %x, %g)", "d",
     "f32[B,3]"},
    {"input %x : f32[B,C]\ninput %s : f32[C]\n%y = npu.quantize(%x, %s) {dtype=i32}", "y", "i32[B,C]"},
    {"input %x : f16[B,3,4]\n%a, %y = npu.dynamic_quant(%x)", "y", "f32[B,3]"},
    {"input %x : f32[B,C*2]\n%y, %a = npu.swiglu_quant(%x)", "y", "i8[B,C]"},
    {"input %x : f16[B,64]\ninput %w : i8[64,7]\ninput %s : f16[1,7]\n%y = npu.weight_quant_batchmatmul(%x, %w, %s)",
     "y", "f16[B,7]"},
    {"input %x : f32[B,64]\ninput %w : i32[8,7]\ninput %s : bf16[2,7]\n%y = npu.weight_quant_batchmatmul(%x, %w, %s, "
     "%s) {antiquant_group_size=32}",
     "y", "f32[B,7]"},
    {"input %x : f32[B,64]\ninput %w : i32[64,2]\ninput %s : f32[1]\n%y = npu.weight_quant_batchmatmul(%x, %w, %s)",
     "y", "f32[B,16]"},
    {"input %x : f32[B,512]\ninput %w : i32[64,7]\ninput %s : i8[16,7]\ninput %b : f16[2,7]\n"
     "%y = npu.weight_quant_batchmatmul(%x, %w, %s, none, none, none, none, %b, %s, %b) {antiquant_group_size=32, "
     "antiquant_block_size=256, antiquant_zero=8}",
     "y", "f32[B,7]"},
    {"input %x : i8[B,64]\ninput %w : i8[64,7]\ninput %s : bf16[7]\ninput %r : f32[B]\ninput %b : i32[7]\n"
     "%y = npu.quant_matmul(%x, %w, %s, none, %r, %b) {output_dtype=bf16}",
     "y", "bf16[B,7]"},
    {"input %x : i8[B,3,64]\ninput %w : i8[64,7]\ninput %s : f32[1]\n"
     "%y = npu.quant_matmul(%x, %w, %s) {output_dtype=i32}",
     "y", "i32[B,3,7]"},
    {"input %x : f32[B,3,4]\ninput %w : bf16[3,4,C]\n%y = npu.transpose_batchmatmul(%x, %w) {perm_x1=[1,0,2]}", "y",
     "f32[B,3,C]"},
    {"input %x : f32[B,4]\ninput %w : bf16[C,4]\ninput %v : f16[7,4]\n%a, %y = ngd.multi_linear(%x, %w, %v) "
     "{sizes=[C,7]}",
     "a", "f32[B,C]"},
    {"input %x : f32[B,3,4]\ninput %g : bf16[4]\ninput %w : bf16[5,4]\ninput %b : f32[5]\n"
     "%y = ngd.rms_norm_linear(%x, %g, %w, %b) {sizes=[5]}",
     "y", "f32[B,3,5]"},
    {"input %x : f16[B,4]\ninput %w : f16[C,4]\ninput %r : f16[B,C]\n%y = ngd.linear_add(%x, %w, %r)", "y", "f16[B,C]"},
    {"input %x : f16[B,4]\ninput %w : f16[C,4]\n%y = ngd.linear_swiglu(%x, %w, %w)", "y", "f16[B,C]"},
    {"input %x : f16[B,4]\ninput %g : f16[4]\ninput %w : f16[C,4]\n%y = ngd.rms_norm_linear_swiglu(%x, %g, %w, %w)",
     "y", "f16[B,C]"},
    {"state %k : f16[9,16,2,8]\nstate %v : f16[9,16,2,8]\ninput %q : f32[B,6,8]\ninput %x : f32[B,2,8]\n"
     "input %c : f32[B,8]\ninput %s : i32[B]\n%y = ngd.qk_norm_rope_scatter(%q, %x, %x, %c, %c, %s, %k, %v)",
     "y", "f32[B,6,8]"},
    {"state %k : f16[9,16,2,8]\nstate %v : f16[9,16,2,8]\ninput %x : f32[B,2,8]\ninput %s : i32[B]\n"
     "npu.scatter_pa_kv_cache(%x, %x, %s, %k, %v)\n%y = aten.select.int(%k) {dim=0, index=-9}",
     "y", "f16[16,2,8]"},
    {"state %k : f16[9,16,2,8]\ninput %q : f32[B,6,8]\ninput %t : i32[C,3]\nhost %a : i64[C]\nhost %b : i64[C]\n"
     "%y = npu.fused_infer_attention_score(%q, %k, %k, %t, %a, %b) {num_heads=6, num_key_value_heads=2, scale=0.5, "
     "block_size=16}",
     "y", "f32[B,6,8]"},
    {"input %x : bf16[B,8]\ninput %e : i64[B,3]\n%a, %y, %c = npu.moe_init_routing_v2(%x, %e) {expert_num=5}", "y",
     "i32[B*3]"},
    {"input %x : bf16[B,8]\ninput %e : i64[B,3]\n%y, %a, %c = npu.moe_init_routing_v2(%x, %e) {expert_num=5}", "y",
     "bf16[B*3,8]"},
    {"input %x : bf16[B,8]\ninput %e : i64[B,3]\n%a, %b, %y = npu.moe_init_routing_v2(%x, %e) {expert_num=5}", "y",
     "i64[5]"},
    {"input %x : f32[B,512]\ninput %n : i64[3]\ninput %w : i32[3,7,64]\ninput %s : i8[3,7,16]\ninput %b : f16[3,7,2]\n"
     "%y = npu.grouped_matmul(%x, %n, %w, %s, %b, %s, %b) {transpose_weight=true, antiquant_scale=true, "
     "antiquant_block_scale=true, antiquant_minimum=true, antiquant_block_minimum=true, antiquant_group_size=32, "
     "antiquant_block_size=256}",
     "y", "f32[B,7]"},
    {"input %x : f32[B,8]\ninput %n : i64[2]\ninput %w : bf16[8,C]\n%y = npu.grouped_matmul(%x, %n, %w, %w)", "y",
     "f32[B,C]"},
    {"input %x : bf16[B,8]\n%y, %e = npu.moe_gating_top_k_softmax(%x) {k=3}", "y", "bf16[B,3]"},
    {"input %x : f32[2,B,8]\n%y, %e = npu.moe_gating_top_k_softmax(%x) {k=8}", "e", "i32[2,B,8]"},
    {"input %x : f16[B*3,8]\ninput %s : f32[B,3]\ninput %i : i32[B*3]\n%y = npu.moe_finalize_routing(%x, %s, %i)", "y",
     "f16[B,8]"},
    {"input %l : f32[B,100]\ninput %t : f32[B]\ninput %k : i32[B]\ninput %p : f32[B]\ninput %s : i64[B]\n"
     "%y = npu.top_k_top_p_sample(%l, %t, %k, %p, %s, %s)",
     "y", "i32[B]"},
    {"input %x : f16[B,3,C]\n%y = aten.sum.dim_IntList(%x) {dim=[0, -1]}", "y", "f16[3]"},
    {"input %x : f16[B,3,C]\n%y = aten.sum.dim_IntList(%x) {dtype=f32, keepdim=true}", "y", "f32[1,1,1]"},
    {"input %x : bool[B,3]\n%y = aten.sum.dim_IntList(%x) {dim=[1]}", "y", "i64[B]"},
    {"input %x : bf16[B,3]\n%y = aten.mean.dim(%x) {dim=[1]}", "y", "bf16[B]"},
    {"input %x : bf16[B,3]\n%y = aten.mean(%x)", "y", "bf16[]"},
    {"input %x : bf16[B,3]\n%y = aten.mean(%x) {dtype=f32}", "y", "f32[]"},
    {"input %x : i8[B,3]\n%y = aten.sum(%x)", "y", "i64[]"},
    {"input %x : i8[B,3]\n%a = aten.max(%x)\n%y = aten.min(%a)", "y", "i8[]"},
    {"input %x : f16[B,3]\n%y = aten.any(%x)", "y", "bool[]"},
    {"input %x : u8[B,3]\n%y = aten.all(%x)", "y", "u8[]"},
    {"input %x : i64[B,3,C]\n%y = aten.any.dim(%x) {dim=-2, keepdim=true}", "y", "bool[B,1,C]"},
    {"input %x : u8[B,3,C]\n%y = aten.all.dim(%x) {dim=0}", "y", "u8[3,C]"},
    {"input %x : bool[B,3,C]\n%a = aten.any.dims(%x) {dim=[0,2]}\n%y = aten.all.dims(%a) {dim=[0]}", "y", "bool[]"},
    {"input %q : bf16[B,8,C,64]\ninput %k : bf16[B,8,9,64]\ninput %v : bf16[B,8,9,32]\ninput %m : bool[B,1,1,9]\n"
     "%y = aten.scaled_dot_product_attention(%q, %k, %v, %m)",
     "y", "bf16[B,8,C,32]"},
    {"input %q : f16[8,C,64]\ninput %k : f16[2,C,64]\n"
     "%y = aten.scaled_dot_product_attention(%q, %k, %k) {is_causal=true, scale=0.5, enable_gqa=true}",
     "y", "f16[8,C,64]"},
    {"input %q : f16[B,64]\ninput %m : f32[B,1]\n%y = aten.scaled_dot_product_attention(%q, %q, %q, %m)", "y",
     "f16[B,64]"},
    {"input %x : bf16[B,3]\n%a = aten.softmax.int(%x) {dim=0}\n%y = aten.log_softmax.int(%a) {dim=-1, dtype=f32}", "y",
     "f32[B,3]"},
    {"input %x : i8[B,3]\n%a = aten.remainder.Scalar(%x) {other=3}\n%b = aten.floor_divide(%a, %x)\n"
     "%y = aten.floor_divide.Scalar(%b) {other=-2}",
     "y", "i8[B,3]"},
    {"input %x : f16[B,3]\ninput %z : f16[3]\n%a = aten.div.Tensor_mode(%z, %x) {rounding_mode=\"floor\"}\n"
     "%y = aten.div.Scalar_mode(%a) {other=0, rounding_mode=\"trunc\"}",
     "y", "f16[B,3]"},
    {"input %x : u8[B,C]\n%y = aten.stack(%x, %x, %x) {dim=-2}", "y", "u8[B,3,C]"},
    {"input %x : u8[]\n%y = aten.stack(%x)", "y", "u8[1]"},
    {"input %x : f32[B,3]\n%y = aten.repeat(%x) {repeats=[C,2,4]}", "y", "f32[C,B*2,12]"},
    {"input %x : f32[]\n%y = aten.repeat(%x) {repeats=[]}", "y", "f32[]"},
    {"input %x : f16[B,3,C]\n%v, %y = aten.var_mean.correction(%x) {dim=[-1,0], keepdim=true}", "y", "f16[1,3,1]"},
    {"input %x : f16[B,3,C]\n%y = aten.var.correction(%x) {correction=0}", "y", "f16[]"},
    {"input %x : i32[B,3]\n%a = aten.amin(%x) {dim=[0]}\n%y = aten.amax(%x) {dim=[0]}", "y", "i32[3]"},
    {"input %x : i32[B,3]\n%y = aten.prod.dim_int(%x) {dim=0, keepdim=true}", "y", "i64[1,3]"},
    {"input %x : i32[B,3]\n%a = aten.argmin(%x) {dim=0}\n%y = aten.argmax(%x) {dim=0}", "y", "i64[3]"},
    {"input %x : i32[B,3]\n%a, %y = aten.topk(%x) {k=2}", "y", "i64[B,2]"},
    {"sym N 2..9\ninput %n : f32[N]\n%y, %a = aten.topk(%n) {k=N - 1}", "y", "f32[N - 1]"},
    {"input %x : u8[B,3]\n%y = aten.cumsum(%x) {dim=0}", "y", "i64[B,3]"},
    {"input %x : u8[B,3]\ninput %z : u8[C,3]\n%y = aten.cat(%x, %z, %x)", "y", "u8[B*2 + C,3]"},
    {"input %x : u8[B,9]\n%a, %y, %c = aten.split_with_sizes(%x) {split_sizes=[2, 3, 4], dim=-1}", "y", "u8[B,3]"},
    {"input %x : u8[B,9]\n%y = aten.slice.Tensor(%x) {dim=1, start=1, end=-1, step=3}", "y", "u8[B,3]"},
    {"input %x : u8[B,9]\n%y = aten.slice.Tensor(%x) {dim=1, start=7, end=3}", "y", "u8[B,0]"},
    {"input %x : u8[B,9]\n%y = aten.slice.Tensor(%x) {dim=1, start=-100, end=100}", "y", "u8[B,9]"},
    {"input %x : u8[B,9]\n%y = aten.slice.Tensor(%x) {end=5}", "y", "u8[min(B, 5),9]"},
    {"input %x : u8[B,9]\n%y = aten.slice.Tensor(%x) {start=-1}", "y", "u8[1,9]"},
    {"input %x : u8[B*4,9]\n%y = aten.slice.Tensor(%x) {step=4}", "y", "u8[B,9]"},
    {"input %x : u8[B,9]\n%y = aten.select.int(%x) {dim=0, index=B - 1}", "y", "u8[9]"},
    {"input %x : f32[8,9]\ninput %i : i32[B,9]\n%y = aten.gather(%x, %i) {dim=0}", "y", "f32[B,9]"},
    {"input %x : f32[8,9]\ninput %i : i32[8,2]\ninput %s : f32[8,4]\n%a = aten.scatter_add(%x, %i, %s) {dim=1}\n"
     "%y = aten.scatter.value(%a, %i) {dim=-1, value=-inf}",
     "y", "f32[8,9]"},
    {"input %x : f16[B,9]\ninput %s : f16[B,3]\ninput %t : f16[B]\n"
     "%a = aten.slice_scatter(%x, %s) {dim=1, start=2, end=-1, step=2}\n"
     "%y = aten.select_scatter(%a, %t) {dim=1, index=-1}",
     "y", "f16[B,9]"},
    {"input %x : i32[B,2]\n%y = aten.constant_pad_nd(%x) {pad=[1, 3], value=7}", "y", "i32[B,6]"},
    {"input %x : f32[8,9]\ninput %i : i64[B,2]\ninput %s : f32[B,2,9]\n"
     "%y = aten.index_put(%x, %i, %s) {accumulate=true}",
     "y", "f32[8,9]"},
    {"input %x : f32[8,B,9]\ninput %i : i64[C]\ninput %s : f32[8,B,C]\n%y = aten.index_copy(%x, %i, %s) {dim=-1}", "y",
     "f32[8,B,9]"},
    {"input %x : bf16[B]\n%a = aten.sign(%x)\n%b = aten.trunc(%a)\n%y = aten.leaky_relu(%b) {negative_slope=0.2}", "y",
     "bf16[B]"},
    {"input %x : i64[B]\n%s = aten.sign(%x)\n%a = aten.isnan(%s)\n%y = aten.isinf(%x)", "y", "bool[B]"},
    {"input %x : f32[8,9]\ninput %i : i32[B]\n%y = aten.index_select(%x, %i) {dim=1}", "y", "f32[8,B]"},
    {"input %x : f32[8,9]\ninput %i : i32[B,C]\n%y = aten.index.Tensor(%x, %i)", "y", "f32[B,C,9]"},
    {"input %x : f32[8,9]\ninput %i : i32[8,2]\ninput %s : f32[8,4]\n%y = aten.scatter.src(%x, %i, %s) {dim=1}", "y",
     "f32[8,9]"},
    {"input %x : f32[8,9]\ninput %i : i32[B]\ninput %s : f32[B,9]\n%y = aten.index_put(%x, %i, %s)", "y", "f32[8,9]"},
    {"input %x : bool[8,B]\n%a = aten.tril(%x)\n%y = aten.triu(%a) {diagonal=-1}", "y", "bool[8,B]"},
    {"input %x : f32[B,4,C]\n%y = aten.view(%x) {size=[-1, 2*C]}", "y", "f32[B*2,C*2]"},
    {"input %x : f32[B,C]\n%y = aten.reshape(%x) {shape=[C*B]}", "y", "f32[B*C]"},
    {"input %x : f32[1]\n%y = aten.reshape(%x) {shape=[]}", "y", "f32[]"},
    {"input %x : f32[B,C,3]\n%y = aten.permute(%x) {dims=[-1, 0, 1]}", "y", "f32[3,B,C]"},
    {"input %x : f32[B,C,3]\n%y = aten.transpose.int(%x) {dim0=0, dim1=-1}", "y", "f32[3,C,B]"},
    {"input %x : f32[B,C]\n%y = aten.t(%x)", "y", "f32[C,B]"},
    {"input %x : f32[C]\n%y = aten.t(%x)", "y", "f32[C]"},
    {"input %x : f32[1,C]\n%y = aten.expand(%x) {size=[2, B, -1]}", "y", "f32[2,B,C]"},
    {"input %x : f32[B]\n%y = aten.unsqueeze(%x) {dim=-1}", "y", "f32[B,1]"},
    {"input %x : f32[B,1,4]\n%a = aten.squeeze.dim(%x) {dim=2}\n%y = aten.squeeze.dim(%a) {dim=-2}", "y", "f32[B,4]"},
    {"%y = aten.arange.start_step() {start=1, end=B*3, step=3, dtype=f32}", "y", "f32[B]"},
    {"%y = aten.arange.start_step() {start=5, end=2}", "y", "i64[0]"},
    {"input %x : f32[B,1,4,1]\n%a = aten.squeeze.dims(%x) {dim=[-3, 3, 2]}\n%b = aten.alias(%a)\n%c = aten.detach(%b)\n"
     "%d = aten._unsafe_view(%c) {size=[2, -1]}\n%y = aten.lift_fresh_copy(%d)",
     "y", "f32[2,B*2]"},
    {"input %x : f32[B,9]\n%a, %b, %y = aten.split.Tensor(%x) {split_size=4, dim=-1}", "y", "f32[B,1]"},
    {"input %x : f32[C*2 + 2,9]\n%a, %y = aten.split.Tensor(%x) {split_size=C + 1}", "y", "f32[C + 1,9]"},
    {"input %x : f32[B,2,9]\n%y, %b = aten.unbind.int(%x) {dim=1}", "y", "f32[B,9]"},
    {"input %x : i64[B,3]\n%y = aten.rsub.Scalar(%x) {other=1}", "y", "i64[B,3]"},
    {"input %x : f16[3]\ninput %m : bool[B,1]\n%y = aten.masked_fill.Scalar(%x, %m) {value=-inf}", "y", "f16[B,3]"},
    {"%y = aten.arange() {end=B}", "y", "i64[B]"},
    {"%y = aten.arange.start() {start=2, end=B + 3, dtype=i32}", "y", "i32[B + 1]"},
    {"%a = aten.zeros() {size=[B, 2]}\n%y = aten.ones_like(%a)", "y", "f32[B,2]"},
    {"%a = aten.ones() {size=[B, 2], dtype=i8}\n%y = aten.zeros_like(%a)", "y", "i8[B,2]"},
    {"%y = aten.scalar_tensor() {s=-1e9}", "y", "f32[]"},
    {"input %x : u8[B]\n%a = aten.full_like(%x) {fill_value=255}\n%b = aten.new_zeros(%a) {size=[C], dtype=bf16}\n"
     "%c = aten.new_ones(%b) {size=[]}\n%y = aten.new_full(%c) {size=[B], fill_value=0.5}",
     "y", "bf16[B]"},
    {"%y = aten.full() {size=[B, 2], fill_value=-1.5, dtype=bf16}", "y", "bf16[B,2]"},
    {"state %s : bf16[8]\ninput %x : f32[8]\naten.copy_(%s, %x)\n%y = aten.neg(%s)", "y", "bf16[8]"},
    {"input %x : bf16[B,4]\n%a = _c10d_functional.all_reduce(%x) {reduce_op=\"avg\", group_name=\"tp\"}\n"
     "%b = _c10d_functional.wait_tensor(%a)\n%y = _c10d_functional.broadcast(%b) {src=1, group_name=\"tp\"}",
     "y", "bf16[B,4]"},
    {"input %x : bool[B,4]\n%y = _c10d_functional.all_gather_into_tensor(%x) {group_size=3, group_name=\"tp\"}", "y",
     "bool[B*3,4]"},
    {"input %x : i64[B*4,4]\n%y = _c10d_functional.reduce_scatter_tensor(%x) {reduce_op=\"max\", group_size=2, "
     "group_name=\"tp\"}",
     "y", "i64[B*2,4]"},
    {"input %x : u8[B + 3,4]\n%y = _c10d_functional.all_to_all_single(%x) {output_split_sizes=[B, 0], "
     "input_split_sizes=[3, B], group_name=\"tp\"}",
     "y", "u8[B,4]"},
    {"input %x : f32[B]\nnpugraph_ex.tagged_event_record() {tag=\"e\"}\n"
     "npugraph_ex.tagged_event_wait() {tag=\"e\"}\n%y = aten.neg(%x)",
     "y", "f32[B]"},
};

START_TEST(every_operator_gives_the_type_that_its_row_says)
{
    bool seen[NGD_OP_MAX] = {false};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_strbuf sb;
        struct ngd_graph *g;

        ngd_strbuf_init(&sb);
        ngd_strbuf_printf(&sb, "sym B 1..16\nsym C 0..64\ninput %%_b : f32[B]\ninput %%_c : f32[C]\n%s\nreturn %%%s",
                          cases[i].body, cases[i].value);
        g = parse_body(sb.data);
        ck_assert_msg(strcmp(type_of(g, cases[i].value), cases[i].type) == 0, "%s\n is %s, not %s", cases[i].body,
                      type_of(g, cases[i].value), cases[i].type);
        for (uint32_t k = 0; k < g->n_nodes; k++)
            seen[g->nodes[k].op->id] = true;
        ngd_graph_unref(g);
        ngd_strbuf_fini(&sb);
    }
    for (int i = 0; i < NGD_OP_MAX; i++)
        if (!(ngd_op_by_id(i)->flags & (NGD_OPF_RANDOM | NGD_OPF_SYNC | NGD_OPF_DATA_SHAPE)))
            ck_assert_msg(seen[i], "no case for %s", ngd_op_by_id(i)->name);
}
END_TEST

START_TEST(rows_of_the_table_are_consistent)
{
    for (int i = 0; i < NGD_OP_MAX; i++) {
        const struct ngd_op *op = ngd_op_by_id(i);

        ck_assert_int_eq(op->id, i);
        ck_assert_ptr_eq(ngd_op_find(op->name, strlen(op->name)), op); /* which also shows that names are unique */
        ck_assert(op->doc[0] != '\0');
        ck_assert(op->shape != NULL && op->rows_ok != NULL);
        ck_assert(op->max_in == NGD_OP_VARIADIC || op->max_in >= op->min_in);
        ck_assert_uint_eq(op->mutates & op->host, 0);
        ck_assert(op->max_in >= 32 || (op->mutates | op->host) >> op->max_in == 0);
        for (int k = 0; k < op->n_attrs; k++) {
            ck_assert_int_eq(ngd_op_attr_index(op, op->attrs[k].name, strlen(op->attrs[k].name)), k);
            ck_assert(islower((unsigned char)op->attrs[k].name[0]));
        }
    }
    ck_assert_ptr_null(ngd_op_by_id(NGD_OP_MAX));
    ck_assert_ptr_null(ngd_op_find("aten.ne", 7));
    ck_assert_ptr_null(ngd_op_find("", 0));
    ck_assert_ptr_eq(ngd_op_find("aten.neg(", 8), ngd_op_by_id(NGD_OP_ATEN_NEG)); /* the length counts */
}
END_TEST

START_TEST(attribute_schemas_have_their_types_and_defaults)
{
    const struct ngd_op *topk = ngd_op_by_id(NGD_OP_ATEN_TOPK), *sum = ngd_op_by_id(NGD_OP_ATEN_SUM);
    const struct ngd_op *clamp = ngd_op_by_id(NGD_OP_ATEN_CLAMP), *slice = ngd_op_by_id(NGD_OP_ATEN_SLICE_TENSOR);

    ck_assert(topk->attrs[0].required && topk->attrs[0].type == NGD_ATTR_INT);
    ck_assert(!topk->attrs[1].required && topk->attrs[1].def_int == -1);
    ck_assert(topk->attrs[2].type == NGD_ATTR_BOOL && topk->attrs[2].def_int == 1);
    ck_assert(sum->attrs[0].type == NGD_ATTR_INTS && !sum->attrs[0].required);
    ck_assert(sum->attrs[2].type == NGD_ATTR_DTYPE && sum->attrs[2].def_int == -1);
    ck_assert(clamp->attrs[0].def_float < 0 && clamp->attrs[0].def_float * 0 != 0);
    ck_assert(slice->attrs[2].def_int == INT64_MAX);
    ck_assert_str_eq(ngd_op_by_id(NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE)->attrs[4].def_str, "TND");
    ck_assert(ngd_op_by_id(NGD_OP_ATEN_ARANGE)->attrs[3].def_int == NGD_I64);
}
END_TEST

START_TEST(suggestions_are_near_or_absent)
{
    char longer[500];

    ck_assert_str_eq(ngd_op_suggest("aten.liner", 10), "aten.linear");
    ck_assert_str_eq(ngd_op_suggest("npu.rmsnorm", 11), "npu.rms_norm");
    ck_assert_str_eq(ngd_op_suggest("aten.mul_.Tensor", 16), "aten.mul.Tensor");
    ck_assert_str_eq(ngd_op_suggest("aten.pow", 8), "aten.pow.Tensor_Scalar");
    ck_assert_ptr_null(ngd_op_suggest("onnx.LayerNormalization", 23));
    ck_assert_ptr_null(ngd_op_suggest("", 0));
    memset(longer, 'a', sizeof(longer));
    ck_assert_ptr_null(ngd_op_suggest(longer, sizeof(longer)));
    ck_assert_str_ne(ngd_op_suggest("aten.randd", 10) ? ngd_op_suggest("aten.randd", 10) : "", "aten.rand");
}
END_TEST

UNIT_MAIN("graphs/op", every_operator_gives_the_type_that_its_row_says, rows_of_the_table_are_consistent,
          attribute_schemas_have_their_types_and_defaults, suggestions_are_near_or_absent)
