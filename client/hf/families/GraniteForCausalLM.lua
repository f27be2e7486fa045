-- SPDX-License-Identifier: Apache-2.0
-- Granite 3: a Llama with four factors (models/granite/modeling_granite.py of transformers).
include "decoder"
read_decoder()
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
mlp_bias = bool("mlp_bias", false)
attention_scale = number("attention_multiplier", 1)
embedding_scale = number("embedding_multiplier", 1)
logits_scale = 1 / number("logits_scaling", 1)
if abs(logits_scale) == 1 / 0 then corrupt("logits_scaling", "must not be 0") end
read_rope("rope", head_dim)

local residual = number("residual_multiplier", 1)

function layer(i, s, rope)
  local prefix = format("model.layers.%d.", i)
  local y = attention(i, norm(s, "n", prefix .. "input_layernorm"), rope)
  add(s, scaled("y", y, residual))
  y = mlp(i, norm(s, "m", prefix .. "post_attention_layernorm"))
  add(s, scaled("z", y, residual))
end
