-- SPDX-License-Identifier: Apache-2.0
-- Phi-3 and Phi-4-mini: q, k and v are one weight, gate and up another (models/phi3/modeling_phi3.py of transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5, max_position_embeddings = 4096}
longrope_original, yarn_is_longrope = 4096, true
one_device "q, k and v are one weight"
local window = has "sliding_window" and int "sliding_window"
function window_of(i) return window end
qkv_fused, gate_fused = true, true
rotary_dim = floor(head_dim * number("partial_rotary_factor", number("rope_parameters.partial_rotary_factor", 1)))
read_rope("rope", rotary_dim)
