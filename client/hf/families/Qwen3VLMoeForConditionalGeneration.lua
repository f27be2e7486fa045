-- SPDX-License-Identifier: Apache-2.0
-- Qwen3-VL with a mixture of experts, whose weights are one tensor: its text. transformers 5 writes num_local_experts, and
-- turns the matrices of experts.
include "qwen_vl"
include "decoder"
read_decoder {head_dim = 128, max_position_embeddings = 128000}
one_device "experts are one tensor"
local n, k = read_experts("num_experts", 60, "num_experts_per_tok", 4)
local features = int("moe_intermediate_size", 1408)
local is_sparse = read_sparse_layers()
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm = true
read_rope("rope", head_dim, 5000000)

local dense_mlp = mlp
local turned = has "num_local_experts"
function mlp(i, x)
  if not is_sparse(i) then return dense_mlp(i, x) end
  local prefix = format("model.layers.%d.mlp.", i)
  local router = node("router", "aten.linear", {x, weight(prefix .. "gate.weight", n, hidden)})
  local scales, chosen = largest_shares(router, k, true)
  return stacked_mixture(x, prefix .. "experts.gate_up_proj", prefix .. "experts.down_proj", n, features, scales, chosen, turned)
end
