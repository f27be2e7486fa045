-- SPDX-License-Identifier: Apache-2.0
-- ERNIE 4.5, dense: a Llama whose positions turn neighbours (models/ernie4_5/modeling_ernie4_5.py of transformers).
include "decoder"
read_decoder {head_dim = 128, rms_norm_eps = 1e-5, tie_word_embeddings = true, max_position_embeddings = 131072}
rotary_pairs = true
qkv_bias = bool("use_bias", false)
o_bias, mlp_bias = qkv_bias, qkv_bias
read_rope("rope", head_dim, 500000)
