-- SPDX-License-Identifier: Apache-2.0
-- DeepSeek V2 and V2-Lite (models/deepseek_v2/modeling_deepseek_v2.py of transformers).
include "deepseek"
rotary_pairs = true
read_deepseek {
  n_routed_experts = 64, moe_intermediate_size = 1407, n_shared_experts = 2, first_k_dense_replace = 0,
  routed_scaling_factor = 1,
}
expect("scoring_func", "softmax")
if bool("norm_topk_prob", false) then
  refuse("norm_topk_prob", "is true: transformers and the authors' own model disagree on what it means")
end
local method = text("topk_method", "greedy")
local groups, chosen_groups
if method == "group_limited_greedy" then groups, chosen_groups = read_groups()
elseif method ~= "greedy" then refuse("topk_method", "must be greedy or group_limited_greedy") end

function gate(x, m)
  local router = node("router", "aten.linear", {x, weight(m.gate .. ".weight", routed_experts, hidden)})
  if not groups then return largest_shares(router, chosen_experts, false) end
  local scores = node("scores", "aten._softmax", {router}, "dim=-1")
  return node({"scales", "chosen"}, "aten.topk", {within_groups(scores, groups, chosen_groups, 1)},
    format("k=%d", chosen_experts))
end
