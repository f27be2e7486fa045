-- SPDX-License-Identifier: Apache-2.0
-- Mixtral: a mixture of experts in each layer (models/mixtral/modeling_mixtral.py of transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5, max_position_embeddings = 131072}
local n, k = read_experts("num_local_experts", 8, "num_experts_per_tok", 2)
local window = has "sliding_window" and int "sliding_window"
function window_of(i) return window end
read_rope("rope", head_dim, 1000000)

function mlp(i, x)
  return experts(x, mixtral_experts_of(format("model.layers.%d.block_sparse_moe.", i)), n, k, ffn, true)
end
