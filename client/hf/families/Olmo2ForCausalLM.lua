-- SPDX-License-Identifier: Apache-2.0
-- OLMo 2: norms behind attention and behind the MLP, and one over all heads of q and k
-- (models/olmo2/modeling_olmo2.py of transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5}
one_device "norms of q and k are over all heads"
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm = "all"
read_rope("rope", head_dim)

function layer(i, s, rope)
  local prefix = format("model.layers.%d.", i)
  local y = attention(i, sum(s, "x_att"), rope)
  add(s, norm_of("y", y, prefix .. "post_attention_layernorm", hidden))
  y = mlp(i, sum(s, "x_mlp"))
  add(s, norm_of("z", y, prefix .. "post_feedforward_layernorm", hidden))
end
