-- SPDX-License-Identifier: Apache-2.0
-- gpt-oss: attention with sinks, and a mixture of experts with biases in each layer, whose weights are one tensor, of floats
-- or of MXFP4 (models/gpt_oss/modeling_gpt_oss.py and integrations/mxfp4.py of transformers).
include "decoder"
takes_mxfp4 = true
read_decoder {rms_norm_eps = 1e-5, max_position_embeddings = 131072, head_dim = 64}
one_device "experts are one tensor"
local n, k = read_experts("num_local_experts", 128, "num_experts_per_tok", 4)
local limit = number("swiglu_limit", 7)
if not (limit > 0) then corrupt("swiglu_limit", "must be positive") end
expect("hidden_act", "silu")
if has_mxfp4 and (hidden % 32 ~= 0 or ffn % 32 ~= 0) then
  refuse("quantization_config.quant_method", "is mxfp4: hidden_size and intermediate_size must be multiples of 32")
end
read_windows(has "sliding_window" and int "sliding_window", function(i) return i % 2 == 0 end)
qkv_bias = bool("attention_bias", true)
o_bias = qkv_bias
attention_sinks = true
read_rope("rope", head_dim, 150000)

-- y = x * w_e + b_e for the rows of each expert e. Of MXFP4, rows of K are [K / 32, 16] bytes.
local function grouped(name, x, counts, from, out, features)
  local bias = tensor(from .. "_bias", {n, out})
  if not has_mxfp4 then
    return node(name, "npu.grouped_matmul", {x, counts, tensor(from, {n, features, out}), bias}, "group_list_type=1, bias=true")
  end
  local q = tensor(from .. "_blocks", {n, out, features // 32, 16}, "f4")
  q = node(name .. "_w", "aten.view", {q}, format("size=[%d, %d, %d]", n, out, features // 2))
  return node(name, "npu.grouped_matmul", {x, counts, q, bias, tensor(from .. "_scales", {n, out, features // 32}, "e8m0")},
    "group_list_type=1, transpose_weight=true, bias=true, antiquant_scale=true, antiquant_group_size=32")
end

function mlp(i, x)
  local prefix = format("model.layers.%d.mlp.", i)
  local router = node("router", "aten.linear",
    {x, weight(prefix .. "router.weight", n, hidden), weight(prefix .. "router.bias", n)})
  local scales, chosen = largest_shares(router, k, true)
  local routed, counts, to = by_expert(x, chosen, n)
  local both = grouped("gate_up", routed, counts, prefix .. "experts.gate_up_proj", 2 * ffn, hidden)
  local product = node("prod", "npu.clipped_swiglu", {both}, format("limit=%.17g", limit))
  local down = grouped("down", product, counts, prefix .. "experts.down_proj", hidden, ffn)
  return node("moe", "npu.moe_finalize_routing", {down, scales, to})
end
