-- SPDX-License-Identifier: Apache-2.0
-- Command R: one norm, without a mean's bias, before attention and MLP, which are side by side; positions turn
-- neighbours (models/cohere/modeling_cohere.py of transformers).
include "decoder"
expect("use_qk_norm", false, "is set: norms of q and k are not supported for this family")
read_decoder {layer_norm_eps = 1e-5, tie_word_embeddings = true, max_position_embeddings = 8192}
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
norm_kind = "layer"
rotary_pairs = true
logits_scale = number("logit_scale", 0.0625)
if logits_scale == 0 then corrupt("logit_scale", "must not be 0") end
read_rope("rope", head_dim)

function layer(i, s, rope)
  local n = norm(s, "n", format("model.layers.%d.input_layernorm", i))
  add(s, attention(i, n, rope))
  add(s, mlp(i, n))
end
