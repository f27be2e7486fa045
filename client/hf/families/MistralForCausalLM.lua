-- SPDX-License-Identifier: Apache-2.0
-- Mistral (models/mistral/modeling_mistral.py of transformers). Contexts end where its sliding window would begin.
include "decoder"
read_decoder {max_position_embeddings = 131072}
if not given "sliding_window" then contexts_within(4096)
elseif has "sliding_window" then contexts_within(int "sliding_window") end
read_rope("rope", head_dim)
