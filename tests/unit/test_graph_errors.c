/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the refusals of graphs: every GRAPH_* status, and the text of the diagnosis. Rows: test_graph_rows.c. */
#include "tests/unit/graph_util.h"

START_TEST(a_text_that_does_not_parse_says_where)
{
    static const struct {
        const char *text, *says;
    } texts[] = {
        {"", "line 1, column 1|expected npugraph|end of the text"},
        {"npugraph 2\ngraph \"t\" {}", "version|must be 1"},
        {"npugraph 1\ngraph t {}", "line 2, column 7|name, a string"},
        {"npugraph 1\ngraph \"t\" {", "expected a declaration|end of the text"},
        {"npugraph 1\ngraph \"t {", "string has no end"},
        {"npugraph 1\ngraph \"a\\q\" {", "bad escape"},
        {"npugraph 1\ngraph \"a\\u0000\" {", "bad escape"},
        {"npugraph 1\ngraph \"a\\ud800x\" {", "bad escape"},
        {"npugraph 1\ngraph \"a\nb\" {", "control character"},
        {"npugraph 1\ngraph \"\xff\" {", "not valid UTF-8"},
        {"# \xc3\x28\nnpugraph 1", "comment is not valid UTF-8"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] return %x } more", "expected nothing behind"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] return %x %x = aten.neg(%x) }", "return is the last"},
        {"npugraph 1\ngraph \"t\" { @ }", "'@' does not belong"},
        {"npugraph 1\ngraph \"t\" { \x01 }", "byte 0x01"},
        {"npugraph 1\ngraph \"t\" { input x : f32[4] }", "expected the input's name"},
        {"npugraph 1\ngraph \"t\" { input %x : f33[4] }", "expected a dtype"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4,] }", "expected a number, a symbol or '('"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4 4] }", "expected ','"},
        {"npugraph 1\ngraph \"t\" { sym B 1 16 }", "expected '..'"},
        {"npugraph 1\ngraph \"t\" { sym B 1..16 buckets }", "expected a bucket"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] %y = aten.neg(%x,) }", "expected a value"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] %y aten.neg(%x) }", "expected '='"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] aten.copy_(%x, %x) : f32[4] }",
         "no result that could have a type"},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {

        check_text_refused(texts[i].text, strlen(texts[i].text), NGD_ERR_GRAPH_PARSE, texts[i].says);
    }
    check_text_refused("npugraph 1\0", 11, NGD_ERR_GRAPH_PARSE, "byte 0x00");
    check_text_refused("npugraph 1\ngraph \"a\0b\" {", 24, NGD_ERR_GRAPH_PARSE, "control character");
}
END_TEST

