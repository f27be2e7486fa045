-- SPDX-License-Identifier: Apache-2.0
-- Ministral (2410): Mistral whose layers have a window or not, one by one (models/ministral/modeling_ministral.py of
-- transformers).
include "decoder"
read_decoder {max_position_embeddings = 131072}
local window = 4096
if given "sliding_window" then window = has "sliding_window" and int "sliding_window" end
read_windows(window, function(i) return window end)
read_rope("rope", head_dim)
