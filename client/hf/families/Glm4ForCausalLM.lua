-- SPDX-License-Identifier: Apache-2.0
-- GLM-4 (0414): as GLM-4 of 2024, with norms behind attention and MLP too (models/glm4/modeling_glm4.py of transformers).
include "GlmForCausalLM"

layer = layer_of_four_norms("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
  "post_mlp_layernorm")
