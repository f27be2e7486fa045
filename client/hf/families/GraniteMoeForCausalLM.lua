-- SPDX-License-Identifier: Apache-2.0
-- Granite 3 with a mixture of experts, whose weights are one tensor (models/granitemoe/modeling_granitemoe.py of
-- transformers).
include "GraniteForCausalLM"
one_device "experts are one tensor"
if is_quantised "model.layers.0.block_sparse_moe.input_linear" then
  refuse("quantization_config.quant_method", "is given: quantised experts are not supported for this family")
end
local n, k = read_experts("num_local_experts", 8, "num_experts_per_tok", 2)

function mlp(i, x)
  local prefix = format("model.layers.%d.block_sparse_moe.", i)
  local router = node("router", "aten.linear", {x, weight(prefix .. "router.layer.weight", n, hidden)})
  local scales, chosen = largest_shares(router, k, true)
  return stacked_mixture(x, prefix .. "input_linear.weight", prefix .. "output_linear.weight", n, ffn, scales, chosen, true)
end
