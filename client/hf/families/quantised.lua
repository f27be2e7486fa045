-- SPDX-License-Identifier: Apache-2.0
--
-- Linears with quantised weights, as compressed-tensors writes them (compressed_tensors/quantization of vLLM's project):
-- `int-quantized` has i8 weights, `pack-quantized` int4 ones, eight in an i32. Both have NAME.weight_scale: [out, groups],
-- or [out, 1] with a scale for each row, or [1]. decoder.lua includes this file and calls quantised_linear.

local bits          -- 8 or 4; nil: weights are not quantised
local strategy      -- "group", "channel", "tensor"
local group         -- columns that share a scale, with "group"
local ignored = {}  -- names of linears that are not quantised

local WEIGHTS = "quantization_config.config_groups.group_0.weights"

local function field(key) return WEIGHTS .. "." .. key end

local function is_absent(key, what)
  if has(key) then refuse(key, what) end
end

-- The names in `ignore`. A pattern may match any linear, and Lua has no regular expressions.
local function read_ignored()
  for _, name in ipairs(list "quantization_config.ignore" or {}) do
    if type(name) ~= "string" then corrupt("quantization_config.ignore", "must be a list of names") end
    if sub(name, 1, 3) == "re:" then
      refuse("quantization_config.ignore", "has a pattern (re:...): list the names of the linears instead")
    end
    ignored[name] = true
  end
end

local function read_targets()
  local targets = list "quantization_config.config_groups.group_0.targets" or {}
  if #targets ~= 1 or targets[1] ~= "Linear" then
    refuse("quantization_config.config_groups.group_0.targets", 'must be ["Linear"]')
  end
  is_absent("quantization_config.config_groups.group_1", "is set: one group of settings is supported")
  is_absent("quantization_config.config_groups.group_0.input_activations", "is set: only weights may be quantised")
  is_absent("quantization_config.config_groups.group_0.output_activations", "is set: only weights may be quantised")
end

local function read_weights()
  expect(field "type", "int", "must be int")
  if not bool(field "symmetric", true) then refuse(field "symmetric", "is false: zero points are not supported") end
  if bool(field "dynamic", false) then refuse(field "dynamic", "is true: scales must be in the checkpoint") end
  local order = has(field "actorder") and text(field "actorder")
  if order and order ~= "weight" and order ~= "static" then
    refuse(field "actorder", "must be null, weight or static: columns in another order are not supported")
  end
  strategy = text(field "strategy", "channel")
  if strategy == "group" then
    group = int(field "group_size")
    if group % 32 ~= 0 then refuse(field "group_size", "must be a multiple of 32") end
  elseif strategy ~= "channel" and strategy ~= "tensor" then
    refuse(field "strategy", "must be group, channel or tensor")
  end
end

-- Reads quantization_config, if there is one.
function read_quantisation()
  if not has "quantization_config" then return end
  if text "quantization_config.quant_method" ~= "compressed-tensors" then
    refuse("quantization_config.quant_method", "must be compressed-tensors")
  end
  local forms = {["int-quantized"] = 8, ["pack-quantized"] = 4}
  bits = forms[text "quantization_config.format"]
  if not bits then refuse("quantization_config.format", "must be int-quantized or pack-quantized") end
  if not object(WEIGHTS) then corrupt(WEIGHTS, "is missing") end
  if int(field "num_bits") ~= bits then
    refuse(field "num_bits", format("must be %d with this quantization_config.format", bits))
  end
  is_absent("quantization_config.kv_cache_scheme", "is set: a quantised KV cache is not supported")
  expect("quantization_config.sparsity_config.format", "dense", "must be dense: sparse weights are not supported")
  read_targets()
  read_weights()
  read_ignored()
end

function is_quantised(from) return bits ~= nil and not ignored[from] end

-- y = x * w^T (+ the value of a bias), as linear() of decoder.lua has it. split: "rows" or "columns".
function quantised_linear(name, x, from, out, features, bias, split)
  local each = ranks > 1 and split == "columns" and " on each device" or ""
  if bits == 4 and features % 8 ~= 0 then
    refuse("quantization_config.format", format("packs eight columns; %s has %d%s", from, features, each))
  end
  if group and features % group ~= 0 then
    refuse(field "group_size", format("is %d, which must divide the %d columns of %s%s", group, features, from, each))
  end
  local q = bits == 8 and weight(from .. ".weight", out, features, split, "i8")
    or weight(from .. ".weight_packed", out, features // 8, split, "int4")
  local s
  if strategy == "tensor" then s = weight(from .. ".weight_scale", 1)
  elseif group then s = weight(from .. ".weight_scale", out, features // group, split)
  else s = weight(from .. ".weight_scale", out, 1, split == "rows" and split or nil) end
  if strategy ~= "tensor" then s = node(name .. "_scale", "aten.t", {s}) end
  return node(name, "npu.weight_quant_batchmatmul",
    {x, node(name .. "_w", "aten.t", {q}), s, "none", "none", "none", bias or "none"},
    format("antiquant_group_size=%d", group or 0))
end
