-- SPDX-License-Identifier: Apache-2.0
-- Qwen2-MoE: Qwen2 with a mixture of experts in most layers, beside an MLP that all rows share and a gate weighs
-- (models/qwen2_moe/modeling_qwen2_moe.py of transformers).
include "decoder"
read_decoder {max_position_embeddings = 32768}
local n, k = read_experts("num_experts", 60, "num_experts_per_tok", 4)
local features = divide("moe_intermediate_size", int("moe_intermediate_size", 1408))
local shared_features = divide("shared_expert_intermediate_size", int("shared_expert_intermediate_size", 5632))
local normed = bool("norm_topk_prob", false)
local is_sparse = read_sparse_layers()
read_qwen_windows()
qkv_bias = bool("qkv_bias", true)
read_rope("rope", head_dim)

local dense_mlp = mlp
function mlp(i, x)
  if not is_sparse(i) then return dense_mlp(i, x) end
  local prefix = format("model.layers.%d.mlp.", i)
  local routed = experts(x, experts_of(prefix), n, k, features, normed)
  local shared = mlp_of(x, prefix .. "shared_expert.", shared_features, "shared_")
  local share_gate, w = prefix .. "shared_expert_gate.weight", nil
  if stored(share_gate) then w = node("share_w", "aten.view", {weight(share_gate, hidden)}, format("size=[1, %d]", hidden))
  else w = weight(share_gate, 1, hidden) end
  local share = node("share_logit", "aten.linear", {x, w})
  shared = node("shared", "aten.mul.Tensor", {shared, node("share", "aten.sigmoid", {share})})
  return node("mlp", "aten.add.Tensor", {routed, shared})
end
