-- SPDX-License-Identifier: Apache-2.0
-- GLM-4.5 to 4.7: half of a head's dimensions turn; experts as in DeepSeek V3 (models/glm4_moe/modeling_glm4_moe.py of
-- transformers).
include "routed"
read_decoder {rms_norm_eps = 1e-5, max_position_embeddings = 131072}
qkv_bias = bool("attention_bias", false)
qk_norm = bool("use_qk_norm", false)
rotary_dim = floor(head_dim * number("partial_rotary_factor", number("rope_parameters.partial_rotary_factor", 0.5)))
read_rope("rope", rotary_dim)
read_routed {
  n_routed_experts = 128, num_experts_per_tok = 8, moe_intermediate_size = 1408, n_shared_experts = 1,
  first_k_dense_replace = 1, routed_scaling_factor = 1,
}
read_sigmoid_gate(1, 1, true)
