-- SPDX-License-Identifier: Apache-2.0
--
-- What DeepSeek V2 and V3 have in common (models/deepseek_v2 and models/deepseek_v3 of transformers): attention over a
-- latent (MLA), and the experts of routed.lua. A family includes this file, and defines gate(x, m, prefix).
--
-- Attention has the absorbed form (docs/decisions/0044). The keys W_UK c and the values W_UV c of a token's latent c are
-- not made: a query is multiplied by W_UK, reads latents as keys and as values, and the result is multiplied by W_UV. Both
-- are floats, also where the checkpoint has them quantised (docs/decisions/0048).

include "routed"

local DIM_MAX = 2^31 - 1 -- of a tensor
local latent      -- numbers of a latent
local latent_q    -- the same of queries; false: they have none
local plain       -- dimensions of a head that do not turn
local turned      -- those that do
local value_dim   -- of a head's values

-- ---- config.json ----

-- The scale of scores: yarn's mscale_all_dim widens it.
local function read_scale()
  local where = object "rope_parameters" and "rope_parameters" or object "rope_scaling" and "rope_scaling"
  local widening = where and number(where .. ".mscale_all_dim", 0) or 0
  local factor = widening ~= 0 and number(where .. ".factor", 1) or 1
  local mscale = factor > 1 and 0.1 * widening * log(factor) + 1 or 1
  return mscale * mscale / sqrt(plain + turned)
end

local function read_latent(d)
  latent = int("kv_lora_rank", 512)
  latent_q = not given "q_lora_rank" and (d.q_lora_rank or 1536) or has "q_lora_rank" and int "q_lora_rank"
  plain, turned = int("qk_nope_head_dim", d.qk_nope_head_dim or 128), head_dim
  value_dim = int("v_head_dim", d.v_head_dim or 128)
  if kv_heads ~= heads then refuse("num_key_value_heads", "must be num_attention_heads: all heads share a latent") end
  if latent > DIM_MAX - turned then refuse("kv_lora_rank", "is too large") end
  if plain + value_dim > DIM_MAX // heads then refuse("v_head_dim", "is too large for so many heads") end
  if plain + turned > DIM_MAX // heads then refuse("qk_nope_head_dim", "is too large for so many heads") end
  qkv_bias = bool("attention_bias", false)
  o_bias = qkv_bias
  attention_scale = read_scale()
  read_rope("rope", turned)
end

-- The fields of both. defaults: what a config without a field means.
function read_deepseek(d)
  d.head_dim = int("qk_rope_head_dim", 64)
  if d.head_dim % 2 ~= 0 then refuse("qk_rope_head_dim", "must be even") end
  read_decoder(d)
  head_dim = d.head_dim
  read_latent(d)
  expect("mlp_bias", false)
  if number("moe_layer_freq", 1) ~= 1 then refuse("moe_layer_freq", "must be 1") end
  read_routed(d)
end

-- ---- attention ----

-- The norms of latents, whose epsilon is no field.
local function latent_norm(name, x, from, size)
  return (node({name, name .. "_rstd"}, "npu.rms_norm", {x, weight(from .. ".weight", size)}, "epsilon=1e-06"))
end

-- The two parts of queries, [rows, heads, plain] and [rows, heads, turned].
local function queries(x, prefix)
  local q, size = nil, heads * (plain + turned)
  if latent_q then
    local c = whole_linear("q_a", x, prefix .. "q_a_proj", latent_q, hidden, qkv_bias)
    q = linear("q", latent_norm("q_c", c, prefix .. "q_a_layernorm", latent_q), prefix .. "q_b_proj", size, latent_q)
  else
    q = linear("q", x, prefix .. "q_proj", size, hidden)
  end
  return node({"q_plain", "q_rope"}, "aten.split_with_sizes", {reshape("qh", q, heads, plain + turned)},
    format("split_sizes=[%d, %d], dim=2", plain, turned))
end

-- Writes the latents and the turned parts of keys to the cache. Returns its values.
local function write_latents(x, prefix, rope)
  local both = whole_linear("kv_a", x, prefix .. "kv_a_proj_with_mqa", latent + turned, hidden, qkv_bias)
  local c, k = node({"kv_c", "k_rope"}, "aten.split_with_sizes", {both}, format("split_sizes=[%d, %d], dim=1", latent, turned))
  c = reshape("c", latent_norm("kv_cn", c, prefix .. "kv_a_layernorm", latent), 1, latent)
  k = rotated("k", reshape("kh", k, 1, turned), 1, rope)
  local latents, ropes = cache(1, latent, turned)
  emit(format("  npu.scatter_pa_kv_cache(%s, %s, %%slots, %s, %s)\n", c, k, latents, ropes))
  return latents, ropes
end

-- x of each head, [rows, heads, a], times the head's own matrix. turns: the order of its dimensions for [heads, a, b].
local function by_head(name, x, w, turns)
  return node(name, "npu.transpose_batchmatmul", {x, w}, format("perm_x1=[1, 0, 2], perm_x2=[%s], perm_y=[1, 0, 2]", turns))
end

-- W_UK and W_UV, and the order of W_UK's dimensions for [heads, plain, latent]. A checkpoint has both in one weight, and a
-- GGUF file of today each by itself, W_UK turned.
local function up_weights(prefix)
  local floats = dtype(prefix .. "kv_a_layernorm.weight")
  if stored(prefix .. "k_b_proj.weight") then
    return stacked_floats("up_k", prefix .. "k_b_proj", heads, latent, plain, floats),
      stacked_floats("up_v", prefix .. "v_b_proj", heads, value_dim, latent, floats), "0, 2, 1"
  end
  local kv_b = float_weight("kv_b", prefix .. "kv_b_proj", heads * (plain + value_dim), latent, "rows", floats)
  kv_b = node("kv_b", "aten.view", {kv_b}, format("size=[%d, %d, %d]", heads, plain + value_dim, latent))
  local up_k, up_v = node({"up_k", "up_v"}, "aten.split_with_sizes", {kv_b},
    format("split_sizes=[%d, %d], dim=1", plain, value_dim))
  return up_k, up_v, "0, 1, 2"
end

function attention(i, x, rope)
  local prefix = format("model.layers.%d.self_attn.", i)
  local q, q_rope = queries(x, prefix)
  local latents, ropes = write_latents(x, prefix, rope)
  local up_k, up_v, turns = up_weights(prefix)
  local att = node("att", "npu.fused_infer_attention_score",
    {by_head("q_c_h", q, up_k, turns), latents, latents, "%block_table", "%query_lens", "%context_lens",
      rotated("q_rope", q_rope, heads, rope), ropes},
    format("num_heads=%d, num_key_value_heads=1, scale=%.17g, block_size=%d", heads, attention_scale, block_size))
  att = reshape("flat", by_head("att_v", att, up_v, "0, 2, 1"), heads * value_dim)
  return summed_linear("o", att, prefix .. "o_proj", hidden, heads * value_dim, o_bias)
end
