-- SPDX-License-Identifier: Apache-2.0
-- Qwen2 and Qwen2.5: q, k and v have biases (models/qwen2/modeling_qwen2.py of transformers).
include "decoder"
read_decoder {max_position_embeddings = 32768}
read_qwen_windows()
qkv_bias = true
read_rope("rope", head_dim)
