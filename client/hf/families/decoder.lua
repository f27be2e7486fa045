-- SPDX-License-Identifier: Apache-2.0
--
-- Decoders: what the families beside this file have in common. A family includes it, reads its fields of config.json,
-- and may define a layer(i, s, rope) of its own. docs/families.md describes the calls (int, weight, emit, ...).
--
-- Values are names of the graph's text, "%q.3". Shapes are [rows, features]; heads are [rows, heads, head_dim].
-- Sizes are those of a rank, where ranks divide the model.

include "quantised"
include "gguf"

-- ---- nodes ----

local current -- the layer that is written; nil before the first one and behind the last one

-- node("q", operator, {operands}, attributes) or node({"n", "rstd"}, ...). Returns the results.
function node(names, operator, operands, attributes)
  local results = {}
  for k, name in ipairs(type(names) == "table" and names or {names}) do
    results[k] = "%" .. name .. (current and "." .. current or "")
  end
  emit(format("  %s = %s(%s)%s\n", concat(results, ", "), operator, concat(operands, ", "),
    attributes and " {" .. attributes .. "}" or ""))
  return unpack(results)
end

function reshape(name, x, ...)
  return node(name, "aten.view", {x}, format("size=[%s, %s]", rows, concat({...}, ", ")))
end

function scaled(name, x, factor)
  return factor == 1 and x or node(name, "aten.mul.Scalar", {x}, format("other=%.17g", factor))
end

-- ---- products ----

-- A rank's part of y = x * w^T (+ b), whose weight the ranks divide by rows or columns, or all have ("whole"). from: the
-- tensors' name without ".weight". out, features: rows and columns of the weight.
local function product(name, x, from, out, features, bias, split)
  local function bias_value()
    return bias and weight(from .. ".bias", out, nil, split == "columns" and "first" or split) or nil
  end
  if blocks_of(from) then return block_linear(name, x, from, out, features, bias_value(), split) end
  if is_quantised(from) then return quantised_linear(name, x, from, out, features, bias_value(), split) end
  return node(name, "aten.linear", {x, weight(from .. ".weight", out, features, split), bias_value()})
end

-- The sum of what the ranks have made; make(name) makes a rank's part.
local function summed(name, make)
  if ranks == 1 then return make(name) end
  local y = make(name .. "_part")
  y = node(name .. "_sum", "_c10d_functional.all_reduce", {y}, 'reduce_op="sum", group_name="tp"')
  return node(name, "_c10d_functional.wait_tensor", {y})
end

-- The product with rows divided, so that each rank has some features of y.
function linear(name, x, from, out, features, bias)
  return product(name, x, from, out, features, bias, "rows")
end

-- The product that each rank makes whole.
function whole_linear(name, x, from, out, features, bias)
  return product(name, x, from, out, features, bias, "whole")
end

-- The product with columns divided: each rank has some features of x, and the ranks' results are summed.
function summed_linear(name, x, from, out, features, bias)
  return summed(name, function(part) return product(part, x, from, out, features, bias, "columns") end)
end

-- ---- norms ----

norm_kind = "rms"   -- "rms"; "gemma": an RMS norm times 1 + gamma; "layer"
norm_bias = false   -- of "layer"
norm_eps = 1e-6

-- A norm of x by itself, over its last dimension.
function norm_of(name, x, from, size)
  local gamma = weight(from .. ".weight", size)
  if norm_kind == "layer" then
    return node(name, "aten.layer_norm", {x, gamma, norm_bias and weight(from .. ".bias", size) or nil},
      format("normalized_shape=[%d], eps=%.17g", size, norm_eps))
  end
  local operator = norm_kind == "gemma" and "npu.gemma_rms_norm" or "npu.rms_norm"
  return (node({name, name .. "_rstd"}, operator, {x, gamma}, format("epsilon=%.17g", norm_eps)))
end

-- ---- the residual stream: s.x, plus s.pending that is not added yet, so that a norm can do it ----

function stream(x) return {x = x} end

function sum(s, name)
  if s.pending then
    s.x = node(name or "x", "aten.add.Tensor", {s.x, s.pending})
    s.pending = nil
  end
  return s.x
