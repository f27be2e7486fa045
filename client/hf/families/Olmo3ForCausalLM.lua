-- SPDX-License-Identifier: Apache-2.0
-- OLMo 3: OLMo 2 with a sliding window in three of four layers; positions are scaled in the others alone
-- (models/olmo3/modeling_olmo3.py of transformers).
include "Olmo2ForCausalLM"
local has_window = read_windows(int("sliding_window", 4096), function(i) return (i + 1) % 4 ~= 0 end)
local theta = number("rope_parameters.rope_theta", number("rope_theta", 10000))
read_rope("rope_window", head_dim, theta, "")

function positions_of(i) return has_window(i) and "rope_window" or "rope" end
