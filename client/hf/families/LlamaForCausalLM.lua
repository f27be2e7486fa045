-- SPDX-License-Identifier: Apache-2.0
-- Llama 2 to 3.3, and SmolLM, TinyLlama and others of the same form: models/llama/modeling_llama.py of transformers.
include "decoder"
read_decoder()
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
mlp_bias = bool("mlp_bias", false)
read_rope("rope", head_dim)
