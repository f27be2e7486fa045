/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests properties of every kernel other than its numbers (test_ops.c): results do not depend on padded rows or on the
 * strides of operands, and tensors may be empty. Independence of the number of parts: test_kernel_parts.c.
 */
#include "tests/ops/each_isa.h"
#include "tests/ops/golden.h"
#include "tests/ops/random_io.h"

/* ---- graphs of one operator ---- */

/*
 * Inputs and the node of a graph, for every operator whose operands may have a bucketed symbol B. Integer inputs are 0,
 * 1 or 2. Elementwise operators are not listed: elementwise() writes their graphs.
 */
static const struct {
    ngd_op_id_t op;
    const char *text;
} row_cases[] = {
    {NGD_OP_NPU_MOE_GATING_TOP_K_SOFTMAX, "input %x : f32[B,67]\n%y, %i = npu.moe_gating_top_k_softmax(%x) {k=5}"},
    {NGD_OP_NPU_MOE_GATING_TOP_K_SOFTMAX, "input %x : bf16[B,3,9]\n%y, %i = npu.moe_gating_top_k_softmax(%x) {k=9}"},
    {NGD_OP_NPU_GROUPED_MATMUL,
     "input %x : f32[B,33]\ninput %r : f32[4,33]\ninput %u : bf16[40,33]\ninput %v : bf16[40,33]\n"
     "input %w : bf16[40,33]\n%a = aten.linear(%x, %r)\n%b, %c = aten.topk(%a) {k=2}\n"
     "%d, %e, %f = npu.moe_init_routing_v2(%x, %c) {expert_num=4}\n"
     "%g = npu.grouped_matmul(%d, %f, %u, %v, %w, %u) {group_list_type=1, transpose_weight=true}\n"
     "%y = npu.moe_finalize_routing(%g, %b, %e)"},
    {NGD_OP_ATEN_EMBEDDING, "input %w : f32[3,5]\ninput %x : i32[B]\n%y = aten.embedding(%w, %x)"},
    {NGD_OP_ATEN_EMBEDDING, "input %w : bf16[3,5]\ninput %x : i64[B,2]\n%y = aten.embedding(%w, %x)"},
    {NGD_OP_ATEN_LAYER_NORM, "input %x : f32[B,37]\ninput %w : f32[37]\ninput %b : bf16[37]\n%y = aten.layer_norm(%x, "
                             "%w, %b) {normalized_shape=[37]}"},
    {NGD_OP_ATEN_LAYER_NORM, "input %x : f16[B,3,5]\n%y = aten.layer_norm(%x) {normalized_shape=[3,5]}"},
    {NGD_OP_ATEN_NATIVE_LAYER_NORM, "input %x : f32[B,37]\ninput %w : f32[37]\ninput %b : bf16[37]\n%y, %z, %s = "
                                    "aten.native_layer_norm(%x, %w, %b) {normalized_shape=[37], eps=1e-5}"},
    {NGD_OP_ATEN_NATIVE_LAYER_NORM, "input %x : f16[B,3,5]\n%y, %z, %s = aten.native_layer_norm(%x) "
                                    "{normalized_shape=[3,5], eps=1e-5}"},
    {NGD_OP_NPU_RMS_NORM, "input %x : f32[B,70]\ninput %g : bf16[70]\n%y, %z = npu.rms_norm(%x, %g)"},
    {NGD_OP_NPU_GEMMA_RMS_NORM, "input %x : f32[B,70]\ninput %g : bf16[70]\n%y, %z = npu.gemma_rms_norm(%x, %g)"},
    {NGD_OP_NPU_GEMMA_RMS_NORM, "input %x : bf16[B,3,16]\ninput %g : bf16[16]\n%y, %z = npu.gemma_rms_norm(%x, %g)"},
    {NGD_OP_NPU_RMS_NORM, "input %x : bf16[B,3,16]\ninput %g : bf16[16]\n%y, %z = npu.rms_norm(%x, %g)"},
    {NGD_OP_NPU_ADD_RMS_NORM,
     "input %x : f32[B,70]\ninput %x2 : f32[B,70]\ninput %g : f32[70]\n%y, %z, %s = npu.add_rms_norm(%x, %x2, %g)"},
    {NGD_OP_NPU_ADD_RMS_NORM,
     "input %x : f16[B,33]\ninput %x2 : f16[B,33]\ninput %g : f16[33]\n%y, %z, %s = npu.add_rms_norm(%x, %x2, %g)"},
    {NGD_OP_NPU_ADD_RMS_NORM_CAST, "input %x : bf16[B,33]\ninput %x2 : bf16[B,33]\ninput %g : bf16[33]\n"
                                   "%y, %n, %z, %s = npu.add_rms_norm_cast(%x, %x2, %g)"},
    {NGD_OP_NPU_ADD_RMS_NORM_QUANT,
     "input %x : f32[B,33]\ninput %x2 : f32[B,33]\ninput %g : f32[33]\ninput %c : f32[33]\ninput %d : f32[1]\n"
     "%y, %n, %s = npu.add_rms_norm_quant(%x, %x2, %g, %c, none, none, %d)"},
    {NGD_OP_NPU_ADD_RMS_NORM_QUANT,
     "input %x : f16[B,2,9]\ninput %x2 : f16[B,2,9]\ninput %g : f16[9]\ninput %c : f32[9]\n"
     "%y, %n, %s = npu.add_rms_norm_quant(%x, %x2, %g, %c)"},
    {NGD_OP_NPU_ADD_RMS_NORM_DYNAMIC_QUANT,
     "input %x : f32[B,33]\ninput %x2 : f32[B,33]\ninput %g : f32[33]\n"
     "%y, %n, %s, %a, %b = npu.add_rms_norm_dynamic_quant(%x, %x2, %g) {output_mask=[1,1]}"},
    {NGD_OP_NPU_QUANTIZE, "input %x : f32[B,3,19]\ninput %c : f32[19]\n%y = npu.quantize(%x, %c) {axis=-1}"},
    {NGD_OP_NPU_QUANTIZE, "input %x : bf16[B,3,19]\ninput %c : f32[3]\n%y = npu.quantize(%x, %c) {dtype=u8}"},
    {NGD_OP_NPU_DYNAMIC_QUANT, "input %x : bf16[B,3,19]\ninput %c : f32[19]\n%y, %s = npu.dynamic_quant(%x, %c)"},
    {NGD_OP_NPU_SWIGLU_QUANT, "input %x : f32[B,38]\n%y, %s = npu.swiglu_quant(%x) {quant_mode=1}"},
    {NGD_OP_NPU_TRANSPOSE_BATCHMATMUL,
     "input %x : f32[B,3,16]\ninput %w : bf16[3,16,20]\n%y = npu.transpose_batchmatmul(%x, %w) {perm_x1=[1,0,2]}"},
    {NGD_OP_NGD_MULTI_LINEAR, "input %x : f32[B,70]\ninput %w : bf16[33,70]\ninput %v : bf16[16,70]\n"
                              "%y, %z = ngd.multi_linear(%x, %w, %v) {sizes=[33,16]}"},
    {NGD_OP_NPU_WEIGHT_QUANT_BATCHMATMUL,
     "input %x : f32[B,70]\ninput %q : i8[33,70]\ninput %s : bf16[33,1]\n%w = aten.t(%q)\n%t = aten.t(%s)\n"
     "%y = npu.weight_quant_batchmatmul(%x, %w, %t)"},
    {NGD_OP_NPU_WEIGHT_QUANT_BATCHMATMUL,
     "input %x : bf16[B,2,64]\ninput %q : i32[33,8]\ninput %s : bf16[2,33]\n%w = aten.t(%q)\n"
     "%y = npu.weight_quant_batchmatmul(%x, %w, %s) {antiquant_group_size=32}"},
    {NGD_OP_NPU_QUANT_MATMUL,
     "input %x : i8[B,70]\ninput %q : i8[33,70]\ninput %s : bf16[33]\ninput %r : f32[B]\n%w = aten.t(%q)\n"
     "%y = npu.quant_matmul(%x, %w, %s, none, %r) {output_dtype=f32}"},
    {NGD_OP_NPU_QUANT_MATMUL, "input %x : i8[B,2,40]\ninput %w : i8[40,20]\ninput %s : f32[1]\ninput %b : i32[20]\n"
                              "%y = npu.quant_matmul(%x, %w, %s, none, none, %b) {output_dtype=f16}"},
    {NGD_OP_NGD_RMS_NORM_LINEAR,
     "input %x : f32[B,2,70]\ninput %g : f32[70]\ninput %w : f16[33,70]\ninput %c : f32[33]\n"
     "%y = ngd.rms_norm_linear(%x, %g, %w, %c) {sizes=[33]}"},
    {NGD_OP_NGD_LINEAR_ADD, "input %x : bf16[B,70]\ninput %w : bf16[33,70]\ninput %r : bf16[B,33]\n"
                            "%y = ngd.linear_add(%x, %w, %r)"},
    {NGD_OP_NGD_LINEAR_SWIGLU, "input %x : f32[B,70]\ninput %w : bf16[33,70]\ninput %v : bf16[33,70]\n"
                               "%y = ngd.linear_swiglu(%x, %w, %v)"},
    {NGD_OP_NGD_RMS_NORM_LINEAR_SWIGLU, "input %x : f16[B,70]\ninput %g : f16[70]\ninput %w : f16[33,70]\n"
                                        "%y = ngd.rms_norm_linear_swiglu(%x, %g, %w, %w)"},
    {NGD_OP_NGD_QK_NORM_ROPE_SCATTER,
     "input %q : f32[B,4,16]\ninput %k : f32[B,2,16]\ninput %c : f32[B,16]\ninput %l : i32[B]\ninput %g : f32[16]\n"
     "state %a : bf16[2,4,2,16]\nstate %b : bf16[2,4,2,16]\n"
     "%y = ngd.qk_norm_rope_scatter(%q, %k, %k, %c, %c, %l, %a, %b, %g, %g)"},
    {NGD_OP_ATEN__SOFTMAX, "input %x : f32[B,3,19]\n%y = aten._softmax(%x) {dim=-1}"},
    {NGD_OP_ATEN__SOFTMAX, "input %x : bf16[B,3,19]\n%y = aten._softmax(%x) {dim=1, half_to_float=true}"},
    {NGD_OP_ATEN_SOFTMAX_INT, "input %x : f16[B,3,19]\n%y = aten.softmax.int(%x) {dim=-1, dtype=f32}"},
    {NGD_OP_ATEN_LOG_SOFTMAX_INT, "input %x : f32[B,3,19]\n%y = aten.log_softmax.int(%x) {dim=1}"},
    {NGD_OP_ATEN__LOG_SOFTMAX, "input %x : f32[B,19]\n%y = aten._log_softmax(%x) {dim=1}"},
    {NGD_OP_ATEN_SCALED_DOT_PRODUCT_ATTENTION,
     "input %q : f32[B,4,3,16]\ninput %k : f32[B,2,9,16]\ninput %v : f32[B,2,9,8]\ninput %m : bool[B,1,1,9]\n"
     "%y = aten.scaled_dot_product_attention(%q, %k, %v, %m) {enable_gqa=true}"},
    {NGD_OP_ATEN_SCALED_DOT_PRODUCT_ATTENTION, "input %q : bf16[B,3,20]\ninput %k : bf16[B,9,20]\ninput %m : f32[3,9]\n"
                                               "%y = aten.scaled_dot_product_attention(%q, %k, %k, %m)"},
    {NGD_OP_ATEN_SCALED_DOT_PRODUCT_ATTENTION,
     "input %q : f16[B*3,2,5,16]\n%y = aten.scaled_dot_product_attention(%q, %q, %q) {is_causal=true}"},
    {NGD_OP_NPU_ROTARY_MUL,
     "input %x : f32[B,3,16]\ninput %c : f32[B,1,16]\ninput %s : f32[B,16]\n%y = npu.rotary_mul(%x, %c, %s)"},
    {NGD_OP_NPU_ROTARY_MUL,
     "input %x : bf16[B,2,20]\ninput %c : f32[B,1,20]\ninput %s : bf16[B,1,20]\n%y = npu.rotary_mul(%x, %c, %s)"},
    {NGD_OP_NPU_SWIGLU, "input %x : f32[B,66]\n%y = npu.swiglu(%x)"},
    {NGD_OP_NPU_CLIPPED_SWIGLU, "input %x : f32[B,66]\n%y = npu.clipped_swiglu(%x)"},
    {NGD_OP_NPU_CLIPPED_SWIGLU, "input %x : bf16[B,3,6]\n%y = npu.clipped_swiglu(%x) {interleaved=false}"},
    {NGD_OP_NPU_SWIGLU, "input %x : f32[B,4,5]\n%y = npu.swiglu(%x) {dim=1}"},
    {NGD_OP_ATEN_SUM, "input %x : f32[B,3,37]\n%y = aten.sum.dim_IntList(%x) {dim=[2]}"},
    {NGD_OP_ATEN_SUM, "input %x : f32[B,37,5]\n%y = aten.sum.dim_IntList(%x) {dim=[1]}"},
    {NGD_OP_ATEN_SUM, "input %x : i32[B,3,4]\n%y = aten.sum.dim_IntList(%x) {dim=[1,2], keepdim=true}"},
    {NGD_OP_ATEN_MEAN, "input %x : bf16[B,3,37]\n%y = aten.mean.dim(%x) {dim=[-1]}"},
    {NGD_OP_ATEN_AMAX, "input %x : f32[B,3,37]\n%y = aten.amax(%x) {dim=[1]}"},
    {NGD_OP_ATEN_AMIN, "input %x : f16[B,37]\n%y = aten.amin(%x) {dim=[1]}"},
    {NGD_OP_ATEN_VAR_CORRECTION, "input %x : f32[B,3,37]\n%y = aten.var.correction(%x) {dim=[2]}"},
    {NGD_OP_ATEN_VAR_MEAN_CORRECTION,
     "input %x : bf16[B,3,7]\n%y, %m = aten.var_mean.correction(%x) {dim=[1,2], correction=0}"},
    {NGD_OP_ATEN_ANY_DIM, "input %x : f32[B,3,37]\n%y = aten.any.dim(%x) {dim=1, keepdim=true}"},
    {NGD_OP_ATEN_ANY_DIMS, "input %x : bool[B,3,2]\n%y = aten.any.dims(%x) {dim=[1,2]}"},
    {NGD_OP_ATEN_ALL_DIM, "input %x : i64[B,3]\n%y = aten.all.dim(%x) {dim=-1}"},
    {NGD_OP_ATEN_ALL_DIMS, "input %x : u8[B,3,2]\n%y = aten.all.dims(%x) {dim=[2]}"},
    {NGD_OP_ATEN_PROD, "input %x : f32[B,7]\n%y = aten.prod.dim_int(%x) {dim=1}"},
    {NGD_OP_ATEN_ARGMAX, "input %x : f32[B,67]\n%y = aten.argmax(%x) {dim=-1}"},
    {NGD_OP_ATEN_ARGMIN, "input %x : bf16[B,7,3]\n%y = aten.argmin(%x) {dim=1}"},
    {NGD_OP_ATEN_TOPK, "input %x : f32[B,67]\n%y, %i = aten.topk(%x) {k=5}"},
    {NGD_OP_ATEN_TOPK, "input %x : f16[B,9,3]\n%y, %i = aten.topk(%x) {k=4, dim=1, largest=false}"},
    {NGD_OP_ATEN_CUMSUM, "input %x : f32[B,5,3]\n%y = aten.cumsum(%x) {dim=1}"},
    {NGD_OP_ATEN_CAT, "input %x : f32[B,5]\ninput %z : f32[B,3]\n%y = aten.cat(%x, %z, %x) {dim=1}"},
    {NGD_OP_ATEN_STACK, "input %x : f32[B,5]\ninput %z : f32[B,5]\n%y = aten.stack(%x, %z, %x) {dim=1}"},
    {NGD_OP_ATEN_STACK, "input %x : bf16[B,5]\n%y = aten.stack(%x, %x) {dim=-1}"},
    {NGD_OP_ATEN_REPEAT, "input %x : f32[B,5]\n%y = aten.repeat(%x) {repeats=[1,3]}"},
    {NGD_OP_ATEN_REPEAT, "input %x : i64[B,2,3]\n%y = aten.repeat(%x) {repeats=[1,2,1]}"},
    {NGD_OP_ATEN_REPEAT, "input %x : f32[B]\ninput %p : f16[2,3]\n%z = aten.repeat(%p) {repeats=[B,2]}\n"
                         "%w = aten.slice.Tensor(%z) {dim=1, end=1}\n%y = aten.cat(%w, %w) {dim=1}"},
    {NGD_OP_ATEN_GATHER, "input %x : f32[B,5]\ninput %i : i64[B,7]\n%y = aten.gather(%x, %i) {dim=1}"},
    {NGD_OP_ATEN_INDEX_SELECT, "input %x : f32[3,5]\ninput %i : i32[B]\n%y = aten.index_select(%x, %i) {dim=0}"},
    {NGD_OP_ATEN_INDEX_SELECT, "input %x : f32[B,5,2]\ninput %i : i32[4]\n%y = aten.index_select(%x, %i) {dim=1}"},
    {NGD_OP_ATEN_INDEX_TENSOR, "input %x : f32[3,5]\ninput %i : i64[B,2]\n%y = aten.index.Tensor(%x, %i)"},
    {NGD_OP_ATEN_SCATTER_SRC,
     "input %x : f32[B,5]\ninput %i : i64[B,2]\ninput %s : f32[B,3]\n%y = aten.scatter.src(%x, %i, %s) {dim=1}"},
    {NGD_OP_ATEN_SCATTER_VALUE,
     "input %x : f32[B,5]\ninput %i : i64[B,2]\n%y = aten.scatter.value(%x, %i) {dim=1, value=3}"},
    {NGD_OP_ATEN_SCATTER_ADD,
     "input %x : bf16[B,5]\ninput %i : i32[B,4]\ninput %s : bf16[B,4]\n%y = aten.scatter_add(%x, %i, %s) {dim=1}"},
    {NGD_OP_ATEN_INDEX_COPY,
     "input %x : f32[B,5,2]\ninput %i : i64[2]\ninput %s : f32[B,2,2]\n%y = aten.index_copy(%x, %i, %s) {dim=1}"},
    {NGD_OP_ATEN_INDEX_COPY,
     "input %x : u8[B,5]\ninput %i : i32[3]\ninput %s : u8[B,3]\n%y = aten.index_copy(%x, %i, %s) {dim=-1}"},
    {NGD_OP_ATEN_SLICE_SCATTER,
     "input %x : f32[B,9]\ninput %s : f32[B,3]\n%y = aten.slice_scatter(%x, %s) {dim=1, start=2, end=7, step=2}"},
    {NGD_OP_ATEN_SELECT_SCATTER,
     "input %x : f32[B,5,2]\ninput %s : f32[B,2]\n%y = aten.select_scatter(%x, %s) {dim=1, index=3}"},
    {NGD_OP_ATEN_CONSTANT_PAD_ND, "input %x : f32[B,5]\n%y = aten.constant_pad_nd(%x) {pad=[2, 1], value=7}"},
    {NGD_OP_ATEN_FULL_LIKE, "input %x : f32[B,5]\n%y = aten.full_like(%x) {fill_value=2.5, dtype=bf16}"},
    {NGD_OP_ATEN_ZEROS_LIKE, "input %x : bf16[B,5]\n%y = aten.zeros_like(%x)"},
    {NGD_OP_ATEN_ONES_LIKE, "input %x : i32[B,5]\n%y = aten.ones_like(%x)"},
    {NGD_OP_ATEN_NEW_FULL, "input %x : f32[B,5]\n%y = aten.new_full(%x) {size=[B,3], fill_value=-1}"},
    {NGD_OP_ATEN_NEW_ZEROS, "input %x : f16[B]\n%y = aten.new_zeros(%x) {size=[2*B,3]}"},
    {NGD_OP_ATEN_NEW_ONES, "input %x : u8[B,2]\n%y = aten.new_ones(%x) {size=[B]}"},
    {NGD_OP_ATEN_CLONE, "input %x : f32[B,5,7]\n%v = aten.permute(%x) {dims=[0,2,1]}\n%y = aten.clone(%v)"},
    {NGD_OP_ATEN_CLONE, "input %x : bf16[B,20,18]\n%v = aten.transpose.int(%x) {dim0=1, dim1=2}\n%y = aten.clone(%v)"},
    {NGD_OP_ATEN_ADD_TENSOR,
     "input %x : f32[B,4,6]\ninput %z : f32[6]\n%v = aten.view(%x) {size=[B*4,6]}\n%y = aten.add.Tensor(%v, %z)"},
    {NGD_OP_ATEN_MUL_TENSOR, "input %x : f32[B,1,6]\ninput %z : f32[B,4,1]\n%y = aten.mul.Tensor(%x, %z)"},
};

