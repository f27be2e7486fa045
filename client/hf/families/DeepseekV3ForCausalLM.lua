-- SPDX-License-Identifier: Apache-2.0
-- DeepSeek V3, and models of its form such as Moonlight (models/deepseek_v3/modeling_deepseek_v3.py of transformers).
include "deepseek"
rotary_pairs = bool("rope_interleave", true)
read_deepseek {
  max_position_embeddings = 4096, n_routed_experts = 256, num_experts_per_tok = 8, moe_intermediate_size = 2048,
  n_shared_experts = 1, first_k_dense_replace = 3, routed_scaling_factor = 2.5,
}
expect("scoring_func", "sigmoid")
expect("topk_method", "noaux_tc")
read_sigmoid_gate(8, 4, true)
