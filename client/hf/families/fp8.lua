-- SPDX-License-Identifier: Apache-2.0
--
-- Linears with weights in f8_e4m3fn, of which blocks of rows and columns share a scale, as DeepSeek-V3 and Qwen3-FP8 are
-- published (integrations/finegrained_fp8.py of transformers): NAME.weight, and NAME.weight_scale_inv [row blocks, column
-- blocks], which a weight is multiplied with. Blocks at the ends may be cut. AutoFP8 and ModelOpt have one scale for all of a
-- weight, NAME.weight_scale, and one for x, NAME.input_scale. Rows of x stay floats, which is more exact than what
-- activation_scheme and scales of x ask for; so the latter are not read. quantised.lua includes this file.

local Q = "quantization_config."

local stores        -- weights are stored so
local rows, columns -- of a block; nil: one scale for all of a weight
local left_out = {} -- functions that say whether a linear is not quantised
local known = {}    -- what is_fp8 has said of names

-- Leaves out the linears that a list names; is_named(name, part) says whether an item does.
local function read_left_out(key, is_named)
  for _, part in ipairs(list(Q .. key) or {}) do
    if type(part) ~= "string" or part == "" then corrupt(Q .. key, "must be a list of names") end
    insert(left_out, function(name) return is_named(name, part) end)
  end
end

local function read_blocks()
  local sizes = list(Q .. "weight_block_size")
  rows, columns = sizes[1], sizes[2]
  for i = 1, 2 do
    if #sizes ~= 2 or type(sizes[i]) ~= "number" or sizes[i] ~= floor(sizes[i]) or sizes[i] < 1 or sizes[i] > 2^30 then
      corrupt(Q .. "weight_block_size", "must be two positive integers")
    end
  end
  rows, columns = floor(rows), floor(columns)
  if columns % 32 ~= 0 then refuse(Q .. "weight_block_size", "must have a multiple of 32 columns") end
end

-- ModelOpt: names in `ignore` may have wildcards.
local function read_modelopt()
  if text(Q .. "quant_algo") ~= "FP8" then refuse(Q .. "quant_algo", "must be FP8") end
  read_left_out("ignore", like)
end

-- Reads quantization_config, if it is one of these. Returns whether it is.
function read_fp8(method)
  if method ~= "fp8" and method ~= "modelopt" then return false end
  stores = true
  if method == "modelopt" then
    read_modelopt()
    return true
  end
  expect(Q .. "fmt", "e4m3")
  local blocks = has(Q .. "weight_block_size")
  local scheme = text(Q .. "activation_scheme", "dynamic")
  if scheme ~= "dynamic" and scheme ~= "static" then refuse(Q .. "activation_scheme", "must be dynamic or static") end
  if blocks then
    if scheme == "static" then refuse(Q .. "activation_scheme", "must be dynamic with a weight_block_size") end
    read_blocks()
  end
  read_left_out("modules_to_not_convert", contains)
  read_left_out("ignored_layers", contains)
  return true
end

local function is_converted(from)
  if from == "lm_head" then return false end
  for _, is_left_out in ipairs(left_out) do
    if is_left_out(from) then return false end
  end
  return true
end

function is_fp8(from)
  if stores and known[from] == nil then known[from] = is_converted(from) end
  return known[from] or false
end

local function check_blocks(from, size, n, what)
  if n % size ~= 0 then
    refuse(Q .. "weight_block_size", format("has blocks of %d %s, which must divide the %d of %s on each device", size, what, n, from))
  end
end

-- As quantised_parts.
function fp8_parts(from, out, features, split)
  if not rows then
    return {q = weight(from .. ".weight", out, features, split, "f8"), s = weight(from .. ".weight_scale", 1), one = true}
  end
  if ranks > 1 and split == "rows" then check_blocks(from, rows, out, "rows") end
  if ranks > 1 and split == "columns" then check_blocks(from, columns, features, "columns") end
  local q = weight(from .. ".weight", out, features, split, "f8")
  local s = weight(from .. ".weight_scale_inv", (out + rows - 1) // rows, (features + columns - 1) // columns, split)
  return {q = q, s = s, group = columns, rows = rows}
end