end

function add(s, y)
  if s.pending then sum(s, "x_mid") end
  s.pending = y
end

-- The norm of the stream.
function norm(s, name, from)
  if not s.pending or norm_kind ~= "rms" then
    return norm_of(name, sum(s, name .. "_x"), from, hidden)
  end
  local y
  y, _, s.x = node({name, name .. "_rstd", name .. "_x"}, "npu.add_rms_norm",
    {s.x, s.pending, weight(from .. ".weight", hidden)}, format("epsilon=%.17g", norm_eps))
  s.pending = nil
  return y
end

-- ---- attention ----

qkv_bias, o_bias = false, false
qk_norm = false       -- true: heads of q and k have norms of their own; "all": one norm over all heads of a row;
                      -- "turned": norms of heads, behind their rotation
q_norm_name, k_norm_name = "q_norm", "k_norm"
qkv_fused = false     -- q, k and v are one weight, qkv_proj
rotary_dim = false    -- how many of a head's dimensions turn; false: all
rotary_pairs = false  -- true: a pair is two dimensions side by side, not one in each half
attention_scale = false -- false: 1 / sqrt(head_dim)
attention_sinks = false -- true: each row has a score without a value, by head
attention_cap = false -- scores s become cap * tanh(s / cap); false: they stay

-- How many keys a row of layer i sees, itself among them; nil: all.
function window_of(i) return nil end

-- Turned queries as attention takes them.
function grown_queries(q) return q end

