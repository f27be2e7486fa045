-- SPDX-License-Identifier: Apache-2.0
--
-- Linears with weights as GPTQ (AutoGPTQ, GPTQModel) and AWQ (AutoAWQ, version gemm) store them: columns of K, several
-- numbers in an i32. Both have NAME.qweight, NAME.scales [groups, out] and NAME.qzeros; GPTQ has NAME.g_idx, the group of
-- each column. The daemon turns them into rows of K while it loads them. quantised.lua includes this file.

local Q = "quantization_config."

local packed        -- "gptq" or "awq"; nil: weights are not stored so
local bits          -- 4 or 8
local group         -- columns that share a scale; nil: all of a row do
local zeros         -- the kind of the zero points; nil: they are in the middle of the range
local chosen        -- the names of a layer's linears that are quantised; nil: all
local left_out = {} -- functions that say whether a linear is not quantised
local known = {}    -- what is_packed has said of names

local function read_group(key)
  local size = number(Q .. key, 128)
  if size ~= -1 and (size <= 0 or size % 32 ~= 0 or size > 2^31) then refuse(Q .. key, "must be -1 or a multiple of 32") end
  size = floor(size)
  group = size ~= -1 and size or nil
end

-- ---- GPTQ ----

-- GPTQModel's settings by patterns of names: the first one that matches counts, and "-:" leaves linears as floats.
local function read_dynamic()
  local patterns = {}
  for _, key in ipairs(keys(Q .. "dynamic") or {}) do
    if sub(key, 1, 2) ~= "-:" then
      refuse(Q .. "dynamic", format("has %s: settings of some linears are not supported, only \"-:\"", sub(key, 1, 40)))
    end
    insert(patterns, sub(key, 3))
  end
  insert(left_out, matcher(patterns, Q .. "dynamic"))
end

-- Lists of names within a layer, which were quantised one after another.
local function read_chosen()
  local key = Q .. "modules_in_block_to_quantize"
  local lists = list(key, true)
  if not lists then return end
  chosen = {}
  for _, names in ipairs(lists) do
    for _, name in ipairs(type(names) == "table" and names or {names}) do
      if type(name) ~= "string" then corrupt(key, "must have lists of names") end
      chosen[name] = true
    end
  end
end

local function read_gptq()
  bits = int(Q .. "bits")
  if bits ~= 4 and bits ~= 8 then refuse(Q .. "bits", "must be 4 or 8") end
  read_group "group_size"
  local form = text(Q .. "checkpoint_format", text(Q .. "format", "gptq"))
  if form ~= "gptq" and form ~= "gptq_v2" then refuse(Q .. "checkpoint_format", "must be gptq or gptq_v2") end
  expect(Q .. "is_marlin_format", false, "is true: weights in Marlin's order are not supported")
  expect(Q .. "pack_dtype", "int32", "must be int32")
  expect(Q .. "lm_head", false, "is true: a quantised lm_head is not supported")
  expect(Q .. "block_name_to_quantize", "model.layers", "must be model.layers")
  bool(Q .. "desc_act", false) -- act-order: g_idx has the order
  -- A symmetric range needs no zero points, and those in files are wrong: some have 8 where the format stores 8 - 1.
  if not bool(Q .. "sym", true) then zeros = format("%s_int%d_zeros", form, bits) end
  read_dynamic()
  read_chosen()
end

-- ---- AWQ ----

local function read_awq()
  local key = has(Q .. "w_bit") and "w_bit" or "bits"
  bits = int(Q .. key, 4)
  if bits ~= 4 then refuse(Q .. key, "must be 4") end
  read_group(has(Q .. "q_group_size") and "q_group_size" or "group_size")
  local version = text(Q .. "version", "gemm")
  if version ~= "gemm" and version ~= "GEMM" then refuse(Q .. "version", "must be gemm") end
  expect(Q .. "backend", "autoawq", "must be autoawq")
  expect(Q .. "zero_point", true, "is false: weights without zero points are not supported")
  zeros = "awq_int4_zeros"
  local names = list(Q .. "modules_to_not_convert") or {}
  for _, part in ipairs(names) do
    if type(part) ~= "string" or part == "" then corrupt(Q .. "modules_to_not_convert", "must be a list of names") end
    insert(left_out, function(name) return contains(name, part) end)
  end
end

-- ---- both ----

-- Reads quantization_config, if it is one of these. Returns whether it is.
function read_packed(method)
  if method ~= "gptq" and method ~= "awq" then return false end
  packed = method
  if method == "gptq" then read_gptq() else read_awq() end
  return true
end

-- The name of a module within its layer, "mlp.up_proj"; nil: it is in none.
local function name_in_layer(from)
  local prefix = "model.layers."
  if sub(from, 1, #prefix) ~= prefix then return nil end
  local at = #prefix + 1
  while at <= #from and sub(from, at, at) ~= "." do at = at + 1 end
  return sub(from, at + 1)
end

local function is_converted(from)
  local name = name_in_layer(from)
  if not name or chosen and not chosen[name] then return false end
  for _, is_left_out in ipairs(left_out) do
    if is_left_out(from) then return false end
  end
  return true
end

function is_packed(from)
  if packed and known[from] == nil then known[from] = is_converted(from) end
  return known[from] or false
end

local function check_sizes(from, out, features)
  local numbers = 32 // bits
  if packed == "gptq" and features % numbers ~= 0 then
    refuse(Q .. "bits", format("packs %d columns; %s has %d on a device", numbers, from, features))
  end
  if zeros and out % numbers ~= 0 then
    refuse(Q .. "bits", format("packs %d rows; %s has %d on a device", numbers, from, out))
  end
  if bits == 4 and features % 8 ~= 0 then
    refuse(Q .. "bits", format("needs columns in eights; %s has %d on a device", from, features))
  end
  if group and features % group ~= 0 then
    refuse(Q .. "group_size", format("is %d, which must divide the %d columns of %s on a device", group, features, from))
  end
end

-- As quantised_parts.
function packed_parts(from, out, features, split, fixed)
  check_sizes(from, out, features)
  local q = weight(from .. ".qweight", out, bits == 4 and features // 8 or features, split, format("%s_int%d", packed, bits))
  local groups, scale_split = 1, split == "rows" and split or nil
  if group then groups, scale_split = features // group, split end
  local s = weight(from .. ".scales", out, groups, scale_split, "transpose")
  local z = zeros and weight(from .. ".qzeros", out, groups, scale_split, zeros)
  local order = packed == "gptq" and order_of(from .. ".g_idx", from .. ".qweight", features, split, group, fixed)
  return {q = q, s = s, z = z or nil, group = group, order = order or nil}
end
