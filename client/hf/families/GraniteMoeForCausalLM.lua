-- SPDX-License-Identifier: Apache-2.0
-- Granite 3 with a mixture of experts, whose weights are one tensor (models/granitemoe/modeling_granitemoe.py of
-- transformers).
include "GraniteForCausalLM"
one_device "experts are one tensor"
if is_quantised "model.layers.0.block_sparse_moe.input_linear" then
  refuse("quantization_config.quant_method", "is given: quantised experts are not supported for this family")
end
local n, k = read_experts("num_local_experts", 8, "num_experts_per_tok", 2)

local function grouped(name, x, counts, from, out, features)
  return node(name, "npu.grouped_matmul", {x, counts, tensor(from .. ".weight", {n, out, features})},
    "group_list_type=1, transpose_weight=true")
end

function mlp(i, x)
  local prefix = format("model.layers.%d.block_sparse_moe.", i)
  local router = node("router", "aten.linear", {x, weight(prefix .. "router.layer.weight", n, hidden)})
  local scales, chosen = largest_shares(router, k, true)
  local routed, counts, to = by_expert(x, chosen, n)
  local both = grouped("gate_up", routed, counts, prefix .. "input_linear", 2 * ffn, hidden)
  local gate, up = node({"gate", "up"}, "aten.split_with_sizes", {both}, format("split_sizes=[%d, %d], dim=1", ffn, ffn))
  local down = grouped("down", gated(gate, up, ""), counts, prefix .. "output_linear", hidden, ffn)
  return node("moe", "npu.moe_finalize_routing", {down, scales, to})
end