START_TEST(an_unknown_operator_is_answered_with_the_nearest)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[4]\n%y = aten.nge(%x)", NGD_ERR_GRAPH_UNKNOWN_OP, "no operator aten.nge|aten.neg"},
        {"input %x : f32[4]\n%y = aten.add(%x, %x)", NGD_ERR_GRAPH_UNKNOWN_OP, "is it aten.add."},
        {"input %x : f32[4]\n%y = aten.softmax(%x)", NGD_ERR_GRAPH_UNKNOWN_OP, "is it aten.softmax.int"},
        {"input %x : f32[4]\n%y = aten.convolution(%x)", NGD_ERR_GRAPH_UNKNOWN_OP, "docs/operators.md"},
        {"input %x : f32[4]\n%y = aten._softmax_backward_data(%x)", NGD_ERR_GRAPH_UNKNOWN_OP,
         "backward graph|inference_mode"},
        {"input %x : f32[4]\n%y = aten.threshold_backward(%x)", NGD_ERR_GRAPH_UNKNOWN_OP, "backward graph"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(values_are_defined_once_and_before_their_use)
{
    static const struct refusal refusals[] = {
        {"%y = aten.neg(%x)", NGD_ERR_GRAPH_UNDEFINED, "line 3|%x is not defined"},
        {"%y = aten.neg(%x)\ninput %x : f32[4]", NGD_ERR_GRAPH_UNDEFINED, "before line 4 defines it|no cycle"},
        {"input %x : f32[4]\n%a = aten.add.Tensor(%x, %b)\n%b = aten.neg(%a)\nreturn %b", NGD_ERR_GRAPH_UNDEFINED,
         "%b is used before line 5|no cycle"},
        {"%a = aten.neg(%a)", NGD_ERR_GRAPH_UNDEFINED, "to compute itself|no cycle"},
        {"input %x : f32[4]\n%v, %i = aten.topk(%y) {k=1}\n%y, %z = aten.topk(%x) {k=1}", NGD_ERR_GRAPH_UNDEFINED,
         "before line 5"},
        {"return %nothing", NGD_ERR_GRAPH_UNDEFINED, "%nothing is not defined"},
        {"input %x : f32[4]\ninput %x : f32[4]", NGD_ERR_GRAPH_REDEFINED, "line 4|%x is defined twice"},
        {"input %x : f32[4]\n%x = aten.neg(%x)", NGD_ERR_GRAPH_REDEFINED, "line 4|%x is defined twice"},
        {"input %x : f32[4]\n%y, %y = aten.topk(%x) {k=1}", NGD_ERR_GRAPH_REDEFINED, "%y is defined twice"},
        {"sym B 1..2\nsym B 1..2", NGD_ERR_GRAPH_REDEFINED, "symbol B is declared twice"},
        {"param %a : f32[4] = \"w\"\nparam %b : f32[4] = \"w\"", NGD_ERR_GRAPH_REDEFINED, "label \"w\""},
        {"input %x : f32[4]\nreturn \"o\" = %x, \"o\" = %x", NGD_ERR_GRAPH_REDEFINED, "two outputs"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(operands_results_and_attributes_fit_the_schema)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[2,4]\ninput %w : f32[3,4]\n%y, %z = ngd.multi_linear(%x, %w) {sizes=[3,3]}",
         NGD_ERR_GRAPH_ARITY, "it has 2 operands|it takes 3"},
        {"input %x : f32[4]\n%y = aten.mul.Tensor(%x)", NGD_ERR_GRAPH_ARITY,
         "%y (aten.mul.Tensor, line 4)|1 operands|takes 2"},
        {"input %x : f32[4]\n%y = aten.neg(%x, %x)", NGD_ERR_GRAPH_ARITY, "2 operands|takes 1"},
        {"input %x : f32[4,4]\n%y = aten.linear(%x, none)", NGD_ERR_GRAPH_ARITY, "operand 2 is none"},
        {"input %x : f32[4]\n%y = aten.cat(%x, none, %x)", NGD_ERR_GRAPH_ARITY, "operand 2 is none"},
        {"input %x : f32[4]\n%y, %z = aten.neg(%x)", NGD_ERR_GRAPH_ARITY, "1 results|2 names"},
        {"input %x : f32[4]\naten.neg(%x)", NGD_ERR_GRAPH_ARITY, "1 results|0 names"},
        {"input %x : f32[4]\n%y = aten.topk(%x) {k=2}", NGD_ERR_GRAPH_ARITY, "2 results"},
        {"input %x : f32[]\ninput %g : f32[4]\n%y, %z = npu.rms_norm(%x, %g)", NGD_ERR_GRAPH_SHAPE, "[...,D]"},
        {"input %x : f32[2,4]\ninput %w : f32[3,4]\n%y = npu.quantize(%x, %w) {dtype=f32}", NGD_ERR_GRAPH_ATTRIBUTE,
         "i8, u8 or i32"},
        {"input %x : f32[2,3,4]\n%y = npu.transpose_batchmatmul(%x, %x) {perm_x1=[0,2,1]}", NGD_ERR_GRAPH_ATTRIBUTE,
         "leave the last dimension"},
        {"input %x : f32[2,4]\ninput %g : f32[4]\n%a, %b, %c, %d, %e = npu.add_rms_norm_dynamic_quant(%x, %x, %g) "
         "{output_mask=[0,1]}",
         NGD_ERR_GRAPH_ATTRIBUTE, "[1,0] or [1,1]"},
        {"input %x : f32[4]\n%y, %i = aten.topk(%x)", NGD_ERR_GRAPH_ATTRIBUTE, "attribute k (int) is required"},
        {"input %x : f32[4]\n%y, %i = aten.topk(%x) {k=2, n=3}", NGD_ERR_GRAPH_ATTRIBUTE,
         "no attribute n|it has k, dim, largest, sorted"},
        {"input %x : f32[4]\n%y = aten.neg(%x) {n=3}", NGD_ERR_GRAPH_ATTRIBUTE, "no attribute n|it has none"},
        {"input %x : f32[4]\n%y, %i = aten.topk(%x) {k=2, k=3}", NGD_ERR_GRAPH_ATTRIBUTE, "given twice"},
        {"input %x : f32[4]\n%y, %i = aten.topk(%x) {k=\"two\"}", NGD_ERR_GRAPH_ATTRIBUTE, "attribute k|type int"},
        {"input %x : f32[4]\n%y, %i = aten.topk(%x) {k=2, sorted=1}", NGD_ERR_GRAPH_ATTRIBUTE, "true or false"},
        {"input %x : f32[4]\n%y = aten.gelu(%x) {approximate=tanh}", NGD_ERR_GRAPH_ATTRIBUTE, "type str"},
        {"input %x : f32[4]\n%y = aten.gelu(%x) {approximate=\"maybe\"}", NGD_ERR_GRAPH_ATTRIBUTE,
         "\"none\" or \"tanh\""},
        {"input %x : f32[4]\n%y = aten._to_copy(%x) {dtype=f64}", NGD_ERR_GRAPH_ATTRIBUTE, "a dtype"},
        {"input %x : f32[4]\n%y = aten._to_copy(%x) {dtype=none}", NGD_ERR_GRAPH_ATTRIBUTE, "must name a dtype"},
        {"input %x : f32[4]\n%y = aten._softmax(%x) {dim=1}", NGD_ERR_GRAPH_ATTRIBUTE, "dim is 1|-1..0"},
        {"sym B 1..4\ninput %x : f32[B]\n%y = aten._softmax(%x) {dim=B}", NGD_ERR_GRAPH_ATTRIBUTE,
         "must be a constant"},
        {"input %x : i32[4]\n%y = aten.add.Scalar(%x) {other=1.5}", NGD_ERR_GRAPH_ATTRIBUTE, "whole number"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(dtypes_and_shapes_are_checked_and_the_right_ones_named)
{
#define F4(x, w, s, attrs)                                      \
    "input %x : f32" x "\ninput %w : " w "\ninput %s : " s "\n" \
    "%y = npu.weight_quant_batchmatmul(%x, %w, %s) {" attrs "}"
    static const struct refusal refusals[] = {
        {"param %w : f32[64,128]\ninput %x : f32[2,32]\n%y = aten.linear(%x, %w)", NGD_ERR_GRAPH_SHAPE,
         "node %y (aten.linear, line 5)|weight %w is f32[64,128]|%x has 32 columns|[N,32]"},
        {"input %x : i32[4]\n%y = aten.exp(%x)", NGD_ERR_GRAPH_DTYPE, "%x is i32|f32, f16 or bf16|aten._to_copy"},
        {"input %x : f32[4]\ninput %y : f16[4]\n%z = aten.mul.Tensor(%x, %y)", NGD_ERR_GRAPH_DTYPE,
         "%x is f32 and %y is f16"},
        {"param %w : f32[4,4]\ninput %x : bf16[2,4]\n%y = aten.linear(%x, %w)", NGD_ERR_GRAPH_DTYPE,
         "weight %w is f32 beside bf16"},
        {"input %x : f32[4]\n%y = aten.where.self(%x, %x, %x)", NGD_ERR_GRAPH_DTYPE, "condition %x is f32|bool"},
        {"input %x : f32[4]\n%y = aten.masked_fill.Scalar(%x, %x) {value=1}", NGD_ERR_GRAPH_DTYPE,
         "mask %x is f32|bool"},
        {"input %x : f32[4]\ninput %i : f32[1]\n%y = aten.index_copy(%x, %i, %i) {dim=0}", NGD_ERR_GRAPH_DTYPE,
         "index %i is f32|i64"},
        {"input %x : f32[4]\ninput %i : i64[1]\ninput %s : f16[1]\n%y = aten.index_copy(%x, %i, %s) {dim=0}",
         NGD_ERR_GRAPH_DTYPE, "source %s is f16"},
        {"input %x : f32[4,3]\ninput %i : i64[1,2]\ninput %s : f32[1,3]\n%y = aten.index_copy(%x, %i, %s) {dim=0}",
         NGD_ERR_GRAPH_SHAPE, "index %i is i64[1,2]|[N]"},
        {"input %x : f32[4,3]\ninput %i : i64[2]\ninput %s : f32[2,3]\n%y = aten.index_copy(%x, %i, %s) {dim=1}",
         NGD_ERR_GRAPH_SHAPE, "source %s is f32[2,3]|of x's shape, along dim as long as the index"},
        {"input %x : f32[4,3]\ninput %i : i64[2]\ninput %s : f32[2,3]\n%y = aten.index_copy(%x, %i, %s) {dim=2}",
         NGD_ERR_GRAPH_ATTRIBUTE, "dim"},
        {"host %n : f32[4]", NGD_ERR_GRAPH_DTYPE, "host parameter|i64"},
        {"host %n : i64[4]\n%y = aten.neg(%n)", NGD_ERR_GRAPH_DTYPE, "must be a tensor|`input`"},
        {"input %x : f32[2,4]\ninput %w : f32[3,4]\n%y = ngd.multi_linear(%x, %w) {sizes=[5]}", NGD_ERR_GRAPH_SHAPE,
         "differs from element 0 of sizes"},
        {"input %x : f32[2,4]\ninput %w : f32[3,5]\n%y = ngd.multi_linear(%x, %w) {sizes=[3]}", NGD_ERR_GRAPH_SHAPE,
         "it must be [N,4]"},
        {"input %x : f32[1,1,1,1,1,1,1,4]\ninput %i : i64[2,2]\ninput %v : f32[2,2,1,1,1,1,1,1]\n"
         "%y = aten.index_put(%x, %i, %v) {accumulate=false}",
         NGD_ERR_GRAPH_SHAPE, "which would have 9 dimensions; a tensor has 8 at most"},
        {"input %x : f32[2,4]\ninput %w : f32[3,4,4]\n%y = ngd.multi_linear(%x, %w) {sizes=[3]}", NGD_ERR_GRAPH_SHAPE,
         "it must be [N,4]"},
        {"input %x : f32[2,4]\ninput %w : f32[3,4]\n%y, %z = ngd.multi_linear(%x, %w) {sizes=[3,3]}",
         NGD_ERR_GRAPH_ARITY, "2 operands, but with 2 sizes it takes 3, or with biases 5"},
        {"state %k : f32[2,2,1,4]\nstate %v : f32[2,2,1,4]\ninput %x : f32[3,1,4]\ninput %c : f32[3,4]\ninput %s : "
         "i32[3]\n"
         "input %g : f32[4]\n%y = ngd.qk_norm_rope_scatter(%x, %x, %x, %c, %c, %s, %k, %v, %g, none)",
         NGD_ERR_GRAPH_ARITY, "give both or none"},
        {"input %x : f32[2,4]\ninput %w : f32[3,4]\ninput %r : f32[2,4]\n%y = ngd.linear_add(%x, %w, %r)",
         NGD_ERR_GRAPH_SHAPE, "of the result's shape"},
        {"input %x : f32[2,4]\ninput %w : f32[3,4]\ninput %v : f32[2,4]\n%y = ngd.linear_swiglu(%x, %w, %v)",
         NGD_ERR_GRAPH_SHAPE, "the same number of rows"},
        {"input %x : f32[2,4]\ninput %s : f32[3]\n%y = npu.quantize(%x, %s)", NGD_ERR_GRAPH_SHAPE, "[D] or [1]"},
        {"input %x : f32[2,3]\n%y, %s = npu.swiglu_quant(%x)", NGD_ERR_GRAPH_SHAPE, "does not divide by 2"},
        {"input %x : f32[2,64]\ninput %w : i8[7,64]\ninput %s : f32[7]\n%y = npu.weight_quant_batchmatmul(%x, %w, %s)",
         NGD_ERR_GRAPH_SHAPE, "it must be [K,N]"},
        {"input %x : f32[2,60]\ninput %w : i32[8,7]\ninput %s : f32[7]\n%y = npu.weight_quant_batchmatmul(%x, %w, %s)",
         NGD_ERR_GRAPH_SHAPE, "[K/8,N] or [K,N/8]"},
        {"input %x : f32[2,64]\ninput %w : i8[64,7]\ninput %s : f32[7]\ninput %o : i8[7]\n"
         "%y = npu.weight_quant_batchmatmul(%x, %w, %s, %o)",
         NGD_ERR_GRAPH_DTYPE, "antiquant_offset %o"},
        {"input %x : f32[2,64]\ninput %w : f32[64,7]\ninput %s : f32[7]\n%y = npu.weight_quant_batchmatmul(%x, %w, %s)",
         NGD_ERR_GRAPH_DTYPE, "must be i8, i32, u8 or f8_e4m3fn"},
        {F4("[2,64]", "u8[32,7]", "u8[7]", ""), NGD_ERR_GRAPH_ATTRIBUTE, "antiquant_group_size must be 32"},
        {F4("[2,64]", "u8[64,7]", "u8[2,7]", "antiquant_group_size=32"), NGD_ERR_GRAPH_SHAPE, "[K/2,N]"},
        {F4("[2,65]", "u8[32,7]", "u8[3,7]", "antiquant_group_size=32"), NGD_ERR_GRAPH_SHAPE, "[K/2,N]"},
        {F4("[2,64]", "u8[32,7]", "f32[2,7]", "antiquant_group_size=32"), NGD_ERR_GRAPH_DTYPE, "antiquant_scale %s"},
        {F4("[2,64]", "u8[32,7]", "u8[3,7]", "antiquant_group_size=32"), NGD_ERR_GRAPH_SHAPE, "antiquant_scale %s"},
        {F4("[2,64]", "u8[32,7]", "u8[2,1]", "antiquant_group_size=32, antiquant_group_columns=7"),
         NGD_ERR_GRAPH_ATTRIBUTE, "antiquant_group_columns must be 1"},
        {"input %x : f32[2,64]\ninput %w : f8_e4m3fn[64,7]\ninput %s : f32[7]\n"
         "%y = npu.weight_quant_batchmatmul(%x, %w, %s, %s)",
         NGD_ERR_GRAPH_ARITY, "a weight of f8_e4m3fn has an antiquant_scale alone"},
        {"input %x : f32[2,64]\ninput %w : i8[64,7]\ninput %s : f8_e4m3fn[7]\n"
         "%y = npu.weight_quant_batchmatmul(%x, %w, %s)",
         NGD_ERR_GRAPH_DTYPE, "antiquant_scale %s"},
        {"input %x : f8_e4m3fn[2,64]\ninput %w : i8[64,7]\ninput %s : f32[7]\n"
         "%y = npu.weight_quant_batchmatmul(%x, %w, %s)",
         NGD_ERR_GRAPH_DTYPE, "operand %x is f8_e4m3fn"},
        {"input %x : f8_e4m3fn[2,64]\n%y = aten.neg(%x)", NGD_ERR_GRAPH_DTYPE, "operand %x is f8_e4m3fn"},
        {"input %x : f8_e4m3fn[2,64]\n%y = aten.clone(%x)", NGD_ERR_GRAPH_DTYPE, "operand %x is f8_e4m3fn"},
        {"input %x : f32[2,64]\n%y = aten._to_copy(%x) {dtype=f8_e4m3fn}", NGD_ERR_GRAPH_ATTRIBUTE,
         "which no operator computes"},
        {"input %x : f32[2,64]\ninput %w : i8[64,7]\ninput %s : f32[2,7]\n%y = npu.weight_quant_batchmatmul(%x, %w, "
         "%s) {antiquant_group_size=32, antiquant_group_columns=4}",
         NGD_ERR_GRAPH_SHAPE, "[ceil(K/antiquant_group_size),ceil(N/antiquant_group_columns)]"},
        {"input %x : f32[2,64]\ninput %w : i8[64,7]\ninput %s : f32[7]\n%y = npu.weight_quant_batchmatmul(%x, %w, "
         "%s) {antiquant_group_columns=4}",
         NGD_ERR_GRAPH_ATTRIBUTE, "antiquant_group_columns must be 1"},
        {"input %x : f32[2,64]\ninput %w : i8[64,7]\ninput %s : f32[3,7]\n%y = npu.weight_quant_batchmatmul(%x, %w, "
         "%s) "
         "{antiquant_group_size=32}",
         NGD_ERR_GRAPH_SHAPE, "[ceil(K/antiquant_group_size),N]"},
        {"input %x : f32[2,64]\ninput %w : i8[64,7]\ninput %s : f32[4,7]\n%y = npu.weight_quant_batchmatmul(%x, %w, "
         "%s) "
         "{antiquant_group_size=24}",
         NGD_ERR_GRAPH_ATTRIBUTE, "multiple of 16"},
        {"input %x : f32[2,64]\ninput %w : i32[8,7]\ninput %s : f32[4,7]\n%y = npu.weight_quant_batchmatmul(%x, %w, "
         "%s) "
         "{antiquant_group_size=16}",
         NGD_ERR_GRAPH_ATTRIBUTE, "multiple of 32"},
        {"input %x : f32[2,64]\ninput %w : i8[64,7]\ninput %s : f32[7]\n%y = npu.weight_quant_batchmatmul(%x, %w, %s, "
         "none, %s)",
         NGD_ERR_GRAPH_ARITY, "must be none"},
#define BLOCKS(s, behind, attrs)                                                                                       \
    "input %x : f32[2,512]\ninput %w : i8[512,7]\ninput %s : " s "\ninput %b : f16[2,7]\n"                             \
    "%y = npu.weight_quant_batchmatmul(%x, %w, %s, none, none, none, none, " behind ") {antiquant_group_size=32" attrs \
    "}"
        {BLOCKS("i8[16,7]", "%b", ""), NGD_ERR_GRAPH_ATTRIBUTE, "antiquant_block_size is for"},
        {BLOCKS("f32[16,7]", "none", ", antiquant_block_size=256"), NGD_ERR_GRAPH_ATTRIBUTE,
         "antiquant_block_size is for"},
        {BLOCKS("f32[16,7]", "%b", ", antiquant_block_size=256"), NGD_ERR_GRAPH_DTYPE, "antiquant_scale %s"},
        {BLOCKS("i8[16,7]", "%b", ", antiquant_block_size=240"), NGD_ERR_GRAPH_ATTRIBUTE,
         "multiple of antiquant_group_size"},
        {BLOCKS("i8[16,7]", "%b", ", antiquant_block_size=128"), NGD_ERR_GRAPH_SHAPE,
         "[ceil(K/antiquant_block_size),N]"},
        {BLOCKS("i8[16,7]", "%b", ", antiquant_block_size=256, antiquant_group_columns=7"), NGD_ERR_GRAPH_ATTRIBUTE,
         "antiquant_group_columns must be 1 with antiquant_block_size"},
        {BLOCKS("i8[16,7]", "%b, none, %b", ", antiquant_block_size=256"), NGD_ERR_GRAPH_ARITY,
         "antiquant_block_minimum needs antiquant_minimum"},
        {BLOCKS("i8[16,7]", "%b, %s", ", antiquant_block_size=256"), NGD_ERR_GRAPH_DTYPE, "antiquant_minimum %s"},
        {BLOCKS("i8[16,7]", "%b, %b, %b", ", antiquant_block_size=256"), NGD_ERR_GRAPH_DTYPE, "antiquant_minimum %b"},
        {BLOCKS("i8[15,7]", "%b", ", antiquant_block_size=256"), NGD_ERR_GRAPH_SHAPE,
         "[ceil(K/antiquant_group_size),N]"},
        {BLOCKS("f32[16,7]", "none", ", antiquant_zero=256"), NGD_ERR_GRAPH_ATTRIBUTE, "antiquant_zero"},
        {F4("[2,64]", "u8[32,7]", "u8[2,7]", "antiquant_group_size=32, antiquant_zero=1"), NGD_ERR_GRAPH_ARITY,
         "a weight of u8 has an antiquant_scale alone"},
#define I8_OPERANDS "input %x : i8[2,64]\ninput %w : i8[64,7]\ninput %s : f32[7]\ninput %r : f32[2]\n"
        {I8_OPERANDS "%y = npu.quant_matmul(%r, %w, %s) {output_dtype=f32}", NGD_ERR_GRAPH_DTYPE, "x1 %r"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %x, %s) {output_dtype=f32}", NGD_ERR_GRAPH_SHAPE, "[K,N]"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %w, %r) {output_dtype=f32}", NGD_ERR_GRAPH_SHAPE, "[1] or [N]"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %w, %w) {output_dtype=f32}", NGD_ERR_GRAPH_DTYPE,
         "must be f32 or bf16"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %w, %s, %s) {output_dtype=f32}", NGD_ERR_GRAPH_ARITY, "npu.quantize"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %w, %s, none, %s) {output_dtype=f32}", NGD_ERR_GRAPH_SHAPE, "[M]"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %w, %s, none, %r, %r) {output_dtype=f32}", NGD_ERR_GRAPH_SHAPE, "[N]"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %w, %s, none, %r, %w) {output_dtype=f32}", NGD_ERR_GRAPH_DTYPE,
         "i32 or a float"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %w, %s) {output_dtype=i8}", NGD_ERR_GRAPH_ATTRIBUTE, "bf16 or i32"},
        {I8_OPERANDS "%y = npu.quant_matmul(%x, %w, %s, none, %r) {output_dtype=i32}", NGD_ERR_GRAPH_ARITY,
         "no pertoken_scale"},
        {I8_OPERANDS
         "%v = aten.view(%x) {size=[1,2,64]}\n%y = npu.quant_matmul(%v, %w, %s, none, %r) {output_dtype=f32}",
         NGD_ERR_GRAPH_RANK, "must be [M,K]"},
        {"input %x : f32[2,3,4]\ninput %w : f32[2,5,6]\n%y = npu.transpose_batchmatmul(%x, %w)", NGD_ERR_GRAPH_SHAPE,
         "must make [B,M,K] and [B,K,N]"},
        {"input %x : f32[4]\ninput %y : f32[3]\n%z = aten.mul.Tensor(%x, %y)", NGD_ERR_GRAPH_SHAPE, "do not broadcast"},
        {"sym B 1..4\nsym C 1..4\ninput %x : f32[B]\ninput %y : f32[C]\n%z = aten.mul.Tensor(%x, %y)",
         NGD_ERR_GRAPH_SHAPE, "B in one and C in the other"},
        {"input %x : f32[4,6]\n%y = aten.view(%x) {size=[5, -1]}", NGD_ERR_GRAPH_SHAPE, "24 elements|multiply to 5"},
        {"input %x : f32[4,6]\n%y = aten.view(%x) {size=[5, 5]}", NGD_ERR_GRAPH_SHAPE, "24 elements|25"},
        {"sym T 1..9\ninput %x : f32[T,6]\n%y = aten.view(%x) {size=[4, -1]}", NGD_ERR_GRAPH_SHAPE, "T*6 elements"},
        {"input %x : f32[0,6]\n%y = aten.view(%x) {size=[0, -1]}", NGD_ERR_GRAPH_SHAPE, "cannot be inferred"},
        {"sym T 0..9\ninput %x : f32[T]\n%y = aten.amax(%x)", NGD_ERR_GRAPH_SHAPE, "may be 0"},
        {"sym T 0..9\ninput %x : f32[T]\n%y = aten.max(%x)", NGD_ERR_GRAPH_SHAPE, "may be 0"},
        {"input %x : bool[3]\n%y = aten.min(%x)", NGD_ERR_GRAPH_DTYPE, "operand %x is bool"},
        {"input %x : i32[3]\n%y = aten.mean(%x)", NGD_ERR_GRAPH_DTYPE, "operand %x is i32"},
        {"input %x : f32[3]\n%y = aten.sum(%x) {dtype=i64}", NGD_ERR_GRAPH_ATTRIBUTE, "dtype is i64"},
        {"input %x : f32[3]\n%y = aten.any.dim(%x) {dim=1}", NGD_ERR_GRAPH_ATTRIBUTE, "dim"},
        {"input %x : f32[3,4]\n%y = aten.all.dims(%x) {dim=[1,-1]}", NGD_ERR_GRAPH_ATTRIBUTE, "dimension 1 twice"},
        {"input %q : f32[2,4,3,8]\ninput %k : f16[2,4,3,8]\n%y = aten.scaled_dot_product_attention(%q, %k, %k)",
         NGD_ERR_GRAPH_DTYPE, "key %k is f16"},
        {"input %q : f32[2,4,3,8]\ninput %k : f32[2,2,3,8]\n%y = aten.scaled_dot_product_attention(%q, %k, %k)",
         NGD_ERR_GRAPH_SHAPE, "key %k is f32[2,2,3,8]|dimension 1 must be equal, or enable_gqa true"},
        {"input %q : f32[2,4,3,8]\ninput %k : f32[1,4,3,8]\n%y = aten.scaled_dot_product_attention(%q, %q, %k)",
         NGD_ERR_GRAPH_SHAPE, "value %k is|dimension 0 must be equal"},
        {"input %q : f32[2,4,3,8]\ninput %k : f32[4,3,8]\n%y = aten.scaled_dot_product_attention(%q, %k, %k)",
         NGD_ERR_GRAPH_SHAPE, "same number of dimensions"},
        {"input %q : f32[2,4,3,8]\ninput %k : f32[2,4,3,9]\n%y = aten.scaled_dot_product_attention(%q, %k, %k)",
         NGD_ERR_GRAPH_SHAPE, "key must have query's last dimension"},
        {"input %q : f32[2,4,3,8]\ninput %k : f32[2,4,5,8]\n%y = aten.scaled_dot_product_attention(%q, %q, %k)",
         NGD_ERR_GRAPH_SHAPE, "as many rows as value"},
        {"input %q : f32[2,4,3,8]\ninput %k : f32[2,3,3,8]\n%y = aten.scaled_dot_product_attention(%q, %k, %k) "
         "{enable_gqa=true}",
         NGD_ERR_GRAPH_SHAPE, "a multiple of it"},
        {"input %q : f32[2,4,3,8]\ninput %m : bool[3,4]\n%y = aten.scaled_dot_product_attention(%q, %q, %q, %m)",
         NGD_ERR_GRAPH_SHAPE, "3"},
        {"input %q : f32[2,4,3,8]\ninput %m : bool[2,2,4,3,3]\n%y = aten.scaled_dot_product_attention(%q, %q, %q, %m)",
         NGD_ERR_GRAPH_SHAPE, "attn_mask %m is bool[2,2,4,3,3]|bool[2,4,3,3]"},
        {"input %q : f32[2,4,3,8]\ninput %m : f16[3,3]\n%y = aten.scaled_dot_product_attention(%q, %q, %q, %m)",
         NGD_ERR_GRAPH_DTYPE, "attn_mask %m is f16"},
        {"input %q : f32[2,4,3,8]\ninput %m : bool[3,3]\n%y = aten.scaled_dot_product_attention(%q, %q, %q, %m) "
         "{is_causal=true}",
         NGD_ERR_GRAPH_ATTRIBUTE, "is_causal is true, but attn_mask %m is given"},
        {"input %q : f32[2,4,3,8]\n%y = aten.scaled_dot_product_attention(%q, %q, %q) {dropout_p=0.1}",
         NGD_ERR_GRAPH_ATTRIBUTE, "dropout_p is 0.1|model.eval()"},
        {"input %q : f32[2,4,3,8]\n%y = aten.scaled_dot_product_attention(%q, %q, %q) {scale=-inf}",
         NGD_ERR_GRAPH_ATTRIBUTE, "scale is -inf"},
        {"input %q : f32[3,8]\n%y = aten.scaled_dot_product_attention(%q, %q, %q) {enable_gqa=true}",
         NGD_ERR_GRAPH_SHAPE, "no dimension of heads"},
        {"input %q : f32[3,0]\n%y = aten.scaled_dot_product_attention(%q, %q, %q)", NGD_ERR_GRAPH_SHAPE, "may be 0"},
        {"input %q : i32[3,8]\n%y = aten.scaled_dot_product_attention(%q, %q, %q)", NGD_ERR_GRAPH_DTYPE,
         "query %q is i32"},
        {"input %q : f32[1,2,3,4,8]\n%y = aten.scaled_dot_product_attention(%q, %q, %q)", NGD_ERR_GRAPH_RANK,
         "view it so"},
        {"input %x : i32[3]\n%y = aten.remainder.Scalar(%x) {other=0}", NGD_ERR_GRAPH_ATTRIBUTE,
         "other is 0|integers of %x"},
        {"input %x : u8[3]\n%y = aten.floor_divide.Scalar(%x) {other=1.5}", NGD_ERR_GRAPH_ATTRIBUTE, "whole number"},
        {"input %x : bool[3]\n%y = aten.floor_divide(%x, %x)", NGD_ERR_GRAPH_DTYPE, "operand %x is bool"},
        {"input %x : f32[3]\n%y = aten.div.Tensor_mode(%x, %x) {rounding_mode=\"ceil\"}", NGD_ERR_GRAPH_ATTRIBUTE,
         "rounding_mode is \"ceil\"|floor|aten.div.Tensor"},
        {"input %x : i64[3]\n%y = aten.div.Scalar_mode(%x) {other=0, rounding_mode=\"trunc\"}", NGD_ERR_GRAPH_ATTRIBUTE,
         "other is 0"},
        {"input %x : bf16[3]\n%y = aten.softmax.int(%x) {dim=0, dtype=f16}", NGD_ERR_GRAPH_ATTRIBUTE,
         "dtype is f16, but must be f32 or bf16"},
        {"input %x : i64[3]\n%y = aten.softmax.int(%x) {dim=0, dtype=f32}", NGD_ERR_GRAPH_DTYPE, "operand %x is i64"},
        {"input %x : f32[3]\ninput %z : f32[4]\n%y = aten.stack(%x, %z)", NGD_ERR_GRAPH_SHAPE,
         "operand %z is f32[4]|of the first one's shape"},
        {"input %x : f32[3]\ninput %z : f16[3]\n%y = aten.stack(%x, %z)", NGD_ERR_GRAPH_DTYPE, "operand %z is f16"},
        {"input %x : f32[3]\n%y = aten.stack(%x, %x) {dim=2}", NGD_ERR_GRAPH_ATTRIBUTE, "dim"},
        {"input %x : f32[1,1,1,1,1,1,1,1]\n%y = aten.stack(%x)", NGD_ERR_GRAPH_RANK, "9"},
        {"input %x : f32[3,4]\n%y = aten.repeat(%x) {repeats=[2]}", NGD_ERR_GRAPH_ATTRIBUTE,
         "repeats has 1 numbers, but %x has 2 dimensions"},
        {"input %x : f32[3]\n%y = aten.repeat(%x) {repeats=[1,1,1,1,1,1,1,1,2]}", NGD_ERR_GRAPH_ATTRIBUTE, "at most 8"},
        {"input %x : f32[3]\n%y = aten.repeat(%x) {repeats=[-1]}", NGD_ERR_GRAPH_ATTRIBUTE,
         "-1, which may be negative"},
        {"input %x : f32[9223372036854775807]\n%y = aten.repeat(%x) {repeats=[3]}", NGD_ERR_OVERFLOW, ""},
        {"input %x : i32[3]\n%y = aten.var.correction(%x)", NGD_ERR_GRAPH_DTYPE, "operand %x is i32"},
        {"input %x : f32[3]\n%y = aten.var.correction(%x) {correction=inf}", NGD_ERR_GRAPH_ATTRIBUTE,
         "correction is inf"},
        {"input %x : f32[3,4]\n%y = aten.any.dims(%x) {dim=[]}", NGD_ERR_GRAPH_ATTRIBUTE,
         "dim is empty|the operator without .dims"},
        {"sym T 1..9\ninput %x : f32[T]\n%y = aten.select.int(%x) {dim=0, index=3}", NGD_ERR_GRAPH_SHAPE, "index, 3"},
        {"sym T 1..9\ninput %x : f32[T]\n%y = aten.slice.Tensor(%x) {start=T - 4}", NGD_ERR_GRAPH_SHAPE,
         "start, T - 4|no known sign"},
        {"sym T 1..9\ninput %x : f32[T]\n%y = aten.squeeze.dim(%x) {dim=0}", NGD_ERR_GRAPH_SHAPE, "may be 1 or not"},
        {"sym T 1..9\ninput %x : f32[3,T]\n%y = aten.squeeze.dims(%x) {dim=[0, 1]}", NGD_ERR_GRAPH_SHAPE,
         "may be 1 or not"},
        {"input %x : f32[3,1]\n%y = aten.squeeze.dims(%x) {dim=[-1, 1]}", NGD_ERR_GRAPH_ATTRIBUTE, "dimension 1 twice"},
        {"input %x : f32[9]\n%a, %b = aten.split.Tensor(%x) {split_size=4}", NGD_ERR_GRAPH_SHAPE,
         "it has 2 results|dimension 0 of %x, 9, does not have that many parts of 4"},
        {"input %x : f32[9]\n%a, %b, %c, %d = aten.split.Tensor(%x) {split_size=4}", NGD_ERR_GRAPH_SHAPE, "4 results"},
        {"input %x : f32[9]\n%a = aten.split.Tensor(%x) {split_size=0}", NGD_ERR_GRAPH_SHAPE, "parts of 0"},
        {"input %x : f32[9]\n%a = aten.split.Tensor(%x) {split_size=-9}", NGD_ERR_GRAPH_SHAPE, "parts of -9"},
        {"input %x : f32[9]\naten.split.Tensor(%x) {split_size=9}", NGD_ERR_GRAPH_SHAPE, "it has 0 results"},
        {"sym T 1..9\ninput %x : f32[T]\n%a, %b = aten.split.Tensor(%x) {split_size=4}", NGD_ERR_GRAPH_SHAPE,
         "T, does not have that many parts of 4 for all symbol values"},
        {"input %x : f32[2,9]\n%a, %b = aten.unbind.int(%x) {dim=1}", NGD_ERR_GRAPH_SHAPE,
         "9, does not have that many parts"},
        {"input %x : f32[]\n%a = aten.unbind.int(%x)", NGD_ERR_GRAPH_SHAPE, "the tensor has none"},
        {"sym T 1..9\ninput %x : f32[T - 4]", NGD_ERR_GRAPH_SHAPE, "as low as -3"},
        {"input %x : f32[4,4]\n%y = aten.linear(%x, %x) : f32[4,5]", NGD_ERR_GRAPH_TYPE_MISMATCH,
         "line 4, column 28|f32[4,5]|f32[4,4]"},
        {"input %x : f32[4,4]\n%y = aten.linear(%x, %x) : f16[4,4]", NGD_ERR_GRAPH_TYPE_MISMATCH, "f16"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(ranks_above_eight_are_refused_where_they_arise)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[1,1,1,1,1,1,1,1,1]", NGD_ERR_GRAPH_RANK, "line 3|at most 8"},
        {"input %x : f32[1,1,1,1,1,1,1,1]\n%y = aten.unsqueeze(%x) {dim=0}", NGD_ERR_GRAPH_RANK, "%y|rank 9"},
        {"input %x : f32[1]\n%y = aten.view(%x) {size=[1,1,1,1,1,1,1,1,1]}", NGD_ERR_GRAPH_RANK, "9 elements"},
        {"input %x : f32[1]\n%y = aten.expand(%x) {size=[1,1,1,1,1,1,1,1,1]}", NGD_ERR_GRAPH_RANK, "9 elements"},
        {"param %w : f32[4,4]\ninput %x : i32[1,1,1,1,1,1,1,1]\n%y = aten.embedding(%w, %x)", NGD_ERR_GRAPH_RANK,
         "rank 9"},
        {"input %x : f32[1,1,1,1,1]\ninput %i : i64[1,1,1,1,1]\n%y = aten.index.Tensor(%x, %i)", NGD_ERR_GRAPH_RANK,
         "rank 9"},
        {"%y = aten.full() {size=[1,1,1,1,1,1,1,1,1], fill_value=0}", NGD_ERR_GRAPH_RANK, "rank 9"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(sizes_that_overflow_are_refused)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[9223372036854775807]", NGD_ERR_OVERFLOW, "2^46 bytes"},
        {"input %x : f32[9223372036854775808]", NGD_ERR_OVERFLOW, "does not fit 64 bits"},
        {"input %x : f32[1180591620717411303424]", NGD_ERR_OVERFLOW, "64 bits"}, /* 2^70 */
        {"input %x : f32[65536,65536,65536]", NGD_ERR_OVERFLOW, "2^46"},
        {"input %x : f32[4294967296,4294967296,4294967296,0]", NGD_ERR_OVERFLOW, "2^46"},
        {"sym B 1..2147483647\ninput %x : f32[B,B]", NGD_ERR_OVERFLOW, "f32[B,B]|maxima"},
        {"sym B 1..2147483647\ninput %x : f32[B*B*B]", NGD_ERR_OVERFLOW, "overflows 64 bits"},
        {"input %x : f32[4611686018427387904 * 4]", NGD_ERR_OVERFLOW, "overflows"},
        {"sym B 1..4 buckets 4, 2147483647\ninput %x : f32[B,65536]", NGD_ERR_OVERFLOW, "2^46"},
        {"%y = aten.full() {size=[2147483647,2147483647], fill_value=1}", NGD_ERR_OVERFLOW, "2^46"},
        {"%y = aten.full() {size=[4], fill_value=1e400}", NGD_ERR_OVERFLOW, "too large for a float|inf"},
        {"%y = aten.full() {size=[4], fill_value=18446744073709551615}", NGD_ERR_OVERFLOW, "64 bits|decimal point"},
        {"%y = aten.full() {size=[4], fill_value=-9223372036854775809}", NGD_ERR_OVERFLOW, "64 bits"},
        {"%y = aten.arange.start_step() {end=9223372036854775807}", NGD_ERR_OVERFLOW, "2^46"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(what_cannot_be_captured_is_refused_with_a_way_out)
{
    static const struct refusal refusals[] = {
        {"%r = aten.rand() {size=[4]}", NGD_ERR_GRAPH_RANDOM, "node %r (aten.rand, line 3)|pass them as an input"},
        {"input %x : f32[4]\n%r, %m = aten.native_dropout(%x, 0.5, true)", NGD_ERR_GRAPH_RANDOM, "seed and offset"},
        {"input %x : f32[4]\n%i = aten.multinomial(%x)", NGD_ERR_GRAPH_RANDOM, "top_k_top_p_sample"},
        {"input %x : f32[]\n%i = aten._local_scalar_dense(%x)", NGD_ERR_GRAPH_SYNC, "%i|host wait|as an output"},
        {"input %x : f32[4]\n%i = aten.equal(%x, %x)", NGD_ERR_GRAPH_SYNC, "host"},
        {"input %x : f32[4]\n%i = aten.nonzero(%x)", NGD_ERR_GRAPH_DATA_DEPENDENT,
         "%i|depends on data|aten.where.self"},
        {"input %x : f32[4]\n%i = aten.masked_select(%x, %x)", NGD_ERR_GRAPH_DATA_DEPENDENT, "elements under a mask"},
        {"input %x : bool[]\n%i = higher_order.cond(%x)", NGD_ERR_GRAPH_DATA_DEPENDENT, "branch chosen by data"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(symbols_are_known_used_and_bounded)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[B]", NGD_ERR_GRAPH_SYMBOL, "symbol B is not declared|sym B min..max"},
        {"sym B 1..4\ninput %x : f32[4]\nreturn %x", NGD_ERR_GRAPH_SYMBOL, "no type, no attribute and no guard"},
        {"sym B 4..1", NGD_ERR_GRAPH_SYMBOL, "4..1|0 <= min <= max"},
        {"sym B 1..2147483648", NGD_ERR_GRAPH_SYMBOL, "2147483647"},
        {"sym min 1..4", NGD_ERR_GRAPH_SYMBOL, "\"min\" cannot name a symbol"},
        {"sym a.b 1..4", NGD_ERR_GRAPH_SYMBOL, "cannot name a symbol"},
        {"sym B 1..4 buckets 4, 2", NGD_ERR_GRAPH_SYMBOL, "bucket 2 is out of order"},
        {"sym B 1..4 buckets 1, 2", NGD_ERR_GRAPH_SYMBOL, "last bucket, 2, is below"},
        {"sym B 1..4 buckets 0, 4", NGD_ERR_GRAPH_SYMBOL, "bucket 0"},
        {"sym B 0..4\ninput %x : f32[floordiv(8, B)]", NGD_ERR_GRAPH_SYMBOL, "divisor can be 0|max(divisor, 1)"},
        {"sym B 0..4\ninput %x : f32[mod(8, 0)]", NGD_ERR_GRAPH_SYMBOL, "divisor can be 0"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(only_states_and_their_aliases_are_written)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[4]\naten.copy_(%x, %x)", NGD_ERR_GRAPH_MUTATION, "%x, which is declared `input`|`state`"},
        {"param %x : f32[4]\naten.copy_(%x, %x)", NGD_ERR_GRAPH_MUTATION, "declared `param`"},
        {"state %s : f32[4]\n%y = aten.neg(%s)\naten.copy_(%y, %s)", NGD_ERR_GRAPH_MUTATION, "%y|aten.neg may copy"},
        {"state %s : f32[4,6]\n%t = aten.t(%s)\n%v = aten.view(%t) {size=[24]}\ninput %x : f32[24]\naten.copy_(%v, %x)",
         NGD_ERR_GRAPH_MUTATION, "aten.view may copy"},
        {"state %s : f32[1,6]\n%e = aten.expand(%s) {size=[4, 6]}\naten.copy_(%e, %e)", NGD_ERR_GRAPH_MUTATION,
         "aten.expand"},
        {"state %s : f32[4,6]\n%c = aten.slice.Tensor(%s) {dim=1, end=3}\n%v = aten.view(%c) {size=[12]}\n"
         "input %x : f32[12]\naten.copy_(%v, %x)",
         NGD_ERR_GRAPH_MUTATION, "aten.view may copy"},
    };
    static const char *const fine[] = {
        "state %s : f32[4,6]\ninput %x : f32[4,6]\naten.copy_(%s, %x)",
        "state %s : f32[4,6]\ninput %x : f32[6,4]\n%t = aten.t(%s)\naten.copy_(%t, %x)",
        "state %s : f32[4,6]\ninput %x : f32[4,3]\n%t = aten.slice.Tensor(%s) {dim=1, start=3}\naten.copy_(%t, %x)",
        "state %s : f32[4,6]\ninput %x : f32[12]\n%t = aten.slice.Tensor(%s) {dim=0, start=2}\n"
        "%v = aten.view(%t) {size=[-1]}\naten.copy_(%v, %x)",
        "state %s : f32[4,6]\ninput %x : f32[6]\n%t = aten.select.int(%s) {dim=0, index=-1}\naten.copy_(%t, %x)",
        "state %s : f32[4,1,6]\ninput %x : f32[4,6]\n%a = aten.alias(%s)\n%b = aten.squeeze.dims(%a) {dim=[1]}\n"
        "aten.copy_(%b, %x)",
        "state %s : f32[4,6]\ninput %x : f32[4,2]\n%a, %b = aten.split.Tensor(%s) {split_size=4, "
        "dim=1}\naten.copy_(%b, %x)",
        "state %s : f32[2,6]\ninput %x : f32[3,2]\n%a, %b = aten.unbind.int(%s)\n%v = aten._unsafe_view(%b) {size=[3, "
        "2]}\n"
        "aten.copy_(%v, %x)",
        "state %s : f32[4,6]\ninput %x : f32[4,2]\n%a, %b = aten.split_with_sizes(%s) {split_sizes=[4, 2], dim=1}\n"
        "aten.copy_(%b, %x)",
    };

    CHECK_REFUSALS(refusals);
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
        ngd_graph_unref(parse_body(fine[i]));
}
END_TEST

START_TEST(a_graph_without_effect_is_refused)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[4]\n%y = aten.neg(%x)", NGD_ERR_INVALID_ARGUMENT, "no output|return"},
        {"", NGD_ERR_INVALID_ARGUMENT, "no output"},
        {"host %n : i64[]\nreturn %n", NGD_ERR_INVALID_ARGUMENT, "host parameter"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(attention_names_what_does_not_fit)
{
#define ATTENTION(cache, table, lens, attrs)                                                       \
    "state %kc : bf16[32,16,2,8]\nstate %vc : " cache "\ninput %q : f32[4,4,8]\ninput %t : " table \
    "\nhost %ql : i64[2]\nhost %kl : " lens                                                        \
    "\n%o = npu.fused_infer_attention_score(%q, %kc, %vc, %t, %ql, %kl) {scale=0.35, " attrs "}\nreturn %o"
    static const struct refusal refusals[] = {
        {ATTENTION("bf16[32,16,2,4]", "i32[2,8]", "i64[2]", "num_heads=4, num_key_value_heads=2, block_size=16"),
         NGD_ERR_GRAPH_SHAPE, "value_cache %vc|bf16[32,16,2,8]"},
        {ATTENTION("f32[32,16,2,8]", "i32[2,8]", "i64[2]", "num_heads=4, num_key_value_heads=2, block_size=16"),
         NGD_ERR_GRAPH_DTYPE, "value_cache %vc"},
        {ATTENTION("bf16[32,16,2,8]", "i64[2,8]", "i64[2]", "num_heads=4, num_key_value_heads=2, block_size=16"),
         NGD_ERR_GRAPH_DTYPE, "block_table %t is i64|i32"},
        {ATTENTION("bf16[32,16,2,8]", "i32[2,8]", "i64[3]", "num_heads=4, num_key_value_heads=2, block_size=16"),
         NGD_ERR_GRAPH_SHAPE, "actual_seq_lengths_kv %kl"},
        {ATTENTION("bf16[32,16,2,8]", "i32[2,8]", "i64[2]", "num_heads=8, num_key_value_heads=2, block_size=16"),
         NGD_ERR_GRAPH_SHAPE, "num_heads is 8"},
#define WINDOW(attrs) \
    ATTENTION("bf16[32,16,2,8]", "i32[2,8]", "i64[2]", "num_heads=4, num_key_value_heads=2, block_size=16, " attrs)
        {WINDOW("sparse_mode=2"), NGD_ERR_GRAPH_ATTRIBUTE, "sparse_mode is 2"},
        {WINDOW("sparse_mode=4, pre_tokens=5"), NGD_ERR_GRAPH_ATTRIBUTE, "next_tokens is 2147483647|must be 0"},
        {WINDOW("sparse_mode=4, pre_tokens=-1, next_tokens=0"), NGD_ERR_GRAPH_ATTRIBUTE, "pre_tokens is -1"},
        {WINDOW("soft_cap=-1.0"), NGD_ERR_GRAPH_ATTRIBUTE, "soft_cap is -1"},
        {WINDOW("soft_cap=inf"), NGD_ERR_GRAPH_ATTRIBUTE, "soft_cap is inf"},
        {ATTENTION("bf16[32,16,2,8]", "i32[2,8]", "i64[2]", "num_heads=4, num_key_value_heads=3, block_size=16"),
         NGD_ERR_GRAPH_ATTRIBUTE, "no multiple"},
        {ATTENTION("bf16[32,16,2,8]", "i32[2,8]", "i64[2]", "num_heads=4, num_key_value_heads=1, block_size=16"),
         NGD_ERR_GRAPH_SHAPE, "key_cache %kc|[NB,BS,1,8]"},
        {ATTENTION("bf16[32,16,2,8]", "i32[2,8]", "i64[2]", "num_heads=4, num_key_value_heads=2, block_size=8"),
         NGD_ERR_GRAPH_SHAPE, "block_size is 8"},
        {ATTENTION("bf16[32,16,2,8]", "i32[2,8]", "i64[2]",
                   "num_heads=4, num_key_value_heads=2, block_size=16, input_layout=\"BSND\""),
         NGD_ERR_GRAPH_ATTRIBUTE, "TND"},
    };
    struct ngd_graph *g = parse_body(
        ATTENTION("bf16[32,16,2,8]", "i32[2,8]", "i64[2]", "num_heads=4, num_key_value_heads=2, block_size=16"));

    ck_assert_str_eq(type_of(g, "o"), "f32[4,4,8]");
    ngd_graph_unref(g);
    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(attention_over_a_latent_names_what_does_not_fit)
{
#define LATENT(query_rope, key_rope, operands)                                                                  \
    "state %kc : bf16[32,16,1,8]\nstate %kr : " key_rope "\ninput %q : f32[4,4,8]\ninput %qr : " query_rope     \
    "\ninput %t : i32[2,8]\nhost %ql : i64[2]\nhost %kl : i64[2]\n"                                             \
    "%o = npu.fused_infer_attention_score(%q, %kc, %kc, %t, %ql, %kl, " operands ") {scale=0.35, num_heads=4, " \
    "num_key_value_heads=1, block_size=16}\nreturn %o"
    static const struct refusal refusals[] = {
        {LATENT("f32[4,4,6]", "bf16[32,16,1,6]", "%qr"), NGD_ERR_GRAPH_SHAPE,
         "query_rope and key_rope belong together"},
        {LATENT("f32[4,4,6]", "bf16[32,16,1,6]", "none, %kr"), NGD_ERR_GRAPH_SHAPE, "belong together"},
        {LATENT("bf16[4,4,6]", "bf16[32,16,1,6]", "%qr, %kr"), NGD_ERR_GRAPH_DTYPE, "query_rope %qr is bf16|f32"},
        {LATENT("f32[4,24]", "bf16[32,16,1,6]", "%qr, %kr"), NGD_ERR_GRAPH_SHAPE, "query_rope %qr|[T,H,R]"},
        {LATENT("f32[4,2,6]", "bf16[32,16,1,6]", "%qr, %kr"), NGD_ERR_GRAPH_SHAPE, "query_rope %qr|f32[4,4,6]"},
        {LATENT("f32[4,4,6]", "f32[32,16,1,6]", "%qr, %kr"), NGD_ERR_GRAPH_DTYPE, "key_rope %kr is f32|bf16"},
        {LATENT("f32[4,4,6]", "bf16[32,16,1,8]", "%qr, %kr"), NGD_ERR_GRAPH_SHAPE, "key_rope %kr|bf16[32,16,1,6]"},
        {LATENT("f32[4,4,6]", "bf16[16,32,1,6]", "%qr, %kr"), NGD_ERR_GRAPH_SHAPE, "key_rope %kr|bf16[32,16,1,6]"},
    };

    CHECK_REFUSALS(refusals);
    ngd_graph_unref(parse_body(LATENT("f32[4,4,6]", "bf16[32,16,1,6]", "%qr, %kr")));
    ngd_graph_unref(parse_body(LATENT("f32[4,4,6]", "bf16[32,16,1,6]", "none, none")));
}
END_TEST

START_TEST(cache_writes_name_what_does_not_fit)
{
#define WRITE(value, value_cache)                                                                        \
    "state %kc : bf16[32,16,1,8]\nstate %vc : " value_cache "\ninput %k : f32[4,1,8]\ninput %v : " value \
    "\ninput %s : i32[4]\nnpu.scatter_pa_kv_cache(%k, %v, %s, %kc, %vc)"
    static const struct refusal refusals[] = {
        {WRITE("f32[4,1,6]", "bf16[32,16,1,8]"), NGD_ERR_GRAPH_SHAPE, "value_cache %vc|bf16[32,16,1,6]"},
        {WRITE("f32[4,2,6]", "bf16[32,16,1,6]"), NGD_ERR_GRAPH_SHAPE, "value %v|f32[4,1,6]"},
        {WRITE("f32[4,6]", "bf16[32,16,1,6]"), NGD_ERR_GRAPH_SHAPE, "value %v|[T,KH,DV]"},
        {WRITE("f32[4,1,6]", "f32[32,16,1,6]"), NGD_ERR_GRAPH_DTYPE, "value_cache %vc"},
        {WRITE("f32[4,1,6]", "bf16[31,16,1,6]"), NGD_ERR_GRAPH_SHAPE, "value_cache %vc|bf16[32,16,1,6]"},
    };

    CHECK_REFUSALS(refusals);
    ngd_graph_unref(parse_body(WRITE("f32[4,1,6]", "bf16[32,16,1,6]")));
}
END_TEST

/* Scales of a quantised cache: both or none, by the cache's dtype; none of them may be given by name as `none`. */
START_TEST(caches_with_scales_name_what_does_not_fit)
{
#define SCALED(cache, scale, operands)                                                                              \
    "state %kc : " cache "[32,16,2,8]\nstate %vc : " cache "[32,16,2,8]\nstate %ks : " scale "\nstate %vs : " scale \
    "\ninput %k : f32[4,2,8]\ninput %s : i32[4]\ninput %q : f32[4,4,8]\ninput %qr : "                               \
    "f32[4,4,6]\nstate %kr : " cache "[32,16,2,6]\ninput %t : i32[2,8]\nhost %ql : i64[2]\nhost %kl : i64[2]\n"     \
    "npu.scatter_pa_kv_cache(%k, %k, %s, %kc, %vc" operands
#define READ(operands, modes)                                                                 \
    ", %ks, %vs)\n%o = npu.fused_infer_attention_score(%q, %kc, %vc, %t, %ql, %kl, " operands \
    ") {scale=0.35, num_heads=4, num_key_value_heads=2, block_size=16" modes "}\nreturn %o"
#define GOOD  "f32[32,2,16]"
#define MODES ", key_antiquant_mode=5, value_antiquant_mode=5"
    static const struct refusal refusals[] = {
        {SCALED("i8", GOOD, ")\nreturn %k"), NGD_ERR_GRAPH_DTYPE, "key_cache %kc is i8|must be given"},
        {SCALED("f8_e4m3fn", GOOD, ", none, none)\nreturn %k"), NGD_ERR_GRAPH_DTYPE, "key_cache %kc|must be given"},
        {SCALED("i8", GOOD, ", %ks)\nreturn %k"), NGD_ERR_GRAPH_DTYPE, "key_cache %kc is i8"},
        {SCALED("bf16", GOOD, ", %ks, %vs)\nreturn %k"), NGD_ERR_GRAPH_DTYPE, "only caches in i8"},
        {SCALED("i8", "f16[32,2,16]", ", %ks, %vs)\nreturn %k"), NGD_ERR_GRAPH_DTYPE, "scale of keys %ks is f16"},
        {SCALED("i8", "f32[32,16,2]", ", %ks, %vs)\nreturn %k"), NGD_ERR_GRAPH_SHAPE, "scale of keys %ks"},
        {SCALED("i32", GOOD, ", %ks, %vs)\nreturn %k"), NGD_ERR_GRAPH_DTYPE, "key_cache %kc is i32"},
        {SCALED("i8", GOOD, READ("none, none, none, %ks, %vs", "")), NGD_ERR_GRAPH_ATTRIBUTE,
         "key_antiquant_mode is 0"},
        {SCALED("i8", GOOD, READ("none, none, none, %ks, %vs", ", key_antiquant_mode=5")), NGD_ERR_GRAPH_ATTRIBUTE,
         "value_antiquant_mode is 0"},
        {SCALED("i8", GOOD, READ("none, none, none, %ks, %vs", ", key_antiquant_mode=6")), NGD_ERR_GRAPH_ATTRIBUTE,
         "key_antiquant_mode"},
        {SCALED("i8", GOOD, READ("none, none, none, %ks", MODES)), NGD_ERR_GRAPH_DTYPE, "must be given"},
        {SCALED("i8", GOOD, READ("none, none, none, none, none", "")), NGD_ERR_GRAPH_DTYPE, "must be given"},
        {SCALED("i8", GOOD, READ("%qr, %kr, none, %ks, %vs", MODES)), NGD_ERR_GRAPH_DTYPE, "must have floats"},
    };

    CHECK_REFUSALS(refusals);
    ngd_graph_unref(parse_body(SCALED("i8", GOOD, READ("none, none, none, %ks, %vs", MODES))));
    ngd_graph_unref(parse_body(SCALED("f8_e4m3fn", GOOD, READ("none, none, none, %ks, %vs", MODES))));
    ngd_graph_unref(parse_body(SCALED("bf16", GOOD, ", none, none)\nreturn %k")));
}
END_TEST

START_TEST(mixtures_of_experts_name_what_does_not_fit)
{
#define GROUPED(x, n, w, attrs)                                                   \
    "input %x : " x "\ninput %n : " n "\ninput %w : " w "\ninput %v : f32[4,3]\n" \
    "%y = npu.grouped_matmul(%x, %n, %v, %w) {" attrs "}\nreturn %y"
#define SUMS(x, s, i, attrs)                                                                                  \
    "input %x : " x "\ninput %s : " s "\ninput %i : " i "\n%y = npu.moe_finalize_routing(%x, %s, %i) {" attrs \
    "}\nreturn %y"
#define ROUTED(x, e, attrs) \
    "input %x : " x "\ninput %e : " e "\n%y, %z, %s = npu.moe_init_routing_v2(%x, %e) {" attrs "}\nreturn %y"
#define LISTS(w, more, attrs)                                                                               \
    "input %x : f32[2,64]\ninput %n : i64[2]\ninput %w : " w "\ninput %v : i8[3,64]\ninput %s : f32[3,2]\n" \
    "input %b : f32[3]\n%y = npu.grouped_matmul(%x, %n" more ") {transpose_weight=true" attrs "}\nreturn %y"
#define QUANT ", antiquant_scale=true"
#define BY_32 QUANT ", antiquant_group_size=32"
    static const struct refusal refusals[] = {
        {LISTS("i8[3,64]", ", %v, %w", ""), NGD_ERR_GRAPH_DTYPE, "weight %v"},
        {LISTS("i8[3,64]", ", %v, %w, %s", BY_32), NGD_ERR_GRAPH_ARITY, "3 operands behind group_list|2 lists"},
        {LISTS("i8[3,64]", ", %v, %w, %s, %b", BY_32), NGD_ERR_GRAPH_SHAPE, "antiquant_scale %b"},
        {LISTS("i8[4,64]", ", %v, %w, %s, %s", BY_32), NGD_ERR_GRAPH_SHAPE, "weight %w"},
        {LISTS("i32[3,8]", ", %v, %w, %s, %s", BY_32), NGD_ERR_GRAPH_DTYPE, "weight %w"},
        {LISTS("i32[3,9]", ", %w, %w, %s, %s", BY_32), NGD_ERR_GRAPH_SHAPE, "[N,K/8]"},
        {LISTS("u8[3,32]", ", %w, %w, %s, %s", BY_32), NGD_ERR_GRAPH_DTYPE, "antiquant_scale %s"},
        {LISTS("u8[3,32]", ", %w, %w, %s, %s", QUANT), NGD_ERR_GRAPH_ATTRIBUTE, "antiquant_group_size must be 32"},
        {LISTS("f32[3,64]", ", %w, %w, %s, %s", BY_32), NGD_ERR_GRAPH_DTYPE, "must be i8, i32, u8 or f8_e4m3fn"},
        {LISTS("i8[3,64]", ", %w, %w, %s, %s", QUANT), NGD_ERR_GRAPH_SHAPE, "[1] or [N,1]"},
        {LISTS("i8[3,64]", ", %w, %w, %s, %s", BY_32 ", antiquant_group_columns=2"), NGD_ERR_GRAPH_SHAPE, "scale %s"},
        {LISTS("i8[3,64]", ", %w, %w, %s, %s", ", antiquant_offset=true"), NGD_ERR_GRAPH_ARITY,
         "quantised weights need antiquant_scale"},
        {LISTS("f8_e4m3fn[3,64]", ", %w, %w, %s, %s, %s, %s", BY_32 ", antiquant_offset=true"), NGD_ERR_GRAPH_ARITY,
         "a weight of f8_e4m3fn has an antiquant_scale alone"},
        {LISTS("f32[3,64]", ", %w, %w, %s, %s", ", bias=true"), NGD_ERR_GRAPH_SHAPE, "bias %s"},
        {LISTS("f32[3,3,64]", ", %w", ""), NGD_ERR_GRAPH_SHAPE, "group_list %n"},
        {LISTS("f32[2,3,64]", ", %w, %b", ", bias=true"), NGD_ERR_GRAPH_SHAPE, "bias %b"},
        {LISTS("f32[2,3,64]", ", %w, %w", ""), NGD_ERR_GRAPH_SHAPE, "weight %w"},
        {LISTS("f8_e4m3fn[3,64]", ", %w, %w", ""), NGD_ERR_GRAPH_DTYPE, "weight %w"},
        {ROUTED("f32[2,4]", "i32[3,2]", "expert_num=5"), NGD_ERR_GRAPH_SHAPE, "expert_idx %e"},
        {ROUTED("f32[2,4]", "f32[2,2]", "expert_num=5"), NGD_ERR_GRAPH_DTYPE, "expert_idx %e"},
        {ROUTED("f32[2,4]", "i64[2,0]", "expert_num=5"), NGD_ERR_GRAPH_SHAPE, "1 or more"},
        {ROUTED("f32[2,4]", "i64[2,2]", "expert_num=0"), NGD_ERR_GRAPH_ATTRIBUTE, "expert_num is 0"},
        {GROUPED("f32[2,4]", "i64[2]", "f32[4,5]", ""), NGD_ERR_GRAPH_SHAPE, "weight %w"},
        {GROUPED("f32[2,4]", "i64[2]", "bf16[4,3]", ""), NGD_ERR_GRAPH_DTYPE, "weight %w"},
        {GROUPED("f32[2,4]", "i64[3]", "f32[4,3]", ""), NGD_ERR_GRAPH_SHAPE, "group_list %n"},
        {GROUPED("f32[2,4]", "i32[2]", "f32[4,3]", ""), NGD_ERR_GRAPH_DTYPE, "group_list %n"},
        {GROUPED("f32[2,4]", "i64[2]", "f32[4,3]", "transpose_weight=true"), NGD_ERR_GRAPH_SHAPE, "[N,K]"},
        {GROUPED("f32[2,4]", "i64[2]", "f32[4,3]", "group_list_type=2"), NGD_ERR_GRAPH_ATTRIBUTE,
         "group_list_type is 2"},
        {GROUPED("f16[2,4]", "i64[2]", "f32[4,3]", ""), NGD_ERR_GRAPH_DTYPE, "weight %v"},
        {GROUPED("f32[2,4]", "i64[2]", "f32[4,3]", "antiquant_zero=1"), NGD_ERR_GRAPH_ATTRIBUTE, "antiquant_zero is"},
        {GROUPED("f32[2,4]", "i64[2]", "f32[4,3]", "antiquant_group_size=32"), NGD_ERR_GRAPH_ATTRIBUTE,
         "antiquant_group_size is for quantised weights"},
        {GROUPED("f32[2,4]", "i64[2]", "f32[4,3]", "antiquant_group_columns=2"), NGD_ERR_GRAPH_ATTRIBUTE,
         "antiquant_group_columns is"},
        {GROUPED("f32[2,4]", "i64[2]", "f32[4,3]", "antiquant_block_size=64"), NGD_ERR_GRAPH_ATTRIBUTE,
         "antiquant_block_size is"},
        {SUMS("f32[6,4]", "f32[3,2]", "i32[5]", ""), NGD_ERR_GRAPH_SHAPE, "expanded_src_to_dst_row %i"},
        {SUMS("f32[5,4]", "f32[3,2]", "i32[6]", ""), NGD_ERR_GRAPH_SHAPE, "expanded_permuted_rows %x"},
        {SUMS("f32[6,4]", "bf16[3,2]", "i32[6]", ""), NGD_ERR_GRAPH_DTYPE, "scales %s"},
        {SUMS("f32[6,4]", "f32[3,2]", "i32[6]", "drop_pad_mode=0"), NGD_ERR_GRAPH_ATTRIBUTE, "drop_pad_mode is 0"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

/* Makes a text: head, n times part, tail. */
static char *repeat(const char *head, const char *part, size_t n, const char *tail)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, head);
    for (size_t i = 0; i < n; i++)
        ngd_strbuf_append(&sb, part);
    ngd_strbuf_append(&sb, tail);
    return ngd_strbuf_steal(&sb);
}

START_TEST(texts_made_to_hurt_are_refused_cheaply)
{
    static const struct {
        const char *head, *part;
        size_t n;
        const char *tail;
        ngd_status_t status;
        const char *says;
    } texts[] = {
        {"npugraph 1\ngraph \"t\" { input %x : f32[", "(", 100000, "1]", NGD_ERR_GRAPH_TOO_LARGE, "nested too deeply"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[", "-", 100001, "1] return %x }", NGD_ERR_GRAPH_SHAPE,
         "as low as -1"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[", "min(", 100000, "1]", NGD_ERR_GRAPH_TOO_LARGE,
         "nested too deeply"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[", "1,", 100000, "1]", NGD_ERR_GRAPH_RANK, "8 dimensions"},
        {"npugraph 1\ngraph \"t\" { sym A 0..1000000000 input %x : f32[", "A*", 100, "A]", NGD_ERR_OVERFLOW,
         "overflows"},
        {"npugraph 1\ngraph \"t\" { sym A 0..1 input %x : f32[", "A*", 100, "A]", NGD_ERR_GRAPH_TOO_LARGE, "too large"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] %y = aten.cat(%x", ", %x", 1040, ")", NGD_ERR_GRAPH_TOO_LARGE,
         "1040 operands"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] %y", ", %y", 1100, " = aten.neg(%x)", NGD_ERR_GRAPH_TOO_LARGE,
         "1040 results"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] %y = aten.view(%x) {size=[1", ", 1", 256, "]}",
         NGD_ERR_GRAPH_TOO_LARGE, "256 elements"},
        {"npugraph 1\ngraph \"t\" { input %x", "x", 300, " : f32[4] }", NGD_ERR_GRAPH_TOO_LARGE, "255 bytes"},
        {"npugraph 1\ngraph \"", "x", 300, "\" {", NGD_ERR_GRAPH_TOO_LARGE, "too long"},
        {"npugraph 1\ngraph \"t\" { input %x : f32[4] = \"", "x", 5000, "\"", NGD_ERR_GRAPH_TOO_LARGE, "too long"},
        {"npugraph 1\ngraph \"t\" { %y = ", "a", 1000000, "(%x)", NGD_ERR_GRAPH_UNKNOWN_OP, "no operator"},
        {"npugraph 1\ngraph \"t\" { %y = aten.full() {size=[1], fill_value=0.", "1", 1000, "}", NGD_ERR_GRAPH_TOO_LARGE,
         "digits"},
        {"npugraph 1\ngraph \"t\" { ", "#", 1000000, "", NGD_ERR_GRAPH_PARSE, "end of the text"},
        {"", " ", NGD_GRAPH_MAX_TEXT + 1, "", NGD_ERR_GRAPH_TOO_LARGE, "bytes"},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char *text = repeat(texts[i].head, texts[i].part, texts[i].n, texts[i].tail);

        check_text_refused(text, strlen(text), texts[i].status, texts[i].says);
        ngd_free(text);
    }
}
END_TEST

START_TEST(more_symbols_inputs_or_outputs_than_the_limits_are_refused)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"t\" {\n");
    for (int i = 0; i < 17; i++)
        ngd_strbuf_printf(&sb, "sym s%d 1..2\n", i);
    check_text_refused(sb.data, sb.len, NGD_ERR_GRAPH_TOO_LARGE, "line 19|16 symbols");
    ngd_strbuf_clear(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"t\" {\ninput %x : f32[4]\nreturn \"o\" = %x");
    for (int i = 0; i < 256; i++)
        ngd_strbuf_printf(&sb, ", \"o%d\" = %%x", i);
    check_text_refused(sb.data, sb.len, NGD_ERR_GRAPH_TOO_LARGE, "256 outputs");
    ngd_strbuf_clear(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"t\" {\nsym B 1..100 buckets 1");
    for (int i = 2; i < 70; i++)
        ngd_strbuf_printf(&sb, ", %d", i);
    check_text_refused(sb.data, sb.len, NGD_ERR_GRAPH_SYMBOL, "64 buckets");
    ngd_strbuf_clear(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"t\" {\n");
    for (int i = 0; i <= NGD_GRAPH_MAX_VALUES; i++)
        ngd_strbuf_printf(&sb, "input %%i%d : f32[4]\n", i);
    check_text_refused(sb.data, sb.len, NGD_ERR_GRAPH_TOO_LARGE, "262144 values");
    ngd_strbuf_fini(&sb);
}
END_TEST

#define GROUP ", group_name=\"tp\"}"

START_TEST(a_collective_says_what_its_group_cannot_do)
{
    static const struct refusal refusals[] = {
        {"input %x : f32[4]\n%y = _c10d_functional.all_reduce(%x) {reduce_op=\"band\"" GROUP, NGD_ERR_GRAPH_ATTRIBUTE,
         "reduce_op \"band\"|sum, avg, product, min, max"},
        {"input %x : f32[4]\n%y = _c10d_functional.all_reduce(%x) {reduce_op=\"sum\"}", NGD_ERR_GRAPH_ATTRIBUTE,
         "group_name"},
        {"input %x : f32[4]\n%y = _c10d_functional.all_reduce(%x) {reduce_op=\"sum\", group_name=\"\"}",
         NGD_ERR_GRAPH_ATTRIBUTE, "group_name has 0 bytes"},
        {"input %x : i8[4]\n%y = _c10d_functional.all_reduce(%x) {reduce_op=\"sum\"" GROUP, NGD_ERR_GRAPH_DTYPE,
         "%x is i8|i32"},
        {"input %x : i32[4]\n%y = _c10d_functional.all_reduce(%x) {reduce_op=\"avg\"" GROUP, NGD_ERR_GRAPH_DTYPE,
         "takes floats"},
        {"input %x : f32[]\n%y = _c10d_functional.all_gather_into_tensor(%x) {group_size=2" GROUP, NGD_ERR_GRAPH_RANK,
         "view it as [1]"},
        {"input %x : f32[4]\n%y = _c10d_functional.all_gather_into_tensor(%x) {group_size=0" GROUP,
         NGD_ERR_GRAPH_ATTRIBUTE, "group_size"},
        {"input %x : f32[4]\n%y = _c10d_functional.reduce_scatter_tensor(%x) {reduce_op=\"sum\", group_size=3" GROUP,
         NGD_ERR_GRAPH_SHAPE, "4, does not divide by group_size, 3"},
        {"input %x : f32[4]\n%y = _c10d_functional.broadcast(%x) {src=-1" GROUP, NGD_ERR_GRAPH_ATTRIBUTE, "src"},
        {"input %x : f32[4]\n%y = _c10d_functional.all_to_all_single(%x) {output_split_sizes=[2, 2], "
         "input_split_sizes=[2, 3]" GROUP,
         NGD_ERR_GRAPH_SHAPE, "input_split_sizes add up to 5|%x is 4"},
        {"input %x : f32[4]\n%y = _c10d_functional.all_to_all_single(%x) {output_split_sizes=[4], "
         "input_split_sizes=[2, 2]" GROUP,
         NGD_ERR_GRAPH_ATTRIBUTE, "one number for each rank, not 2 and 1"},
        {"input %x : f32[4]\n%y = _c10d_functional.all_to_all_single(%x) {output_split_sizes=[2, 2], "
         "input_split_sizes=[-1, 5]" GROUP,
         NGD_ERR_GRAPH_SHAPE, "number 0 of input_split_sizes may be negative"},
        {"input %x : f32[4]\n%a = _c10d_functional.broadcast(%x) {src=0" GROUP
         "\nstream \"side\" {\n%y = _c10d_functional.broadcast(%x) {src=0" GROUP "\n}\nreturn %y",
         NGD_ERR_GRAPH_DEADLOCK, "group \"tp\"|(main)|one stream"},
    };

    CHECK_REFUSALS(refusals);
    /* Taking part in a collective is an effect, so the graph needs no output. */
    ngd_graph_unref(parse_body("input %x : f32[4]\n%y = _c10d_functional.broadcast(%x) {src=0" GROUP));
}
END_TEST

UNIT_MAIN("graphs/graph errors", a_text_that_does_not_parse_says_where,
          an_unknown_operator_is_answered_with_the_nearest, a_collective_says_what_its_group_cannot_do,
          values_are_defined_once_and_before_their_use, operands_results_and_attributes_fit_the_schema,
          dtypes_and_shapes_are_checked_and_the_right_ones_named, ranks_above_eight_are_refused_where_they_arise,
          sizes_that_overflow_are_refused, what_cannot_be_captured_is_refused_with_a_way_out,
          symbols_are_known_used_and_bounded, only_states_and_their_aliases_are_written,
          a_graph_without_effect_is_refused, attention_names_what_does_not_fit,
          attention_over_a_latent_names_what_does_not_fit, cache_writes_name_what_does_not_fit,
          caches_with_scales_name_what_does_not_fit, mixtures_of_experts_name_what_does_not_fit,
          texts_made_to_hurt_are_refused_cheaply, more_symbols_inputs_or_outputs_than_the_limits_are_refused)
