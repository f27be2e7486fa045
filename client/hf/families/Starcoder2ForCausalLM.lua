-- SPDX-License-Identifier: Apache-2.0
-- StarCoder 2: layer norms, biases everywhere, an MLP without a gate (models/starcoder2/modeling_starcoder2.py of
-- transformers).
include "decoder"
read_decoder {hidden_act = "gelu_pytorch_tanh", norm_epsilon = 1e-5, tie_word_embeddings = true, max_position_embeddings = 4096}
norm_kind, norm_bias = "layer", true
qkv_bias = bool("use_bias", true)
o_bias, mlp_bias = qkv_bias, qkv_bias
local window = has "sliding_window" and int "sliding_window"
function window_of(i) return window or nil end
read_rope("rope", head_dim)

function mlp(i, m)
  return plain_mlp(m, format("model.layers.%d.mlp.", i), "c_fc", "c_proj")
end
