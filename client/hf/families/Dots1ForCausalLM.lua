-- SPDX-License-Identifier: Apache-2.0
-- dots.llm1: norms of heads; experts as in DeepSeek V3 (models/dots1/modeling_dots1.py of transformers).
include "routed"
read_decoder()
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm = true
local window = given "sliding_window" and has "sliding_window" and int "sliding_window" or not given "sliding_window" and 4096
local first = number("max_window_layers", 62)
read_windows(window, function(i) return window and i >= first end)
read_rope("rope", head_dim)
read_routed {first_k_dense_replace = 0, routed_scaling_factor = 1}
read_sigmoid_gate(1, 1, false)
