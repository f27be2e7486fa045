-- SPDX-License-Identifier: Apache-2.0
--
-- Products and tables with quantised tensors of GGUF files. The daemon gives each as planes (docs/gguf.md): NAME has the
-- numbers, NAME.scales and NAME.minima have an element for each group of them. In types with blocks these are i8, and
-- NAME.block_scales and NAME.block_minima have their factors. An element is (number + zero) * scale + minimum.
-- decoder.lua includes this file.

local FORMS = {
  Q4_0 = {kind = "int4", group = 32},
  Q4_1 = {kind = "int4", group = 32, minima = true, zero = 8},
  Q5_0 = {kind = "i8", group = 32},
  Q5_1 = {kind = "i8", group = 32, minima = true, zero = 16},
  Q8_0 = {kind = "i8", group = 32},
  Q4_K = {kind = "int4", group = 32, minima = true, zero = 8, block = 256},
  Q5_K = {kind = "i8", group = 32, minima = true, zero = 16, block = 256},
  Q6_K = {kind = "i8", group = 16, block = 256},
  MXFP4 = {kind = "f4", group = 32}, -- of experts alone
}

-- How the file has the weight of a module; nil: as floats.
function blocks_of(from)
  return FORMS[stored(from .. ".weight") or ""]
end

-- The form of a weight that is no expert's; nil: floats.
local function plain_form(from)
  local form = blocks_of(from)
  if form and form.kind == "f4" then refuse("gguf", format("has %s in MXFP4, which experts alone may have", from)) end
  return form
end

-- Checks that a row of the columns that a device has is a number of whole blocks.
local function check_block_columns(from, form, features)
  local block = form.block or form.group
  if features % block ~= 0 then
    refuse("gguf", format("has %s in blocks of %d columns, which must divide the %d of a device", from, block, features))
  end
end

