-- SPDX-License-Identifier: Apache-2.0
-- GLM-4 (2024), GLM-Edge: half of a head's dimensions turn, as neighbours; gate and up are one weight
-- (models/glm/modeling_glm.py of transformers).
include "decoder"
read_decoder {head_dim = 128, rms_norm_eps = 1.5625e-07, max_position_embeddings = 131072}
one_device "gate and up are one weight"
qkv_bias = bool("attention_bias", true)
gate_fused, rotary_pairs = true, true
rotary_dim = floor(head_dim * number("partial_rotary_factor", number("rope_parameters.partial_rotary_factor", 0.5)))
read_rope("rope", rotary_dim)