/* Operators whose rows go into a result without rows: they are compared with a plan for exactly these rows. */
static const struct {
    ngd_op_id_t op;
    const char *text;
} sink_cases[] = {
    {NGD_OP_ATEN_INDEX_PUT,
     "input %x : f32[3,5]\ninput %i : i64[B]\ninput %s : f32[B,5]\n%y = aten.index_put(%x, %i, %s) {accumulate=true}"},
    {NGD_OP_ATEN_INDEX_PUT,
     "input %x : i32[3,5]\ninput %i : i32[B,2]\ninput %s : i32[B,2,5]\n%y = aten.index_put(%x, %i, %s)"},
    {NGD_OP_ATEN_INDEX_COPY,
     "input %x : f32[3,5]\ninput %i : i64[B]\ninput %s : f32[B,5]\n%y = aten.index_copy(%x, %i, %s) {dim=0}"},
};

/* Kernels of kernels_basic.def whose operands cannot have a bucketed symbol, or have no rows. */
static const ngd_op_id_t rowless[] = {NGD_OP_ATEN_TRIL,         NGD_OP_ATEN_TRIU,
                                      NGD_OP_ATEN_COPY_,        NGD_OP_ATEN_FULL,
                                      NGD_OP_ATEN_ARANGE,       NGD_OP_ATEN_ARANGE_DEFAULT,
                                      NGD_OP_ATEN_ARANGE_START, NGD_OP_ATEN_ZEROS,
                                      NGD_OP_ATEN_ONES,         NGD_OP_ATEN_SCALAR_TENSOR,
                                      NGD_OP_ATEN_SUM_DEFAULT,  NGD_OP_ATEN_MEAN_DEFAULT,
                                      NGD_OP_ATEN_MAX,          NGD_OP_ATEN_MIN,
                                      NGD_OP_ATEN_ANY,          NGD_OP_ATEN_ALL};