-- The planes of a form but the numbers: operands of npu.weight_quant_batchmatmul, attributes of npu.grouped_matmul.
local function planes_of(form, features)
  local kind = form.kind == "f4" and "e8m0" or form.block and "i8" or nil
  local list = {{plane = ".scales", operand = 3, attribute = "antiquant_scale", columns = features // form.group, kind = kind}}
  if form.block then
    insert(list, {plane = ".block_scales", operand = 8, attribute = "antiquant_block_scale", columns = features // form.block})
  end
  if form.minima then
    insert(list, {plane = ".minima", operand = 9, attribute = "antiquant_minimum", columns = features // form.group, kind = kind})
  end
  if form.minima and form.block then
    insert(list, {plane = ".block_minima", operand = 10, attribute = "antiquant_block_minimum", columns = features // form.block})
  end
  return list
end

local function antiquant_options(form)
  return format("antiquant_group_size=%d, antiquant_block_size=%d, antiquant_zero=%d", form.group, form.block or 0, form.zero or 0)
end

-- y = x * w^T (+ the value of a bias), of numbers q of the form; operand(plane) gives the value of a plane.
local function block_product(name, x, form, q, features, bias, operand)
  local operands = {x, node(name .. "_w", "aten.t", {q}), "none", "none", "none", "none", bias or "none"}
  for i, p in ipairs(planes_of(form, features)) do
    operands[p.operand] = node(format("%s_s%d", name, i), "aten.t", {operand(p)})
  end
  for i = 8, 10 do operands[i] = operands[i] or "none" end
  return node(name, "npu.weight_quant_batchmatmul", operands, antiquant_options(form))
end

-- The product with a weight [out, features], as linear() of decoder.lua has it. gathered: the weight is a table, too, whose
-- numbers are i8.
function block_linear(name, x, from, out, features, bias, split, gathered)
  local form, w = plain_form(from), from .. ".weight"
  check_block_columns(from, form, features)
  local q
  if form.kind == "i8" then q = weight(w, out, features, split, "i8")
  elseif gathered then q = weight(w .. ".i8", out, features, split, "i8")
  else q = weight(w, out, features // 8, split, "int4") end
  return block_product(name, x, form, q, features, bias, function(p)
    return weight(w .. p.plane, out, p.columns, split, p.kind)
  end)
end

-- The name of the one tensor that a GGUF file has for experts, from a format of their names.
function name_of_all(from)
  for i = 1, #from do
    if sub(from, i, i + 2) == "%d." then return sub(from, 1, i - 1) .. sub(from, i + 3) end
  end
  return from
end

local STACKED = "group_list_type=1, transpose_weight=true"

-- The numbers of weights [n, out, features].
local function expert_numbers(form, w, n, out, features)
  if form.kind == "i8" then return tensor(w, {n, out, features}, "i8") end
  if form.kind == "f4" then return tensor(w, {n, out, features // 2}, "f4") end
  return tensor(w, {n, out, features // 8}, "int4")
end

-- y = x * w_e^T (+ b_e) for the rows of each expert e, of weights [n, out, features] that are one tensor of the file.
-- biases: [n, out], or nil.
function block_experts(name, x, counts, n, from, out, features, biases)
  local form, w = blocks_of(from), from .. ".weight"
  one_device "experts are one tensor"
  local options = biases and STACKED .. ", bias=true" or STACKED
  if not form then return node(name, "npu.grouped_matmul", {x, counts, tensor(w, {n, out, features}), biases}, options) end
  check_block_columns(from, form, features)
  if form.kind == "f4" and widens_mxfp4 then
    local floats = mxfp4_floats(name, w, n, out, features, nil, function()
      return expert_numbers(form, w, n, out, features), tensor(w .. ".scales", {n, out, features // 32}, "e8m0")
    end)
    return node(name, "npu.grouped_matmul", {x, counts, floats, biases}, options)
  end
  local operands = {x, counts, expert_numbers(form, w, n, out, features), biases}
  for _, p in ipairs(planes_of(form, features)) do
    insert(operands, tensor(w .. p.plane, {n, out, p.columns}, p.kind))
    options = format("%s, %s=true", options, p.attribute)
  end
  return node(name, "npu.grouped_matmul", operands, options .. ", " .. antiquant_options(form))
end

-- The matrices [n, out, features] that are one tensor of the file, as floats.
function stacked_floats(name, from, n, out, features, floats)
  local form, w = plain_form(from), from .. ".weight"
  local function flat(as, x, columns) return node(as, "aten.view", {x}, format("size=[%d, %d]", n * out, columns)) end
  one_device "matrices of heads are one tensor"
  if not form then return tensor(w, {n, out, features}) end
  check_block_columns(from, form, features)
  local made_rows = made_floats(name, from, n * out, features, floats, function(columns, one)
    local numbers = flat(columns .. "_q", expert_numbers(form, w, n, out, features), form.kind == "i8" and features or features // 8)
    return block_product(columns, one, form, numbers, features, nil, function(p)
      return flat(format("%s_p%d", columns, p.operand), tensor(w .. p.plane, {n, out, p.columns}, p.kind), p.columns)
    end)
  end)
  return node(name, "aten.view", {made_rows}, format("size=[%d, %d, %d]", n, out, features))
end

-- Rows of a plane, as f32 [rows, columns, 1].
local function plane_rows(name, plane, from, columns, kind)
  local x = node(name, "aten.embedding", {weight(from .. plane, vocab, columns, nil, kind), "%tokens"})
  if kind or dtype(from .. plane) ~= "f32" then x = node(name .. "_f32", "aten._to_copy", {x}, "dtype=f32") end
  return reshape(name .. "_each", x, columns, 1)
end

-- Rows of scales or minima, as f32 [rows, groups, 1].
local function group_rows(name, plane, from, form)
  local groups = hidden // form.group
  if not form.block then return plane_rows(name, "." .. plane, from, groups) end
  local x, blocks = plane_rows(name, "." .. plane, from, groups, "i8"), hidden // form.block
  x = reshape(name .. "_blocks", x, blocks, form.block // form.group)
  x = node(name .. "_whole", "aten.mul.Tensor", {x, plane_rows(name .. "_b", ".block_" .. plane, from, blocks)})
  return reshape(name .. "_of_groups", x, groups, 1)
end

-- The rows of the table that the tokens name, as f32 [rows, hidden].
function block_rows(name, from)
  local form, w = plain_form(from), from .. ".weight"
  check_block_columns(from, form, hidden)
  local q = weight(form.kind == "i8" and w or w .. ".i8", vocab, hidden, nil, "i8")
  local x = node(name .. "_i8", "aten.embedding", {q, "%tokens"})
  x = node(name .. "_numbers", "aten._to_copy", {x}, "dtype=f32")
  if form.zero then x = node(name .. "_shifted", "aten.add.Scalar", {x}, format("other=%d", form.zero)) end
  x = reshape(name .. "_groups", x, hidden // form.group, form.group)
  x = node(name .. "_scaled", "aten.mul.Tensor", {x, group_rows(name .. "_s", "scales", w, form)})
  if form.minima then x = node(name .. "_added", "aten.add.Tensor", {x, group_rows(name .. "_m", "minima", w, form)}) end
  return reshape(name, x, hidden)
end
