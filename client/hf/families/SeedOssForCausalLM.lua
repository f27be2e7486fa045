-- SPDX-License-Identifier: Apache-2.0
-- Seed-OSS: a Llama with biases of q, k and v (models/seed_oss/modeling_seed_oss.py of transformers).
include "decoder"
read_decoder {head_dim = 128, max_position_embeddings = 524288}
qkv_bias = bool("attention_bias", true)
o_bias = bool("attention_out_bias", false)
mlp_bias = bool("mlp_bias", false)
read_rope("rope", head_dim)
