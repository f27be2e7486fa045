-- SPDX-License-Identifier: Apache-2.0
-- Mixtral: a mixture of experts in each layer (models/mixtral/modeling_mixtral.py of transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5, max_position_embeddings = 131072}
local n, k = read_experts("num_local_experts", 8, "num_experts_per_tok", 2)
local window = has "sliding_window" and int "sliding_window"
function window_of(i) return window end
read_rope("rope", head_dim, 1000000)

function mlp(i, x)
  local prefix = format("model.layers.%d.block_sparse_moe.", i)
  return experts(x, {gate = prefix .. "gate", w1 = prefix .. "experts.%d.w1",
    w2 = prefix .. "experts.%d.w2", w3 = prefix .. "experts.%d.w3"}, n, k, ffn, true)
end
