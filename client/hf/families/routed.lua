-- SPDX-License-Identifier: Apache-2.0
--
-- Layers with a mixture of experts, and an MLP for all rows beside it: DeepSeek's, and those of its form. A family includes
-- this file, calls read_routed or set_routed, and defines gate(x, m, prefix), which gives the shares and the numbers of the
-- experts of each row; read_sigmoid_gate defines that of DeepSeek V3.

include "decoder"

local DIM_MAX = 2^31 - 1 -- of a tensor
local routed

-- r: experts, chosen (how many there are, and how many a row has), features (of an expert on this rank), shared (how many
-- experts the MLP for all rows is as large as; 0: there is none), scale (of the shares), sparse(i) (whether layer i has
-- experts). shared_key: the field that says r.shared.
function set_routed(r, shared_key)
  if r.features > DIM_MAX // max(r.shared, 1) then refuse(shared_key, "is too large") end
  routed, routed_experts, chosen_experts = r, r.experts, r.chosen
end

-- An integer of config.json that may be 0.
function count(key, default)
  local v = number(key, default)
  if v < 0 or v % 1 ~= 0 then corrupt(key, "must be an integer, 0 or more") end
  return v
end

-- The fields of DeepSeek. defaults: what a config without a field means.
function read_routed(d)
  if given "n_routed_experts" and not has "n_routed_experts" then refuse("n_routed_experts", "is null") end
  if given "n_shared_experts" and not has "n_shared_experts" then refuse("n_shared_experts", "is null") end
  local n, k = read_experts("n_routed_experts", d.n_routed_experts, "num_experts_per_tok", d.num_experts_per_tok)
  local size = int("moe_intermediate_size", d.moe_intermediate_size)
  local first, kinds = count("first_k_dense_replace", d.first_k_dense_replace), list "mlp_layer_types"
  if kinds and #kinds ~= layers then corrupt("mlp_layer_types", "must have a name for each layer") end
  for _, kind in ipairs(kinds or {}) do
    if kind ~= "sparse" and kind ~= "dense" then refuse("mlp_layer_types", "names layers that are neither sparse nor dense") end
  end
  set_routed({experts = n, chosen = k, features = divide("moe_intermediate_size", size),
    shared = int("n_shared_experts", d.n_shared_experts), scale = number("routed_scaling_factor", d.routed_scaling_factor),
    sparse = function(i) if kinds then return kinds[i + 1] == "sparse" end return i >= first end}, "n_shared_experts")
end

-- The number of groups of experts, and of those that a row may choose from.
function read_groups(groups_default, chosen_default)
  local groups, chosen = int("n_group", groups_default), int("topk_group", chosen_default)
  if routed_experts % groups ~= 0 then corrupt("n_group", "must divide n_routed_experts") end
  if chosen > groups then corrupt("topk_group", "is larger than n_group") end
  if chosen_experts > chosen * (routed_experts // groups) then
    corrupt("num_experts_per_tok", "is larger than the experts of topk_group groups")
  end
  return groups, chosen
end

-- Lowers the scores of experts below all others whose group is not among the `chosen` with the largest sums of their `best`
-- scores: as DeepSeek's authors and transformers 5. transformers 4.57 sets them to 0, which may be more than a score that a
-- bias has made negative.
function within_groups(scores, groups, chosen, best)
  if chosen == groups then return scores end
  local each = routed_experts // groups
  local by_group = reshape("by_group", scores, groups, each)
  local tops = node({"tops", "tops_at"}, "aten.topk", {by_group}, format("k=%d", best))
  local sums = node("group_scores", "aten.sum.dim_IntList", {tops}, "dim=[-1]")
  local _, at = node({"groups", "groups_at"}, "aten.topk", {sums}, format("k=%d", chosen))
  local none = node("no_groups", "aten.zeros_like", {sums})
  local mask = node("group_mask", "aten.scatter.value", {none, at}, "dim=1, value=1")
  mask = reshape("group_mask_e", mask, groups, 1)
  local low = node("low", "aten.mul.Scalar", {node("others", "aten.sub.Scalar", {mask}, "other=1")}, "other=1e30")
  local kept = node("kept", "aten.add.Tensor", {node("own", "aten.mul.Tensor", {by_group, mask}), low})
  return reshape("kept_scores", kept, routed_experts)
end

-- Scores plus a bias, which moves the choice of experts, but not their shares. ...: the shape of the bias.
function biased(scores, name, ...)
  local bias = weight(name, ...)
  if dtype(name) ~= "f32" then bias = node("score_bias", "aten._to_copy", {bias}, "dtype=f32") end
  return node("biased", "aten.add.Tensor", {scores, bias})
end

-- The k experts that `choice` gives the largest numbers to: their scores, divided by the sum of these (plus `least`) if
-- there is a `least`, and their numbers.
function shares_by(choice, scores, k, least)
  local _, chosen = node({"chosen_scores", "chosen"}, "aten.topk", {choice}, format("k=%d", k))
  local scales = node("scales", "aten.gather", {scores, chosen}, "dim=1")
  if not least then return scales, chosen end
  local total = node("scales_sum", "aten.sum.dim_IntList", {scales}, "dim=[-1], keepdim=true")
  if least > 0 then total = node("scales_total", "aten.add.Scalar", {total}, format("other=%.17g", least)) end
  return node("scales_normed", "aten.div.Tensor", {scales, total}), chosen
end

-- The gate of DeepSeek V3: scores are sigmoids, and a bias moves the choice.
function read_sigmoid_gate(groups_default, chosen_default, normed_default)
  local groups, chosen_groups = read_groups(groups_default, chosen_default)
  local normed = bool("norm_topk_prob", normed_default)
  if routed_experts // groups < 2 then corrupt("n_group", "must leave two experts or more for a group") end
  function gate(x, m, prefix)
    local router = node("router", "aten.linear", {x, weight(m.gate .. ".weight", routed_experts, hidden)})
    local scores = node("scores", "aten.sigmoid", {router})
    local choice = biased(scores, prefix .. "gate.e_score_correction_bias", routed_experts)
    return shares_by(within_groups(choice, groups, chosen_groups, 2), scores, chosen_experts, normed and 1e-20)
  end
end

local dense_mlp = mlp
function mlp(i, x)
  if not routed.sparse(i) then return dense_mlp(i, x) end
  local prefix = format("model.layers.%d.mlp.", i)
  local m = experts_of(prefix)
  local scales, chosen = gate(x, m, prefix)
  local y = mixture(x, m, routed.experts, routed.features, scaled("scales_routed", scales, routed.scale), chosen)
  if routed.shared == 0 then return y end
  local shared = mlp_of(x, prefix .. "shared_experts.", routed.features * routed.shared, "shared_")
  return node("mlp", "aten.add.Tensor", {y, shared})
end
