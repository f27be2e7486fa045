-- SPDX-License-Identifier: Apache-2.0
-- Qwen3-MoE: Qwen3 with a mixture of experts in most layers (models/qwen3_moe/modeling_qwen3_moe.py of transformers).
include "decoder"
read_decoder {max_position_embeddings = 32768}
local n, k = read_experts("num_experts", 128, "num_experts_per_tok", 8)
local features = divide("moe_intermediate_size", int("moe_intermediate_size", 768))
local normed = bool("norm_topk_prob", false)
local is_sparse = read_sparse_layers()
local window = bool("use_sliding_window", false) and int("sliding_window", 4096)
function window_of(i) return window end
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm = true
read_rope("rope", head_dim)

local dense_mlp = mlp
function mlp(i, x)
  if not is_sparse(i) then return dense_mlp(i, x) end
  return experts(x, experts_of(format("model.layers.%d.mlp.", i)), n, k, features, normed)
end