static const char *attrs_of(const struct ngd_op *op)
{
    if (op->id == NGD_OP_ATEN_DIV_SCALAR_MODE)
        return " {other=0.5, rounding_mode=\"floor\"}";
    if (ngd_op_attr_index(op, "rounding_mode", 13) >= 0)
        return " {rounding_mode=\"trunc\"}";
    if (ngd_op_attr_index(op, "other", 5) >= 0)
        return " {other=0.5}";
    if (ngd_op_attr_index(op, "exponent", 8) >= 0)
        return " {exponent=1.5}";
    if (op->id == NGD_OP_ATEN_TO_COPY)
        return " {dtype=bf16}";
    if (op->id == NGD_OP_ATEN_MASKED_FILL_SCALAR)
        return " {value=1}";
    return op->id == NGD_OP_ATEN_CLAMP ? " {min=-0.5, max=0.75}" : "";
}

static bool takes_integers_only(const struct ngd_op *op)
{
    return strstr(op->name, "bitwise") != NULL;
}

/* Writes an elementwise operator on operands of that shape; the last one is broadcast over dimension 1 if asked for. */
static void elementwise(struct ngd_strbuf *sb, const struct ngd_op *op, const char *dtype, const char *shape,
                        const char *last)
{
    for (uint32_t i = 0; i < op->min_in; i++) {
        bool condition = i == (op->id == NGD_OP_ATEN_WHERE_SELF           ? 0u
                               : op->id == NGD_OP_ATEN_MASKED_FILL_SCALAR ? 1u
                                                                          : UINT32_MAX);

        ngd_strbuf_printf(sb, "input %%x%u : %s[%s]\n", i,
                          condition                 ? "bool"
                          : takes_integers_only(op) ? "i32"
                                                    : dtype,
                          i && i + 1 == op->min_in ? last : shape);
    }
    ngd_strbuf_printf(sb, "%%y = %s(", op->name);
    for (uint32_t i = 0; i < op->min_in; i++)
        ngd_strbuf_printf(sb, "%s%%x%u", i ? ", " : "", i);
    ngd_strbuf_printf(sb, ")%s", attrs_of(op));
}

