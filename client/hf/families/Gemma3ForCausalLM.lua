-- SPDX-License-Identifier: Apache-2.0
-- Gemma 3, text: norms before and behind attention and MLP, norms of heads, all times 1 + gamma; layers with a sliding
-- window have other positions (models/gemma3/modeling_gemma3.py of transformers).
include "decoder"
expect("use_bidirectional_attention", false, "is set: tokens would see those behind them")
read_decoder {
  vocab_size = 262208, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26, num_attention_heads = 8,
  num_key_value_heads = 4, head_dim = 256, hidden_activation = "gelu_pytorch_tanh", tie_word_embeddings = true,
  max_position_embeddings = 131072,
}
norm_kind = bool("gguf.whole_norms", false) and "rms" or "gemma"
qk_norm = true
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
attention_scale = 1 / sqrt(number("query_pre_attn_scalar", 256))
embedding_scale = sqrt(hidden)
attention_cap, logits_cap = read_cap "attn_logit_softcapping", read_cap "final_logit_softcapping"

local pattern = int("sliding_window_pattern", 6)
local has_window = read_windows(int("sliding_window", 4096), function(i) return (i + 1) % pattern ~= 0 end)

read_ropes_by_window(1000000, function() return number("rope_local_base_freq", 10000) end)

function positions_of(i) return has_window(i) and "rope_window" or "rope" end

layer = layer_of_four_norms("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
  "post_feedforward_layernorm")
