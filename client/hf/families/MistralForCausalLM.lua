-- SPDX-License-Identifier: Apache-2.0
-- Mistral (models/mistral/modeling_mistral.py of transformers): all layers have a sliding window.
include "decoder"
read_decoder {max_position_embeddings = 131072}
local window = 4096
if given "sliding_window" then window = has "sliding_window" and int "sliding_window" end
function window_of(i) return window end
read_rope("rope", head_dim)