/* ---- rows ---- */

#define BUCKET 8

/* Returns the bytes of an input or output at `rows`. */
static uint64_t io_bytes(const struct ngd_plan_io *io, int64_t rows)
{
    return io->row_sym == NGD_NO_ROW_SYM ? io->bytes : io->row_bytes * (uint64_t)(rows * io->row_mult);
}

/*
 * Runs first at the bucket with random inputs, for reference; then with inputs of 0xff only (NaN, indices of -1), which
 * stay in the pool; then with the first `rows` rows alone. The padding may not show.
 */
static void check_rows(struct bench *b, const struct ready *r, int64_t full, int64_t rows, bool eager, const char *text)
{
    struct io all, some, poison;
    struct ngd_diag diag = {0};

    io_open(&all, r);
    io_open(&some, r);
    io_open(&poison, r);
    io_randomize(&all, r);
    if (replay(b, r, &all, &full, eager, &diag))
        ck_abort_msg("%s\n%s", diag.text, text);
    for (uint32_t i = 0; i < poison.n_in; i++)
        memset(poison.in_room[i], 0xff, poison.in[i].bytes);
    (void)replay(b, r, &poison, &full, eager, NULL);
    for (uint32_t i = 0; i < some.n_in; i++) {
        some.in[i].bytes = io_bytes(&r->plan->inputs[i], rows);
        memcpy(some.in_room[i], all.in_room[i], some.in[i].bytes);
    }
    for (uint32_t i = 0; i < some.n_out; i++) {
        some.out[i].bytes = io_bytes(&r->plan->outputs[i], rows);
        memset(some.out_room[i], 0x5a, r->plan->outputs[i].bytes);
    }
    if (replay(b, r, &some, &rows, eager, &diag))
        ck_abort_msg("%lld rows: %s\n%s", (long long)rows, diag.text, text);
    for (uint32_t i = 0; i < some.n_out; i++) {
        uint64_t bytes = some.out[i].bytes;

        ck_assert_msg(memcmp(some.out_room[i], all.out_room[i], bytes) == 0,
                      "%lld of %lld rows on %s differ in output %u\n%s", (long long)rows, (long long)full, b->name, i,
                      text);
        for (; bytes < r->plan->outputs[i].bytes; bytes++)
            if (some.out_room[i][bytes] != 0x5a)
                ck_abort_msg("padding was copied out\n%s", text);
    }
    io_close(&all);
    io_close(&some);
    io_close(&poison);
}

