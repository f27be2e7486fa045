-- SPDX-License-Identifier: Apache-2.0
-- EXAONE 4: norms of heads, and norms behind attention and behind the MLP; if there are layers with a sliding window, only
-- these know positions (models/exaone4/modeling_exaone4.py of transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5}
qk_norm = true
local window = 4096
if given "sliding_window" then window = has "sliding_window" and int "sliding_window" end
local pattern = has "layer_types" and 1 or int("sliding_window_pattern", 4)
local has_window = read_windows(window, function(i) return window and (i + 1) % pattern ~= 0 end)
read_rope("rope", head_dim)

function positions_of(i) return (has_window(i) or not window) and "rope" or nil end

layer = layer_of_norms_behind
