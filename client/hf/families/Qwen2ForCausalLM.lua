-- SPDX-License-Identifier: Apache-2.0
-- Qwen2 and Qwen2.5: q, k and v have biases (models/qwen2/modeling_qwen2.py of transformers).
include "decoder"
expect("use_sliding_window", false, "is set: sliding windows are not supported")
read_decoder()
qkv_bias = true
read_rope("rope", head_dim)