static void check_body_rows(struct bench *b, const char *body)
{
    const int64_t full = BUCKET;
    struct ngd_strbuf text;
    struct ready r;

    ngd_strbuf_init(&text);
    run_text(&text, "sym B 0..8 buckets 8\n", body);
    open_or_abort(&r, b, ngd_strbuf_str(&text), &full);
    for (int64_t rows = 0; rows <= BUCKET; rows += rows ? 3 : 1) {
        check_rows(b, &r, full, rows, false, ngd_strbuf_str(&text));
        check_rows(b, &r, full, rows, true, ngd_strbuf_str(&text));
    }
    ready_close(&r);
    ngd_strbuf_fini(&text);
}

static void check_elementwise_rows(struct bench *b, const struct ngd_op *op, const char *dtype, const char *last)
{
    struct ngd_strbuf body;

    ngd_strbuf_init(&body);
    elementwise(&body, op, dtype, "B,21", last);
    check_body_rows(b, ngd_strbuf_str(&body));
    ngd_strbuf_fini(&body);
}

/* Compares the plan for the bucket, with padding of 0xff, and one for exactly these rows. */
static void check_sink(struct bench *b, const struct ready *padded, const char *body, int64_t rows)
{
    const int64_t full = BUCKET;
    struct io poison, some, want;
    struct ready exact;
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};

    ngd_strbuf_init(&text);
    run_text(&text, "sym B 0..8\n", body);
    open_or_abort(&exact, b, ngd_strbuf_str(&text), &rows);
    io_open(&poison, padded);
    io_open(&some, padded);
    io_open(&want, &exact);
    for (uint32_t i = 0; i < poison.n_in; i++)
        memset(poison.in_room[i], 0xff, poison.in[i].bytes);
    (void)replay(b, padded, &poison, &full, false, NULL);
    io_randomize(&want, &exact);
    for (uint32_t i = 0; i < some.n_in; i++) {
        some.in[i].bytes = want.in[i].bytes;
        memcpy(some.in_room[i], want.in_room[i], want.in[i].bytes);
    }
    if (replay(b, &exact, &want, &rows, false, &diag) || replay(b, padded, &some, &rows, false, &diag))
        ck_abort_msg("%lld rows: %s\n%s", (long long)rows, diag.text, body);
    ck_assert_msg(memcmp(some.out_room[0], want.out_room[0], want.out[0].bytes) == 0,
                  "%lld of %d rows are not what %lld rows are\n%s", (long long)rows, BUCKET, (long long)rows, body);
    io_close(&poison);
    io_close(&some);
    io_close(&want);
    ready_close(&exact);
    ngd_strbuf_fini(&text);
}

START_TEST(rows_of_padding_go_nowhere)
{
    const int64_t full = BUCKET;
    struct bench b;

    bench_open(&b, ngd_cpu_isa(), 2);
    for (size_t i = 0; i < sizeof(sink_cases) / sizeof(sink_cases[0]); i++) {
        struct ngd_strbuf text;
        struct ready r;

        ngd_strbuf_init(&text);
        run_text(&text, "sym B 0..8 buckets 8\n", sink_cases[i].text);
        open_or_abort(&r, &b, ngd_strbuf_str(&text), &full);
        for (int64_t rows = 0; rows <= BUCKET; rows++)
            check_sink(&b, &r, sink_cases[i].text, rows);
        ready_close(&r);
        ngd_strbuf_fini(&text);
    }
    bench_close(&b);
}
END_TEST

#define INT4 ", none, none, none, none) {antiquant_group_size=32}"

/* Products of a bucket that takes blocks of many rows, with few: K of one block and a half, N of one tile and a part.
 */
