-- SPDX-License-Identifier: Apache-2.0
-- Gemma: norms times 1 + gamma, and embeddings times sqrt(hidden) (models/gemma/modeling_gemma.py of transformers).
include "decoder"
read_decoder {head_dim = 256, hidden_act = "gelu_pytorch_tanh", tie_word_embeddings = true, max_position_embeddings = 8192}
norm_kind = "gemma"
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
embedding_scale = sqrt(hidden)
read_rope("rope", head_dim)
