-- SPDX-License-Identifier: Apache-2.0
-- Hunyuan, dense: norms of heads behind their rotation, whose theta a factor widens
-- (models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py of transformers).
include "decoder"
read_decoder {rms_norm_eps = 1e-5}
qkv_bias = bool("attention_bias", false)
o_bias = qkv_bias
qk_norm, q_norm_name, k_norm_name = "turned", "query_layernorm", "key_layernorm"
local rope = read_rope("rope", head_dim)
local where = object "rope_parameters" and "rope_parameters" or "rope_scaling"
local function field(key) return where .. "." .. key end
if has(field "alpha") and text(field "rope_type", text(field "type", "default")) == "dynamic" then
  local alpha = number(field "alpha")
  if alpha < 0 then corrupt(field "alpha", "must not be negative") end
  if alpha > 0 then rope.theta = rope.theta * alpha ^ (head_dim / (head_dim - 2)) end
  if not (rope.theta < 1 / 0) then corrupt(field "alpha", "is too large") end
end
