-- SPDX-License-Identifier: Apache-2.0
-- OLMo 2: norms behind attention and behind the MLP, and one over all heads of q and k
-- (models/olmo2/modeling_olmo2.py of transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5}
one_device "norms of q and k are over all heads"
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm = "all"
read_rope("rope", head_dim)

layer = layer_of_norms_behind
