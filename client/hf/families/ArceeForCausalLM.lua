-- SPDX-License-Identifier: Apache-2.0
-- AFM: a Llama whose MLP has no gate, but squares (models/arcee/modeling_arcee.py of transformers).
include "decoder"
read_decoder {hidden_act = "relu2", rms_norm_eps = 1e-5, max_position_embeddings = 4096}
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
mlp_bias = bool("mlp_bias", false)
read_rope("rope", head_dim)

function mlp(i, m)
  return plain_mlp(m, format("model.layers.%d.mlp.", i), "up_proj", "down_proj")
end