-- Moves the even dimensions of each head into its first half and the odd ones into its second, since npu.rotary_mul pairs
-- the halves. q and k are ordered alike, so their products stay the same.
local function halves(name, x, heads, dim)
  x = node(name .. "_split", "aten.view", {x}, format("size=[%s, %d, %d, 2]", rows, heads, dim // 2))
  x = node(name .. "_turn", "aten.permute", {x}, "dims=[0, 1, 3, 2]")
  return node(name .. "_halves", "aten.reshape", {x}, format("shape=[%s, %d, %d]", rows, heads, dim))
end

local function turn(name, x, heads, dim, rope)
  if rotary_pairs then x = halves(name, x, heads, dim) end
  return node(name .. "r", "npu.rotary_mul", {x, rope.cos, rope.sin})
end

-- Turns heads by their positions. rope: {cos=, sin=} of the rows; nil: this layer has no positions.
function rotated(name, x, heads, rope)
  if not rope then return x end
  local dim = rotary_dim or head_dim
  if dim == head_dim then return turn(name, x, heads, dim, rope) end
  local first = node(name .. "_first", "aten.slice.Tensor", {x}, format("dim=2, start=0, end=%d", dim))
  local rest = node(name .. "_rest", "aten.slice.Tensor", {x}, format("dim=2, start=%d, end=%d", dim, head_dim))
  return node(name .. "_turned", "aten.cat", {turn(name, first, heads, dim, rope), rest}, "dim=2")
end

local function heads_of(name, x, n, from, rope)
  if qk_norm == "all" then x = norm_of(name .. "n", x, from, n * head_dim) end
  x = reshape(name .. "h", x, n, head_dim)
  if qk_norm == true then x = norm_of(name .. "n", x, from, head_dim) end
  x = rotated(name, x, n, rope)
  return qk_norm == "turned" and norm_of(name .. "n", x, from, head_dim) or x
end

-- q, k and v of rows [rows, heads * head_dim].
local function project(n, prefix)
  local q, kv = heads * head_dim, kv_heads * head_dim
  if qkv_fused then
    local all = linear("qkv", n, prefix .. "qkv_proj", q + 2 * kv, hidden, qkv_bias)
    return node({"q", "k", "v"}, "aten.split_with_sizes", {all}, format("split_sizes=[%d, %d, %d], dim=1", q, kv, kv))
  end
  return linear("q", n, prefix .. "q_proj", q, hidden, qkv_bias),
    linear("k", n, prefix .. "k_proj", kv, hidden, qkv_bias),
    linear("v", n, prefix .. "v_proj", kv, hidden, qkv_bias)
end

-- Writes the rows' keys and values to the cache of one more layer, and attends to what it has of each row's sequence. q, k,
-- v: [rows, heads, dim]. a: heads, kv_heads, dim, window (nil: all keys), cap, scale (false: 1 / sqrt(dim)), sinks (a value).
function attend(name, q, k, v, a)
  local window = a.window and a.window < positions and a.window or nil
  local keys, values, slots, blocks, key_scale, value_scale = cache(a.kv_heads, a.dim, a.value_dim, window, true)
  emit(format("  npu.scatter_pa_kv_cache(%s)\n", concat({k, v, slots, keys, values, key_scale, value_scale}, ", ")))
  local options = ""
  if window then options = format(", sparse_mode=4, pre_tokens=%d, next_tokens=0", window - 1) end
  if a.cap then options = options .. format(", soft_cap=%.17g", a.cap) end
  local operands = {q, keys, values, blocks, "%query_lens", "%context_lens"}
  if a.sinks or key_scale then
    for _, operand in ipairs {"none", "none", a.sinks or "none", key_scale, value_scale} do insert(operands, operand) end
  end
  if key_scale then options = options .. ", key_antiquant_mode=5, value_antiquant_mode=5" end
  return node(name, "npu.fused_infer_attention_score", operands,
    format("num_heads=%d, num_key_value_heads=%d, scale=%.17g, block_size=%d", a.heads, a.kv_heads, a.scale or 1 / sqrt(a.dim),
      block_size) .. options)
end

-- Attention of layer i for its normed rows n.
function attention(i, n, rope)
  local prefix = format("model.layers.%d.self_attn.", i)
  local q, k, v = project(n, prefix)
  q = grown_queries(heads_of("q", q, heads, prefix .. q_norm_name, rope))
  k = heads_of("k", k, kv_heads, prefix .. k_norm_name, rope)
  v = reshape("vh", v, kv_heads, head_dim)
  local att = attend("att", q, k, v, {heads = heads, kv_heads = kv_heads, dim = head_dim, window = window_of(i),
    cap = attention_cap, scale = attention_scale, sinks = attention_sinks and weight(prefix .. "sinks", heads, nil, "rows")})
  att = reshape("flat", att, heads * head_dim)
  return summed_linear("o", att, prefix .. "o_proj", hidden, heads * head_dim, o_bias)
end

-- ---- MLP ----

mlp_bias = false
gate_fused = false  -- gate and up are one weight, gate_up_proj
activation = "silu" -- or "gelu", "gelu_tanh", "relu2"

local function activated(x, tag)
  if activation == "silu" then return node(tag .. "act", "aten.silu", {x}) end
  if activation == "relu2" then
    local positive = node(tag .. "relu", "aten.relu", {x})
    return node(tag .. "act", "aten.mul.Tensor", {positive, positive})
  end
  return node(tag .. "act", "aten.gelu", {x}, activation == "gelu_tanh" and 'approximate="tanh"' or nil)
end

-- activation(gate) * up
function gated(gate, up, tag)
  return node(tag .. "prod", "aten.mul.Tensor", {activated(gate, tag), up})
end

-- The MLP with so many features whose tensors' names begin with prefix. tag: what the names of its nodes begin with.
function mlp_of(m, prefix, features, tag)
  local gate, up
  if gate_fused then
    local both = linear(tag .. "gate_up", m, prefix .. "gate_up_proj", 2 * features, hidden, mlp_bias)
    gate, up = node({tag .. "gate", tag .. "up"}, "aten.split_with_sizes", {both},
      format("split_sizes=[%d, %d], dim=1", features, features))
  else
    gate = linear(tag .. "gate", m, prefix .. "gate_proj", features, hidden, mlp_bias)
    up = linear(tag .. "up", m, prefix .. "up_proj", features, hidden, mlp_bias)
  end
  return summed_linear(tag .. "down", gated(gate, up, tag), prefix .. "down_proj", hidden, features, mlp_bias)
end

function mlp(i, m) return mlp_of(m, format("model.layers.%d.mlp.", i), ffn, "") end

-- An MLP without a gate: down(activation(up(m))), by the names of its two modules.
function plain_mlp(m, prefix, up, down)
  local act = activated(linear("up", m, prefix .. up, ffn, hidden, mlp_bias), "")
  return summed_linear("down", act, prefix .. down, hidden, ffn, mlp_bias)
end

-- ---- mixture of experts ----

local GROUPED = "group_list_type=1, transpose_weight=true"

-- The weights of n experts as one of quantised_parts each. from: a format of their names.
local function expert_parts(n, from, out, features, split)
  local parts = {}
  for e = 0, n - 1 do
    local name = format(from, e)
    if not is_quantised(name) then refuse("quantization_config", "must quantise all experts of a layer, or none") end
    parts[e + 1] = quantised_parts(name, out, features, split, true)
  end
  return parts
end

local function insert_all(operands, parts, key)
  for _, w in ipairs(parts) do insert(operands, w[key]) end
end

-- y = x * w_e^T for the rows of each expert e. from: a format of the weights' names, without ".weight".
function grouped(name, x, counts, n, from, out, features, split)
  local operands, attributes, all = {x, counts}, GROUPED, name_of_all(from)
  if stored(all .. ".weight") then return block_experts(name, x, counts, n, all, out, features) end
  if is_quantised(format(from, 0)) then
    local parts = expert_parts(n, from, out, features, split)
    local first = parts[1]
    insert_all(operands, parts, "q")
    insert_all(operands, parts, "s")
    insert_all(operands, parts, "z")
    attributes = format("%s, antiquant_scale=true, antiquant_offset=%s, antiquant_group_size=%d, antiquant_group_columns=%d",
      GROUPED, first.z and "true" or "false", first.group or 0, first.rows or 1)
  else
    for e = 0, n - 1 do
      local expert = format(from, e)
      if is_quantised(expert) then refuse("quantization_config", "must quantise all experts of a layer, or none") end
      insert(operands, weight(expert .. ".weight", out, features, split))
    end
  end
  return node(name, "npu.grouped_matmul", operands, attributes)
end

-- y = x * w_e^T for the rows of each expert e, plus b_e if there is a bias. MXFP4: a row of K is [K / 32, 16] bytes, and a
-- power of two for each 32 columns; the weights of all experts are one tensor.
function mxfp4_experts(name, x, counts, n, from, out, features, bias)
  if features % 32 ~= 0 then
    refuse("quantization_config.quant_method", format("is mxfp4: %s has rows of %d, no multiple of 32", from, features))
  end
  local function numbers() return tensor(from .. "_blocks", {n, out, features // 32, 16}, "f4") end
  local function scales() return tensor(from .. "_scales", {n, out, features // 32}, "e8m0") end
  if widens_mxfp4 then
    local w = mxfp4_floats(name, from, n, out, features, bias and dtype(from .. "_bias"), function() return numbers(), scales() end)
    return node(name, "npu.grouped_matmul", {x, counts, w, bias}, format("%s, bias=%s", GROUPED, tostring(bias ~= nil)))
  end
  local operands = {x, counts, node(name .. "_w", "aten.view", {numbers()}, format("size=[%d, %d, %d]", n, out, features // 2))}
  if bias then insert(operands, bias) end
  insert(operands, scales())
  return node(name, "npu.grouped_matmul", operands, format("group_list_type=1, transpose_weight=true, bias=%s, " ..
    "antiquant_scale=true, antiquant_group_size=32", tostring(bias ~= nil)))
end

-- The k experts to which the logits of a row give the largest shares: their shares and their numbers. normed: the k
-- shares have the sum 1.
function largest_shares(logits, k, normed)
  local scales, chosen = node({"scales", "chosen"}, "npu.moe_gating_top_k_softmax", {logits}, format("k=%d", k))
  if normed then
    local total = node("scales_sum", "aten.sum.dim_IntList", {scales}, "dim=[-1], keepdim=true")
    scales = node("scales_normed", "aten.div.Tensor", {scales, total})
  end
  return scales, chosen
end

-- The rows of x in the order of the experts that each row has, how many rows each expert has, and where each went.
function by_expert(x, chosen, n)
  local routed, to, counts = node({"routed", "routed_to", "routed_n"}, "npu.moe_init_routing_v2", {x, chosen},
    format("expert_num=%d", n))
  return routed, counts, to
end

-- The sum of the chosen experts of n, times their scales. m: names of modules (of expert %d: w1 for the gate, w3 up, w2
-- down); features: of an expert on this rank.
function mixture(x, m, n, features, scales, chosen)
  local routed, counts, to = by_expert(x, chosen, n)
  local gate = grouped("gate", routed, counts, n, m.w1, features, hidden, "rows")
  local up = grouped("up", routed, counts, n, m.w3, features, hidden, "rows")
  local product = gated(gate, up, "")
  return summed("moe", function(part)
    local down = grouped("down", product, counts, n, m.w2, hidden, features, "columns")
    return node(part, "npu.moe_finalize_routing", {down, scales, to})
  end)
end

-- The sum of the chosen experts of x, times their scales, whose weights are two tensors for all experts: both (the gate's
-- rows, then up's) and down. turned: a weight is [n, out, features], not [n, features, out]. For one device.
function stacked_mixture(x, both, down, n, features, scales, chosen, turned)
  local routed, counts, to = by_expert(x, chosen, n)
  local function product(name, rows, from, out, columns)
    local w = turned and tensor(from, {n, out, columns}) or tensor(from, {n, columns, out})
    return node(name, "npu.grouped_matmul", {rows, counts, w}, "group_list_type=1, transpose_weight=" .. tostring(turned))
  end
  local gate, up = node({"gate", "up"}, "aten.split_with_sizes", {product("gate_up", routed, both, 2 * features, hidden)},
    format("split_sizes=[%d, %d], dim=1", features, features))
  return node("moe", "npu.moe_finalize_routing", {product("down", gated(gate, up, ""), down, hidden, features), scales, to})
end

-- The mixture of the k experts that a softmax over the gate (the module m.gate) chooses.
function experts(x, m, n, k, features, normed)
  local router = node("router", "aten.linear", {x, weight(m.gate .. ".weight", n, hidden)})
  local scales, chosen = largest_shares(router, k, normed)
  return mixture(x, m, n, features, scales, chosen)
end

-- Names of the modules of an MLP whose experts have the names of an MLP.
function experts_of(prefix)
  return {gate = prefix .. "gate", w1 = prefix .. "experts.%d.gate_proj", w2 = prefix .. "experts.%d.down_proj",
    w3 = prefix .. "experts.%d.up_proj"}
end

-- The same of Mixtral.
function mixtral_experts_of(prefix)
  return {gate = prefix .. "gate", w1 = prefix .. "experts.%d.w1", w2 = prefix .. "experts.%d.w2", w3 = prefix .. "experts.%d.w3"}
end

-- Reads which layers have experts: each decoder_sparse_step-th one that mlp_only_layers does not name. Returns the
-- function that says so.
function read_sparse_layers()
  local step, dense = int("decoder_sparse_step", 1), {}
  for _, i in ipairs(list "mlp_only_layers" or {}) do dense[i] = true end
  return function(i) return not dense[i] and (i + 1) % step == 0 end
end

-- The numbers of experts, and of those that a row has. transformers 5 may call the first one num_local_experts.
function read_experts(number_key, number, chosen_key, chosen)
  if not given(number_key) and has "num_local_experts" then number_key = "num_local_experts" end
  local n, k = int(number_key, number), int(chosen_key, chosen)
  if n > 256 then refuse(number_key, "is larger than 256") end
  if k > n then corrupt(chosen_key, "is larger than " .. number_key) end
  return n, k
end

-- ---- config.json ----

-- Refuses a field unless it is absent or has this value.
function expect(key, value, what)
  local read = type(value) == "boolean" and bool or text
  if read(key, value) ~= value then refuse(key, what or format("must be %s", tostring(value))) end
end

local ACTIVATIONS = {silu = "silu", swish = "silu", gelu = "gelu", gelu_pytorch_tanh = "gelu_tanh", relu2 = "relu2"}

local function read_activation(key, default)
  activation = ACTIVATIONS[text(key, default)] or refuse(key, "must be silu, gelu, gelu_pytorch_tanh or relu2")
end

-- Gives layers a sliding window of so many keys: those that layer_types names so, or without that field those for which
-- slides(i) is true (nil: none). Returns the function that says which.
function read_windows(window, slides)
  local kinds = list "layer_types"
  for _, kind in ipairs(kinds or {}) do
    if kind ~= "sliding_attention" and kind ~= "full_attention" then
      refuse("layer_types", "names layers that are neither sliding_attention nor full_attention")
    end
    if kind == "sliding_attention" and not window then
      corrupt("layer_types", "names sliding layers, but there is no sliding window")
    end
  end
  if kinds and #kinds ~= layers then corrupt("layer_types", "must have a name for each layer") end
  local function has_window(i)
    if kinds then return kinds[i + 1] == "sliding_attention" end
    return slides and slides(i)
  end
  function window_of(i) return has_window(i) and window or nil end
  return has_window
end

-- The fields of Qwen: layers from max_window_layers on have a window, if use_sliding_window is set.
function read_qwen_windows()
  local window = bool("use_sliding_window", false) and (not given "sliding_window" and 4096 or
    has "sliding_window" and int "sliding_window")
  local first = number("max_window_layers", 28)
  read_windows(window, function(i) return window and i >= first end)
end

-- A soft cap, or false.
function read_cap(key, default)
  local cap = default or false
  if given(key) then cap = has(key) and number(key) end
  if cap and not (cap > 0) then corrupt(key, "must be positive, or null") end
  return cap
end

-- The fields that all decoders have. defaults: by the name of the field, what a config without it means in this family.
function read_decoder(defaults)
  local d = defaults or {}
  vocab, hidden, layers = int("vocab_size", d.vocab_size), int("hidden_size", d.hidden_size),
    int("num_hidden_layers", d.num_hidden_layers)
  heads = int("num_attention_heads", d.num_attention_heads)
  kv_heads = int("num_key_value_heads", d.num_key_value_heads or heads)
  head_dim = int("head_dim", d.head_dim or max(hidden // heads, 1))
  ffn = int("intermediate_size", d.intermediate_size)
  max_positions = int("max_position_embeddings", d.max_position_embeddings or 2048)
  positions = max_positions
  local eps = d.layer_norm_eps and "layer_norm_eps" or d.norm_epsilon and "norm_epsilon" or "rms_norm_eps"
  norm_eps = number(eps, d[eps] or 1e-6)
  rotary_pairs = rotary_pairs or bool("gguf.rotary_pairs", false)
  tied = bool("tie_word_embeddings", d.tie_word_embeddings or false)
  -- Files with other parts may say it in two places, one of which is a default: the file's own head counts.
  if parts then tied = (tied or d.tie_word_embeddings or false) and not head_in_file end
  local act = d.hidden_activation and "hidden_activation" or "hidden_act"
  read_activation(act, d[act] or "silu")
  if norm_eps < 0 then corrupt(eps, "must not be negative") end
  read_quantisation()
  expect("is_causal", true)
  expect("use_bidirectional_attention", false)
  if is_quantised "lm_head" then refuse("quantization_config.ignore", "must have lm_head: a quantised one is not supported") end
  if heads % kv_heads ~= 0 then corrupt("num_attention_heads", "must be a multiple of num_key_value_heads") end
  if head_dim % 2 ~= 0 then refuse("head_dim", "must be even") end
  if layers > 1024 then refuse("num_hidden_layers", "is larger than 1024") end
  heads, kv_heads = divide("num_attention_heads", heads), divide("num_key_value_heads", kv_heads)
  ffn = divide("intermediate_size", ffn)
end

-- Ends contexts where positions would have other meanings.
function contexts_within(most)
  positions = min(positions, most)
end

-- ---- rotary positions ----

local function yarn(field, factor)
  local function magnitude(m) return factor <= 1 and 1 or 0.1 * m * log(factor) + 1 end
  local m, all = number(field "mscale", 0), number(field "mscale_all_dim", 0)
  local scale = m > 0 and all > 0 and magnitude(m) / magnitude(all) or magnitude(1)
  return {kind = "yarn", factor = factor, original = number(field "original_max_position_embeddings", max_positions),
    beta_fast = number(field "beta_fast", 32), beta_slow = number(field "beta_slow", 1),
    truncate = bool(field "truncate", true), scale = number(field "attention_factor", scale)}
end

local function llama3(field, factor)
  local low, high = number(field "low_freq_factor", 1), number(field "high_freq_factor", 4)
  if high <= low then corrupt(field "high_freq_factor", "must be larger than low_freq_factor") end
  return {kind = "llama3", factor = factor, low_freq_factor = low, high_freq_factor = high,
    original = number(field "original_max_position_embeddings", max_positions)}
end

longrope_original = false -- the positions of training of a config that does not name them; false: all
yarn_is_longrope = false  -- "yarn" is an old name of longrope

-- Contexts up to the positions of training use the short factors; a longer one would use the long ones for all of its
-- positions. So contexts end there. transformers 4 reads the positions of training at the top of config.json, where they
-- decide the factor too; transformers 5 reads both in rope_parameters.
local function longrope(field)
  local key = "original_max_position_embeddings"
  local original, factor = max_positions, nil
  if object "rope_parameters" and has(field(key)) then
    original = int(field(key))
    factor = number(field "factor", max_positions / original)
  elseif has(key) or longrope_original then
    original = int(key, longrope_original or nil)
    factor = max_positions / original
  else
    factor = number(field "factor")
  end
  local scale = factor <= 1 and 1 or sqrt(1 + log(factor) / log(original))
  contexts_within(original)
  return {kind = "longrope", factors = list(field "short_factor"), scale = number(field "attention_factor", scale)}
end

local ropes = {}

-- Declares rotary tables. Older files have rope_theta and rope_scaling; newer ones have both in rope_parameters. theta:
-- of a file that names none. where: the object that has all fields, if it is another one; "": none has them. Returns their
-- settings, which the family may change.
function read_rope(name, dim, theta, where)
  local whole = where == nil
  if whole then where = object "rope_parameters" and "rope_parameters" or object "rope_scaling" and "rope_scaling" or "" end
  local function field(key) return where .. "." .. key end
  if whole and (has(field "full_attention") or has(field "sliding_attention")) then
    refuse(where, "has tables for kinds of layers: this family has one for all")
  end
  local kind = text(field "rope_type", text(field "type", "default"))
  if kind == "mrope" then kind = "default" end -- the three positions of a text's token are one
  if kind == "su" or kind == "yarn" and yarn_is_longrope then kind = "longrope" end
  local factor = 1
  if kind == "linear" or kind == "yarn" or kind == "llama3" then factor = number(field "factor") end
  local r
  if not (factor > 0) then corrupt(field "factor", "must be a positive number") end
  if kind == "default" then r = {}
  elseif kind == "linear" then r = {kind = kind, factor = factor}
  elseif kind == "llama3" then r = llama3(field, factor)
  elseif kind == "yarn" then r = yarn(field, factor)
  elseif kind == "longrope" then r = longrope(field)
  elseif kind == "dynamic" then -- as "default" up to the positions of training
    r = {}
    contexts_within(int(field "original_max_position_embeddings", max_positions))
  else refuse(where, "must be of type default, linear, dynamic, llama3, yarn or longrope") end
  theta = theta or 10000
  r.theta = number(field "rope_theta", whole and number("rope_theta", theta) or theta)
  if not (r.theta > 0) then corrupt("rope_theta", "must be a positive number") end
  insert(ropes, {name = name, dim = dim, settings = r})
  return r
end

-- Declares the tables "rope", of layers that see all keys, and "rope_window", of those with a window. Newer files have
-- both in rope_parameters.full_attention and .sliding_attention; in older ones the second ones have a theta and no scaling.
-- window_theta(): that one.
function read_ropes_by_window(theta, window_theta)
  if object "rope_parameters" and (has "rope_parameters.full_attention" or has "rope_parameters.sliding_attention") then
    read_rope("rope", head_dim, theta, "rope_parameters.full_attention")
    read_rope("rope_window", head_dim, window_theta(), "rope_parameters.sliding_attention")
  else
    read_rope("rope", head_dim, theta)
    read_rope("rope_window", head_dim, window_theta(), "")
  end
end

-- Cosines and sines of the rows' positions, by the name of the tables.
local function rope_rows()
  local of = {}
  for k, r in ipairs(ropes) do
    local cos, sin = rope(r.name, r.dim, r.settings)
    local suffix = k > 1 and k or ""
    of[r.name] = {cos = node("cos" .. suffix, "aten.embedding", {cos, "%positions"}),
      sin = node("sin" .. suffix, "aten.embedding", {sin, "%positions"})}
  end
  return of
end

-- ---- the model ----

embedding_scale = 1
logits_scale = 1
logits_cap = false -- as attention_cap

local function embedded()
  if blocks_of "model.embed_tokens" then return scaled("x_scaled", block_rows("x", "model.embed_tokens"), embedding_scale) end
  local table = weight("model.embed_tokens.weight", vocab, hidden)
  local wide = dtype "model.embed_tokens.weight" == "f32"
  local x = node(wide and "x" or "emb", "aten.embedding", {table, "%tokens"})
  if not wide then x = node("x", "aten._to_copy", {x}, "dtype=f32") end
  return scaled("x_scaled", x, embedding_scale)
end

-- A prompt's last row is enough for the head.
local function pick_rows(s)
  if not prefill then return end
  s.x = node("x_row", "aten.index.Tensor", {s.x, "%logits_rows"})
  if s.pending then s.pending = node("y_row", "aten.index.Tensor", {s.pending, "%logits_rows"}) end
end

local function head(n)
  local from = tied and "model.embed_tokens" or "lm_head"
  local logits
  if blocks_of(from) then logits = block_linear("logits", n, from, vocab, hidden, nil, nil, tied)
  else logits = node("logits", "aten.linear", {n, weight(from .. ".weight", vocab, hidden)}) end
  logits = scaled("logits_scaled", logits, logits_scale)
  if not logits_cap then return logits end
  return scaled("logits_capped", node("logits_tanh", "aten.tanh", {scaled("logits_part", logits, 1 / logits_cap)}), logits_cap)
end

-- The name of the tables that layer i turns by; nil: it knows no positions.
function positions_of(i) return "rope" end

-- The norm behind the layers, for the rows that are asked for: with a mean of all rows, the head alone has fewer.
local function last_norm(s)
  if pooling ~= "mean" then pick_rows(s) end
  return norm(s, "final", "model.norm")
end

-- Writes the model; returns the logits (nil without a head), and the hidden states. layer(i, s, rope) is the family's.
function build()
  local tables = rope_rows()
  local s = stream(embedded())
  for i = 0, layers - 1 do
    current = i
    local name = positions_of(i)
    layer(i, s, name and tables[name])
  end
  current = nil
  local n = last_norm(s)
  if headless then return nil, n end
  if pooling == "mean" and prefill then return head(node("final_row", "aten.index.Tensor", {n, "%logits_rows"})), n end
  return head(n), n
end

-- A layer with norms before and behind attention and before and behind the MLP, by their tensors' names.
function layer_of_four_norms(before_attention, behind_attention, before_mlp, behind_mlp)
  return function(i, s, rope)
    local prefix = format("model.layers.%d.", i)
    local y = attention(i, norm(s, "n", prefix .. before_attention), rope)
    add(s, norm_of("y", y, prefix .. behind_attention, hidden))
    y = mlp(i, norm(s, "m", prefix .. before_mlp))
    add(s, norm_of("z", y, prefix .. behind_mlp, hidden))
  end
end

-- A layer with norms behind attention and behind the MLP.
function layer_of_norms_behind(i, s, rope)
  local prefix = format("model.layers.%d.", i)
  local y = attention(i, sum(s, "x_att"), rope)
  add(s, norm_of("y", y, prefix .. "post_attention_layernorm", hidden))
  y = mlp(i, sum(s, "x_mlp"))
  add(s, norm_of("z", y, prefix .. "post_feedforward_layernorm", hidden))
end

-- The usual layer: a norm before attention, and one before the MLP.
function layer(i, s, rope)
  local prefix = format("model.layers.%d.", i)
  add(s, attention(i, norm(s, "n", prefix .. "input_layernorm"), rope))
  add(s, mlp(i, norm(s, "m", prefix .. "post_attention_layernorm")))
end