START_TEST(few_rows_of_a_large_bucket_have_the_bits_of_many)
{
    static const char *const products[] = {
        "input %x : f32[B,389]\ninput %w : f32[83,389]\n%y = aten.linear(%x, %w)",
        "input %x : f32[B,389]\ninput %w : f16[83,389]\n%y = aten.linear(%x, %w)",
        "input %x : f32[B,389]\ninput %w : bf16[83,389]\n%y = aten.linear(%x, %w)",
        "input %x : f32[B,256]\ninput %w : bf16[64,256]\n%y = aten.linear(%x, %w)",
        "input %x : f32[B,3]\ninput %w : f16[33,3]\n%y = aten.linear(%x, %w)",
        "input %x : bf16[B,1031]\ninput %w : bf16[83,1031]\ninput %b : bf16[83]\n%y = aten.linear(%x, %w, %b)",
        "input %x : f16[B,800]\ninput %w : f16[70,800]\n%y = aten.linear(%x, %w)",
        "input %x : f32[B,389]\ninput %w : bf16[389,83]\n%y = aten.mm(%x, %w)",
        "input %x : f32[B,320]\ninput %w : i8[83,320]\ninput %s : f32[83]\n%t = aten.t(%w)\n"
        "%y = npu.weight_quant_batchmatmul(%x, %t, %s, none, none, none, none)",
        "input %x : f32[B,320]\ninput %w : i32[83,40]\ninput %s : bf16[83,10]\n%t = aten.t(%w)\n%u = aten.t(%s)\n"
        "%y = npu.weight_quant_batchmatmul(%x, %t, %u" INT4,
    };
    static const int64_t rows[] = {1, 2, 3, 4, 7, 8, 9, 24, 25, 63};
    const int64_t full = 64;

    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 2);
        for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
            struct ngd_strbuf text;
            struct ready r;

            ngd_strbuf_init(&text);
            run_text(&text, "sym B 0..64 buckets 64\n", products[i]);
            open_or_abort(&r, &b, ngd_strbuf_str(&text), &full);
            for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
                check_rows(&b, &r, full, rows[k], false, ngd_strbuf_str(&text));
            ready_close(&r);
            ngd_strbuf_fini(&text);
        }
        bench_close(&b);
    }
}
END_TEST

static bool is_elementwise(const struct ngd_op *op)
{
    return (op->flags & NGD_OPF_ELEMENTWISE) && ngd_host_kernel_of(op->id) != NULL;
}

START_TEST(rows_of_a_bucket_that_are_padding_are_invisible)
{
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 2);
        for (size_t i = 0; i < sizeof(row_cases) / sizeof(row_cases[0]); i++)
            check_body_rows(&b, row_cases[i].text);
        for (int id = 0; id < NGD_OP_MAX; id++) {
            const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);

            if (!is_elementwise(op))
                continue;
            check_elementwise_rows(&b, op, "f32", "B,21");
            check_elementwise_rows(&b, op, "bf16", "21");
        }
        bench_close(&b);
    }
}
END_TEST

START_TEST(every_operator_that_can_meet_a_bucketed_symbol_is_tested_with_padding)
{
    bool tested[NGD_OP_MAX] = {false};

#define NGD_HOST_KERNEL(OP, symbol) tested[NGD_OP_##OP] = true; /* checked below */
#include "devices/host/kernels/kernels_core.def"
#undef NGD_HOST_KERNEL
    for (size_t i = 0; i < sizeof(row_cases) / sizeof(row_cases[0]); i++)
        tested[row_cases[i].op] = true;
    for (size_t i = 0; i < sizeof(sink_cases) / sizeof(sink_cases[0]); i++)
        tested[sink_cases[i].op] = true;
    for (size_t i = 0; i < sizeof(rowless) / sizeof(rowless[0]); i++)
        tested[rowless[i]] = true;
    for (int id = 0; id < NGD_OP_MAX; id++) {
        const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);

        if (ngd_host_kernel_of(op->id) && !tested[id] && !is_elementwise(op) && !(op->flags & NGD_OPF_COLLECTIVE))
            ck_abort_msg("%s has no row in row_cases[]", op->name);
    }
}
END_TEST

/* ---- strides ---- */

/* Makes %v, a tensor with strides, of a parameter %p; its shape is that of `shape`. */
static const struct {
    const char *input, *view, *shape;
} views[] = {
    {"[12,20]", "aten.t(%p)", "20,12"},
    {"[20,24]", "aten.slice.Tensor(%p) {dim=1, start=1, end=24, step=2}", "20,12"},
    {"[20,30]", "aten.slice.Tensor(%p) {dim=1, start=7, end=19}", "20,12"},
    {"[1,12]", "aten.expand(%p) {size=[20,12]}", "20,12"},
    {"[20,1]", "aten.expand(%p) {size=[20,12]}", "20,12"},
    {"[12,3,20]", "aten.permute(%p) {dims=[1,2,0]}", "3,20,12"},
    {"[20,4,12]", "aten.select.int(%p) {dim=1, index=2}", "20,12"},
};

/* %v in the place of %x; the other inputs are contiguous. */
static const struct {
    const char *others, *node;
    bool exact; /* bit for bit: it has no sum whose order depends on the strides */
} strided_ops[] = {
    {"", "aten.exp(%v)", true},
    {"", "aten.gt.Scalar(%v) {other=0.25}", true},
    {"", "aten._to_copy(%v) {dtype=bf16}", true},
    {"", "aten._to_copy(%v) {dtype=i32}", true},
    {"", "aten.clone(%v)", true},
    {"input %z : f32[12]\n", "aten.add.Tensor(%v, %z) {alpha=2}", true},
    {"input %z : f32[20,1]\n", "aten.mul.Tensor(%z, %v)", true},
    {"input %z : f32[20,12]\n", "aten.lt.Tensor(%v, %z)", true},
    {"input %z : f32[1]\ninput %c : bool[20,1]\n", "aten.where.self(%c, %v, %z)", true},
    {"input %c : bool[12]\n", "aten.masked_fill.Scalar(%v, %c) {value=2}", true},
    {"", "aten.cat(%v, %v) {dim=-1}", true},
    {"", "aten.stack(%v, %v) {dim=-2}", true},
    {"", "aten.repeat(%v) {repeats=[2,1,3,2]}", true},
    {"", "aten.softmax.int(%v) {dim=-1}", true},
    {"input %z : f32[20,12]\n", "aten.floor_divide(%v, %z)", true},
    {"", "aten.remainder.Scalar(%v) {other=0.75}", true},
    {"", "aten._softmax(%v) {dim=-1}", true},
    {"", "aten._log_softmax(%v) {dim=0}", true},
    {"", "aten.layer_norm(%v) {normalized_shape=[12]}", true},
    {"", "aten.sum.dim_IntList(%v) {dim=[-1]}", false},
    {"", "aten.sum.dim_IntList(%v) {dim=[0]}", false},
    {"", "aten.mean.dim(%v)", false},
    {"", "aten.amax(%v) {dim=[0]}", true},
    {"", "aten.amin(%v) {dim=[-1]}", true},
    {"", "aten.mean(%v)", false},
    {"", "aten.var.correction(%v) {dim=[0]}", false},
    {"", "aten.max(%v)", true},
    {"", "aten.prod.dim_int(%v) {dim=-1}", false},
    {"", "aten.argmax(%v) {dim=-1}", true},
    {"", "aten.argmin(%v) {dim=0}", true},
    {"", "aten.cumsum(%v) {dim=0}", true},
    {"input %j : i64[2]\n", "aten.index_select(%v, %j) {dim=0}", true},
    {"input %j : i64[12]\n", "aten.index_copy(%v, %j, %v) {dim=-1}", true},
    {"", "aten.scaled_dot_product_attention(%v, %v, %v) {is_causal=true}", true},
    {"input %z : f32[3,20,8]\ninput %k : f32[3,12,8]\n", "aten.scaled_dot_product_attention(%z, %k, %k, %v)", true},
    {"", "npu.swiglu(%v)", true},
};

