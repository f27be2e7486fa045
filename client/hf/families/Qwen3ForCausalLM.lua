-- SPDX-License-Identifier: Apache-2.0
-- Qwen3: heads of q and k have norms of their own (models/qwen3/modeling_qwen3.py of transformers).
include "decoder"
read_decoder {head_dim = 128, max_position_embeddings = 32768}
read_qwen_windows()
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm = true
read_rope("rope", head_dim)
