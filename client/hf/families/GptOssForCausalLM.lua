-- SPDX-License-Identifier: Apache-2.0
-- gpt-oss: attention with sinks, and a mixture of experts with biases in each layer, whose weights are one tensor, of floats
-- or of MXFP4 (models/gpt_oss/modeling_gpt_oss.py and integrations/mxfp4.py of transformers).
include "decoder"
takes_mxfp4 = true
read_decoder {rms_norm_eps = 1e-5, max_position_embeddings = 131072, head_dim = 64}
one_device "experts are one tensor"
local n, k = read_experts("num_local_experts", 128, "num_experts_per_tok", 4)
local limit = number("swiglu_limit", 7)
if not (limit > 0) then corrupt("swiglu_limit", "must be positive") end
expect("hidden_act", "silu")
if has_mxfp4 and (hidden % 32 ~= 0 or ffn % 32 ~= 0) then
  refuse("quantization_config.quant_method", "is mxfp4: hidden_size and intermediate_size must be multiples of 32")
end
read_windows(has "sliding_window" and int "sliding_window", function(i) return i % 2 == 0 end)
qkv_bias = bool("attention_bias", true)
o_bias = qkv_bias
attention_sinks = true
read_rope("rope", head_dim, 150000)

-- y = x * w_e + b_e for the rows of each expert e.
local function grouped(name, x, counts, from, out, features)
  local bias = tensor(from .. "_bias", {n, out})
  if has_mxfp4 then return mxfp4_experts(name, x, counts, n, from, out, features, bias) end
  return node(name, "npu.grouped_matmul", {x, counts, tensor(from, {n, features, out}), bias}, "group_list_type=1, bias=true")
end

-- Gate and up are one product, whose even columns are the gate's. In GGUF files they are two.
local function activated(routed, counts, experts)
  local options = format("limit=%.17g", limit)
  local both
  if stored(experts .. "gate_proj.weight") then
    local parts = {}
    for k, part in ipairs {"gate", "up"} do
      local from = experts .. part .. "_proj"
      parts[k] = block_experts(part, routed, counts, n, from, ffn, hidden, tensor(from .. ".bias", {n, ffn}))
    end
    both = node("gate_up", "aten.cat", parts, "dim=1")
    options = options .. ", interleaved=false"
  else
    both = grouped("gate_up", routed, counts, experts .. "gate_up_proj", 2 * ffn, hidden)
  end
  return node("prod", "npu.clipped_swiglu", {both}, options)
end

local function lowered(product, counts, experts)
  local from = experts .. "down_proj"
  if stored(from .. ".weight") then
    return block_experts("down", product, counts, n, from, hidden, ffn, tensor(from .. ".bias", {n, hidden}))
  end
  return grouped("down", product, counts, from, hidden, ffn)
end

function mlp(i, x)
  local prefix = format("model.layers.%d.mlp.", i)
  local router = node("router", "aten.linear",
    {x, weight(prefix .. "router.weight", n, hidden), weight(prefix .. "router.bias", n)})
  local scales, chosen = largest_shares(router, k, true)
  local routed, counts, to = by_expert(x, chosen, n)
  local product = activated(routed, counts, prefix .. "experts.")
  local down = lowered(product, counts, prefix .. "experts.")
  return node("moe", "npu.moe_finalize_routing", {down, scales, to})
end
