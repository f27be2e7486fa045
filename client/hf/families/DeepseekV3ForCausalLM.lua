-- SPDX-License-Identifier: Apache-2.0
-- DeepSeek V3, and models of its form such as Moonlight (models/deepseek_v3/modeling_deepseek_v3.py of transformers).
include "deepseek"
rotary_pairs = bool("rope_interleave", true)
read_deepseek {
  max_position_embeddings = 4096, n_routed_experts = 256, num_experts_per_tok = 8, moe_intermediate_size = 2048,
  n_shared_experts = 1, first_k_dense_replace = 3, routed_scaling_factor = 2.5,
}
expect("scoring_func", "sigmoid")
expect("topk_method", "noaux_tc")
local groups, chosen_groups = read_groups(8, 4)
if routed_experts // groups < 2 then corrupt("n_group", "must leave two experts or more for a group") end
local normed = bool("norm_topk_prob", true)

-- A bias moves the choice, but not the shares.
function gate(x, m, prefix)
  local router = node("router", "aten.linear", {x, weight(m.gate .. ".weight", routed_experts, hidden)})
  local scores = node("scores", "aten.sigmoid", {router})
  local name = prefix .. "gate.e_score_correction_bias"
  local bias = weight(name, routed_experts)
  if dtype(name) ~= "f32" then bias = node("score_bias", "aten._to_copy", {bias}, "dtype=f32") end
  local _, chosen = node({"chosen_scores", "chosen"}, "aten.topk",
    {within_groups(node("biased", "aten.add.Tensor", {scores, bias}), groups, chosen_groups, 2)},
    format("k=%d", chosen_experts))
  local scales = node("scales", "aten.gather", {scores, chosen}, "dim=1")
  if not normed then return scales, chosen end
  local total = node("scales_sum", "aten.sum.dim_IntList", {scales}, "dim=[-1], keepdim=true")
  total = node("scales_total", "aten.add.Scalar", {total}, "other=1e-20")
  return node("scales_normed", "aten.div.Tensor", {scales, total}), chosen
end
