-- SPDX-License-Identifier: Apache-2.0
-- GLM-4.7-Flash: DeepSeek V3 with sizes of its own (models/glm4_moe_lite/modeling_glm4_moe_lite.py of transformers).
include "deepseek"
rotary_pairs = bool("rope_interleave", true)
read_deepseek {
  rms_norm_eps = 1e-5, max_position_embeddings = 202752, q_lora_rank = 768, qk_nope_head_dim = 192, v_head_dim = 256,
  n_routed_experts = 64, num_experts_per_tok = 4, moe_intermediate_size = 1536, n_shared_experts = 1,
  first_k_dense_replace = 1, routed_scaling_factor = 1.8,
}
read_sigmoid_gate(1, 1, true)