static void strided_text(struct ngd_strbuf *sb, size_t view, size_t op, bool copied)
{
    struct ngd_strbuf body;

    ngd_strbuf_init(&body);
    ngd_strbuf_printf(&body, "%sinput %%q : f32%s\n%%p = aten.neg(%%q)\n%%%s = %s\n%s%%y = %s", strided_ops[op].others,
                      views[view].input, copied ? "u" : "v", views[view].view, copied ? "%v = aten.clone(%u)\n" : "",
                      strided_ops[op].node);
    run_text(sb, "", ngd_strbuf_str(&body));
    ngd_strbuf_fini(&body);
}

static void check_close(const char *a, const char *b, uint64_t n, const char *text)
{
    for (uint64_t i = 0; i < n; i++) {
        double x = golden_value(NGD_F32, a, i), y = golden_value(NGD_F32, b, i);

        if (!(fabs(x - y) <= 1e-6 * (1 + fabs(y))))
            ck_abort_msg("element %llu is %.9g and %.9g\n%s", (unsigned long long)i, x, y, text);
    }
}

static void check_strided(struct bench *b, size_t view, size_t op)
{
    struct ngd_strbuf text[2];
    struct ready r[2];
    struct io io[2];

    for (int copied = 0; copied < 2; copied++) {
        ngd_strbuf_init(&text[copied]);
        strided_text(&text[copied], view, op, copied);
        open_or_abort(&r[copied], b, ngd_strbuf_str(&text[copied]), NULL);
        io_open(&io[copied], &r[copied]);
        if (copied) {
            for (uint32_t i = 0; i < io[0].n_in; i++)
                memcpy(io[1].in_room[i], io[0].in_room[i], io[0].in[i].bytes);
        } else {
            io_randomize(&io[0], &r[0]);
        }
        ck_assert_int_eq(replay(b, &r[copied], &io[copied], NULL, false, NULL), NGD_OK);
    }
    if (strided_ops[op].exact)
        ck_assert_msg(memcmp(io[0].out_room[0], io[1].out_room[0], io[0].out[0].bytes) == 0,
                      "on %s, strides matter\n%s", b->name, ngd_strbuf_str(&text[0]));
    else
        check_close(io[0].out_room[0], io[1].out_room[0], io[0].out[0].bytes / 4, ngd_strbuf_str(&text[0]));
    for (int copied = 0; copied < 2; copied++) {
        io_close(&io[copied]);
        ready_close(&r[copied]);
        ngd_strbuf_fini(&text[copied]);
    }
}

START_TEST(operands_with_strides_give_what_their_contiguous_copies_give)
{
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (size_t v = 0; v < sizeof(views) / sizeof(views[0]); v++)
            for (size_t o = 0; o < sizeof(strided_ops) / sizeof(strided_ops[0]); o++)
                check_strided(&b, v, o);
        bench_close(&b);
    }
}
END_TEST

/* A view of a state is written in place: memory between its elements stays unchanged. */
START_TEST(copy_into_a_strided_view_of_a_state_leaves_the_rest)
{
    static const char text[] = "npugraph 1\ngraph \"g\" {\nstate %s : f32[4,6]\ninput %x : bf16[4,3]\n"
                               "%v = aten.slice.Tensor(%s) {dim=1, start=1, end=6, step=2}\naten.copy_(%v, %x)\n}\n";
    float before[24], after[24];
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;
    struct io io;

    bench_open(&b, ngd_cpu_isa(), 1);
    open_or_abort(&r, &b, text, NULL);
    io_open(&io, &r);
    io_randomize(&io, &r);
    fill_random(NGD_F32, (char *)before, 24);
    ck_assert_int_eq(ngd_buffer_write(r.bound[0], 0, before, sizeof(before), &diag), NGD_OK);
    ck_assert_int_eq(replay(&b, &r, &io, NULL, false, NULL), NGD_OK);
    ck_assert_int_eq(ngd_buffer_read(r.bound[0], 0, after, sizeof(after), &diag), NGD_OK);
    for (int i = 0; i < 24; i++) {
        int col = i % 6;
        float want =
            col % 2 ? (float)golden_value(NGD_BF16, io.in_room[0], (uint64_t)(i / 6 * 3 + col / 2)) : before[i];

        ck_assert_msg(after[i] == want, "element %d", i);
    }
    io_close(&io);
    ready_close(&r);
    bench_close(&b);
}
END_TEST

/* ---- empty tensors ---- */

