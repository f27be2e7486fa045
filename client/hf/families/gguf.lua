-- SPDX-License-Identifier: Apache-2.0
--
-- Products and tables with quantised tensors of GGUF files. The daemon gives each as planes (docs/gguf.md): NAME has the
-- numbers, NAME.scales and NAME.minima have one float for each group of them. An element is number * scale + minimum.
-- decoder.lua includes this file.

local FORMS = {
  Q4_0 = {kind = "int4", group = 32},
  Q4_1 = {kind = "int4", group = 32, minima = true},
  Q5_0 = {kind = "i8", group = 32},
  Q5_1 = {kind = "i8", group = 32, minima = true},
  Q8_0 = {kind = "i8", group = 32},
  Q4_K = {kind = "int4", group = 32, minima = true, block = 256},
  Q5_K = {kind = "i8", group = 32, minima = true, block = 256},
  Q6_K = {kind = "i8", group = 16, block = 256},
  MXFP4 = {kind = "f4", group = 32}, -- of experts alone
}

-- How the file has the weight of a module; nil: as floats.
function blocks_of(from)
  return FORMS[stored(from .. ".weight") or ""]
end

-- The sums of x over groups of columns, which minima are multiplied with.
function group_sums(name, x, groups, columns)
  return node(name .. "_sums", "aten.sum.dim_IntList",
    {node(name .. "_groups", "aten.view", {x}, format("size=[-1, %d, %d]", groups, columns))}, "dim=[2]")
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

-- y = x * w^T (+ the value of a bias), as linear() of decoder.lua has it. gathered: the weight is a table, too, whose
-- numbers are i8.
function block_linear(name, x, from, out, features, bias, split, gathered)
  local form, w = plain_form(from), from .. ".weight"
  check_block_columns(from, form, features)
  local groups = features // form.group
  local q
  if form.kind == "i8" then q = weight(w, out, features, split, "i8")
  elseif gathered then q = weight(w .. ".i8", out, features, split, "i8")
  else q = weight(w, out, features // 8, split, "int4") end
  local s = weight(w .. ".scales", out, groups, split)
  local y = node(form.minima and name .. "_q" or name, "npu.weight_quant_batchmatmul",
    {x, node(name .. "_w", "aten.t", {q}), node(name .. "_s", "aten.t", {s}), "none", "none", "none", bias or "none"},
    format("antiquant_group_size=%d", form.group))
  if not form.minima then return y end
  local sums = group_sums(name, x, groups, form.group)
  local least = node(name .. "_least", "aten.linear", {sums, weight(w .. ".minima", out, groups, split)})
  return node(name, "aten.add.Tensor", {y, least})
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
  local groups = features // form.group
  local operands = {x, counts, expert_numbers(form, w, n, out, features), biases}
  insert(operands, tensor(w .. ".scales", {n, out, groups}, form.kind == "f4" and "e8m0" or nil))
  local y = node(form.minima and name .. "_q" or name, "npu.grouped_matmul", operands,
    format("%s, antiquant_scale=true, antiquant_group_size=%d", options, form.group))
  if not form.minima then return y end
  local least = node(name .. "_least", "npu.grouped_matmul",
    {group_sums(name, x, groups, form.group), counts, tensor(w .. ".minima", {n, out, groups})}, STACKED)
  return node(name, "aten.add.Tensor", {y, least})
end

-- Rows of a plane with a float for each group, as f32 [rows, groups, 1].
local function group_rows(name, plane, from, groups)
  local table = weight(from .. plane, vocab, groups)
  local x = node(name, "aten.embedding", {table, "%tokens"})
  if dtype(from .. plane) ~= "f32" then x = node(name .. "_f32", "aten._to_copy", {x}, "dtype=f32") end
  return reshape(name .. "_each", x, groups, 1)
end

-- The rows of the table that the tokens name, as f32 [rows, hidden].
function block_rows(name, from)
  local form, w = plain_form(from), from .. ".weight"
  local groups = hidden // form.group
  if hidden % form.group ~= 0 then refuse("hidden_size", "must be a multiple of the file's groups") end
  local q = weight(form.kind == "i8" and w or w .. ".i8", vocab, hidden, nil, "i8")
  local x = node(name .. "_i8", "aten.embedding", {q, "%tokens"})
  x = node(name .. "_numbers", "aten._to_copy", {x}, "dtype=f32")
  x = reshape(name .. "_groups", x, groups, form.group)
  x = node(name .. "_scaled", "aten.mul.Tensor", {x, group_rows(name .. "_s", ".scales", w, groups)})
  if form.minima then x = node(name .. "_added", "aten.add.Tensor", {x, group_rows(name .. "_m", ".minima", w, groups)}) end
  return reshape(name, x, hidden)
end
