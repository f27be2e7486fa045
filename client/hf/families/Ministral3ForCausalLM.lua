-- SPDX-License-Identifier: Apache-2.0
-- Ministral 3: queries of positions behind those of training grow with the logarithm of how far (models/ministral3/
-- modeling_ministral3.py of transformers).
include "decoder"
read_decoder {head_dim = 128, rms_norm_eps = 1e-5, max_position_embeddings = 262144}
local window = has "sliding_window" and int "sliding_window"
function window_of(i) return window or nil end
if not object "rope_parameters" then refuse("rope_parameters", "is missing") end
local beta = number "rope_parameters.llama_4_scaling_beta"
local original = int "rope_parameters.original_max_position_embeddings"
read_rope("rope", head_dim, 1000000)

local factor -- 1 + beta * log(1 + floor(position / original)), [rows, 1, 1]
local function factor_of_rows()
  local x = node("position", "aten._to_copy", {"%positions"}, "dtype=f32")
  x = node("spans", "aten.floor", {node("span", "aten.div.Scalar", {x}, format("other=%d", original))})
  x = node("spans_log", "aten.log", {node("spans_1", "aten.add.Scalar", {x}, "other=1")})
  x = node("growth", "aten.add.Scalar", {node("grown", "aten.mul.Scalar", {x}, format("other=%.17g", beta))}, "other=1")
  return reshape("growth_h", x, 1, 1)
end

function grown_queries(q)
  factor = factor or factor_of_rows()
  return node("q_grown", "aten.mul.Tensor", {q, factor})
end
