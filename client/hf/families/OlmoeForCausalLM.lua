-- SPDX-License-Identifier: Apache-2.0
-- OLMoE: a mixture of experts in each layer, and a norm over all heads of q and k (models/olmoe/modeling_olmoe.py of
-- transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5, max_position_embeddings = 4096}
one_device "norms of q and k are over all heads"
if has "clip_qkv" then refuse("clip_qkv", "is set") end
local n, k = read_experts("num_experts", 64, "num_experts_per_tok", 8)
local normed = bool("norm_topk_prob", false)
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm = "all"
read_rope("rope", head_dim)

function mlp(i, x)
  return experts(x, experts_of(format("model.layers.%d.mlp.", i)), n, k, ffn, normed)
end