static const char *const empty_bodies[] = {
    "input %x : f32[0,4]\n%y = aten.sum.dim_IntList(%x) {dim=[0]}",
    "input %x : f32[3,0]\n%y = aten.sum.dim_IntList(%x)",
    "input %x : bf16[3,0]\n%y = aten.mean.dim(%x) {dim=[1]}",
    "input %x : f32[0,4]\n%y = aten.amax(%x) {dim=[1]}",
    "input %x : f32[0,4]\n%y = aten.any.dim(%x) {dim=0}",
    "input %x : f16[3,0]\n%y = aten.all.dims(%x) {dim=[0,1]}",
    "input %x : bool[3,0]\n%y = aten.any(%x)",
    "input %x : f32[0,3]\n%y, %m = aten.var_mean.correction(%x)",
    "input %x : f32[0,3]\n%y = aten.var.correction(%x) {dim=[1]}",
    "input %x : f32[3,0]\n%y = aten.mean(%x)",
    "input %x : i32[2,0]\n%y = aten.prod.dim_int(%x) {dim=1}",
    "input %x : f32[0,4]\n%y = aten.argmax(%x) {dim=1}",
    "input %x : f32[2,0]\n%y, %i = aten.topk(%x) {k=0}",
    "input %x : f32[0,3]\n%y, %i = aten.topk(%x) {k=2}",
    "input %q : f32[0,2,3,4]\n%y = aten.scaled_dot_product_attention(%q, %q, %q)",
    "input %q : f32[2,0,3,4]\n%y = aten.scaled_dot_product_attention(%q, %q, %q)",
    "input %q : f16[1,2,0,4]\ninput %k : f16[1,2,5,4]\n%y = aten.scaled_dot_product_attention(%q, %k, %k)",
    ("input %q : f32[1,2,3,4]\ninput %k : f32[1,2,0,4]\ninput %m : bool[3,0]\n"
     "%y = aten.scaled_dot_product_attention(%q, %k, %k, %m)"),
    "input %q : bf16[1,2,3,4]\ninput %v : bf16[1,2,3,0]\n%y = aten.scaled_dot_product_attention(%q, %q, %v)",
    "input %x : f32[2,0]\n%y = aten.cumsum(%x) {dim=1}",
    "input %x : f32[2,0]\n%y = aten._softmax(%x) {dim=1}",
    "input %x : f32[0,5]\n%y = aten._log_softmax(%x) {dim=1}",
    "input %x : f32[0,5]\n%y = aten.layer_norm(%x) {normalized_shape=[5]}",
    "input %x : f32[0,5]\ninput %g : f32[5]\n%y, %z = npu.rms_norm(%x, %g)",
    "input %x : f32[2,0]\n%y = npu.swiglu(%x)",
    "input %x : f32[2,0]\ninput %g : f32[0]\n%y, %n, %z, %s = npu.add_rms_norm_cast(%x, %x, %g)",
    "input %x : f32[2,0]\n%y, %s = npu.dynamic_quant(%x)",
    "input %x : f32[0,4]\n%y, %s = npu.swiglu_quant(%x)",
    "input %x : f32[0,4]\ninput %s : f32[1]\n%y = npu.quantize(%x, %s)",
    "input %x : f32[2,0]\ninput %w : f32[3,0]\n%y = ngd.linear_swiglu(%x, %w, %w)",
    "input %x : f32[0,5]\ninput %w : f32[3,5]\n%y, %z = ngd.multi_linear(%x, %w, %w) {sizes=[3,3]}",
    "input %x : f32[2,5]\ninput %g : f32[5]\ninput %w : f32[0,5]\n%y = ngd.rms_norm_linear(%x, %g, %w) {sizes=[0]}",
    "input %x : f32[0,2,4]\ninput %c : f32[0,4]\n%y = npu.rotary_mul(%x, %c, %c)",
    "input %x : f32[0,4]\ninput %z : f32[3,4]\n%y = aten.cat(%x, %z, %x) {dim=0}",
    "input %x : f32[0,4]\n%y = aten.stack(%x, %x) {dim=2}",
    "input %x : i8[0,4]\n%y = aten.repeat(%x) {repeats=[3,2]}",
    "input %x : f32[3,4]\n%y = aten.repeat(%x) {repeats=[2,0,1]}",
    "input %x : f32[3,4]\ninput %i : i64[0]\n%y = aten.index_select(%x, %i) {dim=1}",
    "input %x : f32[3,4]\ninput %i : i64[0,4]\n%y = aten.gather(%x, %i) {dim=0}",
    "input %x : f32[3,4]\ninput %i : i64[0,4]\n%y = aten.scatter.src(%x, %i, %x) {dim=0}",
    "input %x : f32[3,4]\ninput %i : i64[0]\ninput %s : f32[0,4]\n%y = aten.index_put(%x, %i, %s)",
    "input %x : f32[3,4]\ninput %i : i64[0]\ninput %s : f32[3,0]\n%y = aten.index_copy(%x, %i, %s) {dim=1}",
    "input %x : f32[0,4]\ninput %i : i64[2]\ninput %s : f32[0,2]\n%y = aten.index_copy(%x, %i, %s) {dim=1}",
    "input %x : f32[0,4]\ninput %i : i64[0]\n%y = aten.index_copy(%x, %i, %x) {dim=0}",
    "input %x : f32[0,4]\ninput %i : i64[0]\n%y = aten.index.Tensor(%x, %i)",
    "input %x : f32[0,4]\n%v = aten.t(%x)\n%y = aten.clone(%v)",
    "input %x : f32[0,4]\n%y = aten.tril(%x)",
    "%y = aten.full() {size=[0,3], fill_value=1}",
    "%y = aten.arange.start_step() {end=0}",
};

static void check_empty(struct bench *b, const char *body)
{
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct ready r;
    struct io io;

    ngd_strbuf_init(&text);
    run_text(&text, "", body);
    open_or_abort(&r, b, ngd_strbuf_str(&text), NULL);
    io_open(&io, &r);
    io_randomize(&io, &r);
    if (replay(b, &r, &io, NULL, false, &diag))
        ck_abort_msg("%s\n%s", diag.text, body);
    io_close(&io);
    ready_close(&r);
    ngd_strbuf_fini(&text);
}

START_TEST(tensors_without_elements_are_fine)
{
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (size_t i = 0; i < sizeof(empty_bodies) / sizeof(empty_bodies[0]); i++)
            check_empty(&b, empty_bodies[i]);
        for (int id = 0; id < NGD_OP_MAX; id++) {
            const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);
            struct ngd_strbuf body;

            if (!is_elementwise(op))
                continue;
            ngd_strbuf_init(&body);
            elementwise(&body, op, "f16", "3,0", "0");
            check_empty(&b, ngd_strbuf_str(&body));
            ngd_strbuf_fini(&body);
        }
        bench_close(&b);
    }
}
END_TEST

UNIT_MAIN("ops/kernels", rows_of_padding_go_nowhere, few_rows_of_a_large_bucket_have_the_bits_of_many,
          rows_of_a_bucket_that_are_padding_are_invisible,
          every_operator_that_can_meet_a_bucketed_symbol_is_tested_with_padding,
          operands_with_strides_give_what_their_contiguous_copies_give,
          copy_into_a_strided_view_of_a_state_leaves_the_rest, tensors_without_elements_are_fine)
