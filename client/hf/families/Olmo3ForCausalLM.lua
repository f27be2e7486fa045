-- SPDX-License-Identifier: Apache-2.0
-- OLMo 3: OLMo 2 with a sliding window in three of four layers; positions are scaled in the others alone
-- (models/olmo3/modeling_olmo3.py of transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5}
one_device "norms of q and k are over all heads"
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm = "all"
local has_window = read_windows(int("sliding_window", 4096), function(i) return (i + 1) % 4 ~= 0 end)
read_ropes_by_window(10000, function() return number("rope_theta", 10000) end)

function positions_of(i) return has_window(i) and "rope_window" or "rope" end

layer = layer_of_norms_behind
