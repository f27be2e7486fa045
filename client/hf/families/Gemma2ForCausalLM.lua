-- SPDX-License-Identifier: Apache-2.0
-- Gemma 2: norms before and behind attention and MLP, times 1 + gamma; every other layer has a sliding window; scores and
-- logits have soft caps (models/gemma2/modeling_gemma2.py of transformers).
include "decoder"
expect("use_bidirectional_attention", false, "is set: tokens would see those behind them")
read_decoder {head_dim = 256, hidden_activation = "gelu_pytorch_tanh", tie_word_embeddings = true,
  max_position_embeddings = 8192}
norm_kind = bool("gguf.whole_norms", false) and "rms" or "gemma"
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
attention_scale = 1 / sqrt(number("query_pre_attn_scalar", 256))
attention_cap = read_cap("attn_logit_softcapping", 50)
logits_cap = read_cap("final_logit_softcapping", 30)
embedding_scale = sqrt(hidden)
read_windows(int("sliding_window", 4096), function(i) return i % 2 == 0 end)
read_rope("rope", head_dim)

layer = layer_of_four_norms("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
  "post_feedforward_layernorm")
