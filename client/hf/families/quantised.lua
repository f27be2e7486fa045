-- SPDX-License-Identifier: Apache-2.0
--
-- Linears with quantised weights, as compressed-tensors writes them (compressed_tensors/quantization of vLLM's project):
-- `int-quantized` has i8 weights, `pack-quantized` int4 or int8 ones in an i32. Both have NAME.weight_scale: [out, groups],
-- or [out, 1] with a scale for each row, or [1]; and NAME.weight_zero_point, if they are not symmetric. With
-- input_activations (W8A8) the rows of x are quantised too, while the model runs. `float-quantized` has f8_e4m3fn weights;
-- there rows stay floats, which is more exact than what input_activations ask for. decoder.lua includes this file and calls
-- quantised_linear.

include "patterns"
include "gptq"
include "fp8"

takes_mxfp4 = false -- true: the family takes quant_method mxfp4
has_mxfp4 = false   -- the checkpoint has it

local bits          -- 8 or 4; nil: weights are not quantised so
local packs         -- numbers are packed, as `pack-quantized`
local floats        -- weights are f8, as `float-quantized`
local zeros         -- the kind of the zero points; nil: there are none
local strategy      -- "group", "channel", "tensor"
local group         -- columns that share a scale, with "group"
local ordered       -- groups are of columns in another order: NAME.weight_g_idx has the group of each
local ignored = {}  -- names of linears that are not quantised
local is_ignored    -- the same for patterns
local with_rows     -- rows of x are quantised too
local fixed_rows    -- one scale for all of x is in the checkpoint

local WEIGHTS = "quantization_config.config_groups.group_0.weights"
local ROWS = "quantization_config.config_groups.group_0.input_activations"

local function field(key) return WEIGHTS .. "." .. key end
local function rows_field(key) return ROWS .. "." .. key end

local function is_absent(key, what)
  if has(key) then refuse(key, what) end
end

-- The name that a module has in a file of text alone.
local function name_of_text(name)
  if parts and sub(name, 1, 15) == "language_model." then return sub(name, 16) end
  if parts and sub(name, 1, 21) == "model.language_model." then return "model." .. sub(name, 22) end
  return name
end

local function read_ignored()
  local patterns = {}
  for _, name in ipairs(list "quantization_config.ignore" or {}) do
    if type(name) ~= "string" then corrupt("quantization_config.ignore", "must be a list of names") end
    if sub(name, 1, 3) == "re:" then insert(patterns, sub(name, 4)) else ignored[name_of_text(name)] = true end
  end
  local matches = matcher(patterns, "quantization_config.ignore")
  function is_ignored(name)
    return matches(name) or parts and (matches("language_model." .. name) or matches("model.language_model." .. sub(name, 7)))
  end
end

local function read_targets()
  local targets = list "quantization_config.config_groups.group_0.targets" or {}
  if #targets ~= 1 or targets[1] ~= "Linear" then
    refuse("quantization_config.config_groups.group_0.targets", 'must be ["Linear"]')
  end
  is_absent("quantization_config.config_groups.group_1", "is set: one group of settings is supported")
  is_absent("quantization_config.config_groups.group_0.output_activations", "is set: only weights and inputs may be quantised")
end

local function read_weights()
  expect(field "type", floats and "float" or "int", "must be " .. (floats and "float" or "int"))
  if bool(field "dynamic", false) then refuse(field "dynamic", "is true: scales must be in the checkpoint") end
  local order = has(field "actorder") and text(field "actorder")
  strategy = text(field "strategy", "channel")
  ordered = order == "group" or order == "dynamic"
  if order and not ordered and order ~= "weight" and order ~= "static" then
    refuse(field "actorder", "must be null, weight, static, group or dynamic")
  end
  if ordered and (strategy ~= "group" or not packs) then
    refuse(field "actorder", format("is %s: that needs the strategy group, and pack-quantized", order))
  end
  if strategy == "group" then
    group = int(field "group_size")
    if group % 32 ~= 0 then refuse(field "group_size", "must be a multiple of 32") end
  elseif strategy ~= "channel" and strategy ~= "tensor" then
    refuse(field "strategy", "must be group, channel or tensor")
  end
  if not bool(field "symmetric", true) then
    if floats then refuse(field "symmetric", "is false: f8 weights have no zero points") end
    if strategy == "tensor" then refuse(field "symmetric", "is false: zero points need the strategy group or channel") end
    zeros = packs and format("int%d_zeros", bits) or "i8_zeros"
  end
end

-- Scales of rows that are computed from the rows, as npu.dynamic_quant does, or one for all of x, NAME.input_scale.
local function read_rows()
  if not has(ROWS) then return end
  if not object(ROWS) then corrupt(ROWS, "must be an object") end
  if floats then
    expect(rows_field "type", "float", "must be float")
    if int(rows_field "num_bits") ~= 8 then refuse(rows_field "num_bits", "must be 8") end
    return
  end
  if bits ~= 8 or group or zeros then
    refuse(ROWS, "is set: it needs symmetric i8 weights with a scale for each row, or one for all")
  end
  expect(rows_field "type", "int", "must be int")
  if int(rows_field "num_bits") ~= 8 then refuse(rows_field "num_bits", "must be 8") end
  if not bool(rows_field "symmetric", true) then
    refuse(rows_field "symmetric", "is false: zero points are not supported")
  end
  fixed_rows = not bool(rows_field "dynamic", false)
  local strategy = fixed_rows and "tensor" or "token"
  expect(rows_field "strategy", strategy, format("must be %s where dynamic is %s", strategy, fixed_rows and "false" or "true"))
  with_rows = true
end

-- Reads quantization_config, if there is one.
function read_quantisation()
  if not has "quantization_config" then return end
  local method = text "quantization_config.quant_method"
  if read_packed(method) or read_fp8(method) then return end
  if method == "mxfp4" and takes_mxfp4 then
    has_mxfp4 = true
    return
  end
  if method ~= "compressed-tensors" then
    refuse("quantization_config.quant_method", "must be compressed-tensors, fp8, gptq or awq")
  end
  local form = text "quantization_config.format"
  packs, floats = form == "pack-quantized", form == "float-quantized"
  if form ~= "int-quantized" and not packs and not floats then
    refuse("quantization_config.format", "must be int-quantized, pack-quantized or float-quantized")
  end
  if not object(WEIGHTS) then corrupt(WEIGHTS, "is missing") end
  bits = int(field "num_bits")
  if bits ~= 8 and not (packs and bits == 4) then
    refuse(field "num_bits", packs and "must be 4 or 8" or "must be 8 with this quantization_config.format")
  end
  is_absent("quantization_config.kv_cache_scheme", "is set: scales of a KV cache that the checkpoint brings are not supported")
  expect("quantization_config.sparsity_config.format", "dense", "must be dense: sparse weights are not supported")
  if #(keys "quantization_config.transform_config" or {}) > 0 then
    refuse("quantization_config.transform_config", "is set: rotations of activations are not supported")
  end
  read_targets()
  read_weights()
  read_rows()
  read_ignored()
end

function is_quantised(from)
  if bits then return not ignored[from] and not is_ignored(from) end
  return is_packed(from) or is_fp8(from)
end

-- The order of a weight's columns if groups are of columns in another order (act-order); nil: they are not. Devices that
-- divide columns would have parts of groups, and experts of one product have orders of their own: those are fixed.
function order_of(index, of, features, split, columns, fixed)
  local cut = split == "columns" and ranks > 1
  local all = cut and features * ranks or features
  return columns_order(index, of, all, columns or all, fixed or cut)
end

local gathered = {} -- by the names of x and of an order: linears of one x may have one order

-- The product with a weight of rows of K, as quantised_parts gives it, for all products that are not of experts.
function antiquant_linear(name, x, w, bias)
  if w.order then
    local key = x .. w.order
    gathered[key] = gathered[key] or node(name .. "_by_group", "aten.index_select", {x, w.order}, "dim=1")
    x = gathered[key]
  end
  local s = w.one and w.s or node(name .. "_scale", "aten.t", {w.s})
  local z = w.z and node(name .. "_offset", "aten.t", {w.z})
  return node(name, "npu.weight_quant_batchmatmul",
    {x, node(name .. "_w", "aten.t", {w.q}), s, z or "none", "none", "none", bias or "none"},
    format("antiquant_group_size=%d", w.group or 0) .. (w.rows and format(", antiquant_group_columns=%d", w.rows) or ""))
end

-- The product of rows in i8 whose scale the checkpoint has. Both operators get vectors of f32 that are made once, when the
-- model is loaded: the scale of x, and its products with those of the weight.
local function fixed_i8_linear(name, x, from, out, features, split, bias)
  local n, by_rows = 1, nil
  if strategy ~= "tensor" then n, by_rows = out, split == "rows" and split or nil end
  local function vector(as, size, write)
    local row = made(from .. "." .. as, 1, size, "f32", function()
      return node(name .. "_" .. as, "aten.view", {write(name .. "_" .. as)}, format("size=[1, %d]", size))
    end)
    return node(name .. "_" .. as, "aten.view", {row}, format("size=[%d]", size))
  end
  local function scale_of_x(as)
    return node(as .. "_x", "aten._to_copy", {weight(from .. ".input_scale", 1)}, "dtype=f32")
  end
  local function scales_of_both(as)
    local s = strategy == "tensor" and weight(from .. ".weight_scale", 1) or weight(from .. ".weight_scale", out, 1, by_rows)
    s = node(as .. "_w", "aten._to_copy", {s}, "dtype=f32")
    return node(as .. "_both", "aten.mul.Tensor", {s, scale_of_x(as)})
  end
  local q = weight(from .. ".weight", out, features, split, "i8")
  local rows = node(name .. "_x", "npu.quantize", {x, vector("x_scale", 1, scale_of_x)}, "dtype=i8, axis=1")
  return node(name, "npu.quant_matmul",
    {rows, node(name .. "_w", "aten.t", {q}), vector("scale", n, scales_of_both), "none", "none", bias or "none"}, "output_dtype=f32")
end

local i8_rows = {} -- by the name of x: linears of one x share its rows in i8

-- The product of rows in i8, whose scales are those of the rows and of the weight's rows.
local function i8_linear(name, x, from, out, w, bias)
  local s = w.s
  i8_rows[x] = i8_rows[x] or {node({name .. "_x", name .. "_x_scales"}, "npu.dynamic_quant", {x})}
  if not w.one then s = node(name .. "_scale", "aten.view", {s}, format("size=[%d]", out)) end
  if dtype(from .. ".weight_scale") == "f16" then s = node(name .. "_wide", "aten._to_copy", {s}, "dtype=f32") end
  return node(name, "npu.quant_matmul",
    {i8_rows[x][1], node(name .. "_w", "aten.t", {w.q}), s, "none", i8_rows[x][2], bias or "none"}, "output_dtype=f32")
end

local function check_parts(from, out, features, split)
  local each = ranks > 1 and split == "columns" and " on each device" or ""
  local numbers = 32 // bits
  if packs and features % numbers ~= 0 then
    refuse("quantization_config.format", format("packs %d columns; %s has %d%s", numbers, from, features, each))
  end
  if packs and zeros and out % numbers ~= 0 then
    refuse("quantization_config.format", format("packs zero points of %d rows; %s has %d on a device", numbers, from, out))
  end
  if group and features % group ~= 0 then
    refuse(field "group_size", format("is %d, which must divide the %d columns of %s%s", group, features, from, each))
  end
end

-- The values of a quantised weight, rows of K: q, its numbers; s, their scales, [out, groups], or [1] (one); z, their
-- offsets, or nil; group: columns that share a scale, or nil for all; rows that share one, or nil; order: of x's columns,
-- or nil. fixed: there must be no order.
function quantised_parts(from, out, features, split, fixed)
  if is_packed(from) then return packed_parts(from, out, features, split, fixed) end
  if is_fp8(from) then return fp8_parts(from, out, features, split) end
  check_parts(from, out, features, split)
  local w = {group = group, one = strategy == "tensor"}
  if not packs then w.q = weight(from .. ".weight", out, features, split, floats and "f8" or "i8")
  elseif bits == 8 then w.q = weight(from .. ".weight_packed", out, features, split, "int8")
  else w.q = weight(from .. ".weight_packed", out, features // 8, split, "int4") end
  if w.one then
    w.s = weight(from .. ".weight_scale", 1)
    return w
  end
  local groups, scale_split = 1, split == "rows" and split or nil
  if group then groups, scale_split = features // group, split end
  w.s = weight(from .. ".weight_scale", out, groups, scale_split)
  w.z = zeros and weight(from .. ".weight_zero_point", out, groups, scale_split, zeros) or nil
  w.order = ordered and order_of(from .. ".weight_g_idx", from .. ".weight_packed", features, split, group, fixed) or nil
  return w
end

local IDENTITY_MAX = 8192 -- its rows: 256 MiB while the model is loaded

-- A quantised weight [out, features] as floats, which are made once, when the model is loaded: it is multiplied with the
-- identity. from: the tensors' name; product(name, x): the product of x with the weight.
function made_floats(name, from, out, features, floats, product)
  if features > IDENTITY_MAX then
    refuse("quantization_config", format("has %s, of which no more than %d columns can become floats", from, IDENTITY_MAX))
  end
  return made(from .. ".floats", out, features, floats, function()
    local at = node(name .. "_at", "aten.arange", {}, format("end=%d, dtype=i32", features))
    local row = node(name .. "_row", "aten.view", {at}, format("size=[%d, 1]", features))
    local one = node(name .. "_one", "aten._to_copy", {node(name .. "_is", "aten.eq.Tensor", {at, row})}, "dtype=f32")
    return node(name .. "_rows", "aten.t", {product(name .. "_columns", one)})
  end)
end

-- The weight of a linear, [out, features], as floats. from: the tensors' name.
function float_weight(name, from, out, features, split, floats)
  if blocks_of(from) then
    return made_floats(name, from, out, features, floats, function(columns, one)
      return block_linear(columns, one, from, out, features, nil, split)
    end)
  end
  if not is_quantised(from) then return weight(from .. ".weight", out, features, split) end
  return made_floats(name, from, out, features, floats, function(columns, one)
    return antiquant_linear(columns, one, quantised_parts(from, out, features, split))
  end)
end

-- y = x * w^T (+ the value of a bias), as linear() of decoder.lua has it. split: "rows" or "columns".
function quantised_linear(name, x, from, out, features, bias, split)
  if fixed_rows then return fixed_i8_linear(name, x, from, out, features, split, bias) end
  local w = quantised_parts(from, out, features, split)
  if with_rows and bits then return i8_linear(name, x, from, out, w, bias) end
  return antiquant_linear(name, x, w, bias)
end

-- ---- MXFP4 as floats, for devices that have no product with it ----

-- CANN has none on A2 and A3.
widens_mxfp4 = backend == "ascend"

-- The values of codes 0..15 of f4_e2m1: the eight sizes are 0, 1, 2, 3, 4, 6, 8, 12 halves, and codes from 8 on are
-- negative. All of these, and their products with powers of two, are exact in bf16.
local function mxfp4_codes(name, codes, floats)
  local function step(as, operator, operands, attributes) return node(name .. "_" .. as, operator, operands, attributes) end
  local negative = step("neg", "aten._to_copy", {step("is_neg", "aten.ge.Scalar", {codes}, "other=8")}, "dtype=" .. floats)
  local size = step("size", "aten.sub.Tensor", {codes, step("neg8", "aten.mul.Scalar", {negative}, "other=8")})
  local above4 = step("above4", "aten.relu", {step("less4", "aten.sub.Scalar", {size}, "other=4")})
  local above6 = step("above6", "aten.relu", {step("less6", "aten.sub.Scalar", {size}, "other=6")})
  local halves = step("halves", "aten.add.Tensor", {step("to8", "aten.add.Tensor", {size, above4}), above6}, "alpha=2")
  return step("values", "aten.mul.Tensor", {halves, step("sign", "aten.rsub.Scalar", {negative}, "other=0.5")})
end

-- Weights [n, out, features] in MXFP4 as floats, bf16 or f32, which are made once, when the model is loaded. parts()
-- declares their numbers (u8, two in a byte, the low half first) and their scales (u8, 2^(s - 127) for 32 numbers).
function mxfp4_floats(name, from, n, out, features, floats, parts)
  local rows, groups = n * out, features // 32
  floats = floats == "f32" and "f32" or "bf16"
  local function step(as, operator, operands, attributes) return node(name .. "_" .. as, operator, operands, attributes) end
  local all = made(from .. ".floats", rows, features, floats, function()
    local q, s = parts()
    q = step("flat", "aten.view", {q}, format("size=[%d, %d]", rows, features // 2))
    q = step("bytes", "aten._to_copy", {q}, "dtype=" .. floats)
    local high = step("high", "aten.floor", {step("by16", "aten.mul.Scalar", {q}, "other=0.0625")})
    local low = step("low", "aten.sub.Tensor", {q, step("high16", "aten.mul.Scalar", {high}, "other=16")})
    local codes = step("pairs", "aten.stack", {low, high}, "dim=2")
    codes = step("codes", "aten.view", {codes}, format("size=[%d, %d, 32]", rows, groups))
    local powers = step("exp", "aten._to_copy", {s}, "dtype=f32")
    powers = step("exp0", "aten.sub.Scalar", {powers}, "other=127")
    powers = step("exp2", "aten.exp", {step("expe", "aten.mul.Scalar", {powers}, format("other=%.17g", log(2)))})
    powers = step("power", "aten._to_copy", {powers}, "dtype=bf16") -- rounds to the power of two that is meant
    if floats == "f32" then powers = step("wide", "aten._to_copy", {powers}, "dtype=f32") end
    powers = step("powers", "aten.view", {powers}, format("size=[%d, %d, 1]", rows, groups))
    local values = step("scaled", "aten.mul.Tensor", {mxfp4_codes(name, codes, floats), powers})
    return step("rows", "aten.view", {values}, format("size=[%d, %d]", rows, features))
  end)
  return node(name .. "_w", "aten.view", {all}, format("size=[%d, %d, %d]", n, out, features))
end
