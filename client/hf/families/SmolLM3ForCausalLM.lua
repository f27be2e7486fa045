-- SPDX-License-Identifier: Apache-2.0
-- SmolLM3: every fourth layer, or those that no_rope_layers marks with 0, has no positions
-- (models/smollm3/modeling_smollm3.py of transformers).
include "decoder"
expect("use_sliding_window", false, "is set: sliding windows are not supported for this family")
read_decoder {tie_word_embeddings = true, max_position_embeddings = 32768}
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
mlp_bias = bool("mlp_bias", false)
read_windows()
read_rope("rope", head_dim, 2000000)

local marks, interval = list "no_rope_layers", int("no_rope_layer_interval", 4)
if marks and #marks ~= layers then corrupt("no_rope_layers", "must have a number for each layer") end

function positions_of(i)
  local turns = (i + 1) % interval ~= 0
  if marks then turns = marks[i + 1] ~= 0 and marks[i + 1] ~= false end
  return turns and "rope" or nil
end
