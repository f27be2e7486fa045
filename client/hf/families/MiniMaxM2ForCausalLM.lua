-- SPDX-License-Identifier: Apache-2.0
-- MiniMax-M2: a mixture of experts in each layer, with a gate as DeepSeek V3's without groups; norms over all heads, a part
-- of a head turns (models/minimax_m2/modeling_minimax_m2.py of transformers).
include "routed"
read_decoder {head_dim = 128, max_position_embeddings = 196608}
one_device "norms of q and k are over all heads"
expect("use_qk_norm", true)
expect("scoring_func", "sigmoid")
local n, k = read_experts("num_local_experts", 256, "num_experts_per_tok", 8)
qk_norm = "all"
rotary_dim = floor(head_dim * number("rope_parameters.partial_rotary_factor", number("partial_rotary_factor", 1)))
if has "rotary_dim" then rotary_dim = int "rotary_dim" end
if rotary_dim > head_dim then corrupt("rotary_dim", "is larger than head_dim") end
read_rope("rope", rotary_dim, 5000000)

function mlp(i, x)
  local prefix = format("model.layers.%d.block_sparse_moe.", i)
  local router = node("router", "aten.linear", {x, weight(prefix .. "gate.weight", n, hidden)})
  local scores = node("scores", "aten.sigmoid", {router})
  local scales, chosen = shares_by(biased(scores, prefix .. "e_score_correction_bias", n), scores, k, 0)
  return mixture(x, mixtral_experts_of(prefix), n, ffn, scales, chosen)
end
