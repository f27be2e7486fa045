-- SPDX-License-Identifier: Apache-2.0
-- ERNIE 4.5: a mixture of experts in layers of a range, beside an MLP for all rows; a bias moves the choice of experts
-- (models/ernie4_5_moe/modeling_ernie4_5_moe.py of transformers).
include "routed"
read_decoder {rms_norm_eps = 1e-5, tie_word_embeddings = true, max_position_embeddings = 131072}
expect("use_bias", false, "is true: biases of experts are not supported for this family")
rotary_pairs = true
local n, k = read_experts("moe_num_experts", 64, "moe_k", 6)
local first, last, step = count("moe_layer_start_index", 1), number("moe_layer_end_index", -1), int("moe_layer_interval", 1)
if last == -1 then last = layers - 1 end
set_routed({experts = n, chosen = k, features = divide("moe_intermediate_size", int("moe_intermediate_size", 1536)),
  shared = count("moe_num_shared_experts", 2), scale = 1,
  sparse = function(i) return (i + 1) % step == 0 and i >= first and i <= last end}, "moe_num_shared_experts")
-- The shares of the k largest of n have the sum k / n at least.
if number("moe_norm_min", 1e-12) > k / n then refuse("moe_norm_min", "is larger than moe_k / moe_num_experts") end
read_rope("rope", head_dim, 500000)

function gate(x, m, prefix)
  local router = node("router", "aten.linear", {x, weight(m.gate .. ".weight", n, hidden)})
  local scores = node("scores", "aten._softmax", {router}, "dim=-1")
  return shares_by(biased(scores, prefix .. "moe_statics.e_score_correction_bias", 1, n), scores, k, 0)
end
