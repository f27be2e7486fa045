-- SPDX-License-Identifier: Apache-2.0
-- Qwen3-VL with a mixture of experts, whose weights are one tensor: its text (models/qwen3_vl_moe/modeling_qwen3_vl_moe.py of
-- transformers). The three positions of a text's token are one.
text_part()
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
function mlp(i, x)
  if not is_sparse(i) then return dense_mlp(i, x) end
  local prefix = format("model.layers.%d.mlp.", i)
  local router = node("router", "aten.linear", {x, weight(prefix .. "gate.weight", n, hidden)})
  local scales, chosen = largest_shares(router, k, true)
  local routed, counts, to = by_expert(x, chosen, n)
  local both = node("gate_up", "npu.grouped_matmul", {routed, counts, tensor(prefix .. "experts.gate_up_proj", {n, hidden, 2 * features})},
    "group_list_type=1")
  local gate, up = node({"gate", "up"}, "aten.split_with_sizes", {both}, format("split_sizes=[%d, %d], dim=1", features, features))
  local down = node("down", "npu.grouped_matmul",
    {gated(gate, up, ""), counts, tensor(prefix .. "experts.down_proj", {n, features, hidden})}, "group_list_type=1")
  return node("moe", "npu.moe_finalize_routing", {down, scales, to})
end
