-- SPDX-License-Identifier: Apache-2.0
--
-- Linears with weights in f8_e4m3fn, of which blocks of rows and columns share a scale, as DeepSeek-V3 and Qwen3-FP8 are
-- published (integrations/finegrained_fp8.py of transformers): NAME.weight, and NAME.weight_scale_inv [row blocks, column
-- blocks], which a weight is multiplied with. Blocks at the ends may be cut. Rows of x stay floats, which is more exact than
-- activation_scheme asks for. quantised.lua includes this file.

local Q = "quantization_config."

local rows, columns -- of a block; nil: weights are not stored so
local left_out = {} -- parts of the names of linears that are not quantised
local known = {}    -- what is_fp8 has said of names

-- Reads quantization_config, if it is this one. Returns whether it is.
function read_fp8(method)
  if method ~= "fp8" then return false end
  expect(Q .. "fmt", "e4m3")
  expect(Q .. "activation_scheme", "dynamic", "must be dynamic: scales of inputs in the checkpoint are not supported")
  local sizes = list(Q .. "weight_block_size") or refuse(Q .. "weight_block_size", "is missing: weights must have it")
  rows, columns = sizes[1], sizes[2]
  for i = 1, 2 do
    if #sizes ~= 2 or type(sizes[i]) ~= "number" or sizes[i] ~= floor(sizes[i]) or sizes[i] < 1 or sizes[i] > 2^30 then
      corrupt(Q .. "weight_block_size", "must be two positive integers")
    end
  end
  rows, columns = floor(rows), floor(columns)
  if columns % 32 ~= 0 then refuse(Q .. "weight_block_size", "must have a multiple of 32 columns") end
  for _, part in ipairs(list(Q .. "modules_to_not_convert") or {}) do
    if type(part) ~= "string" or part == "" then corrupt(Q .. "modules_to_not_convert", "must be a list of names") end
    insert(left_out, part)
  end
  return true
end

local function is_converted(from)
  if from == "lm_head" then return false end
  for _, part in ipairs(left_out) do
    if contains(from, part) then return false end
  end
  return true
end

function is_fp8(from)
  if rows and known[from] == nil then known[from] = is_converted(from) end
  return known[from] or false
end

local function check_blocks(from, size, n, what)
  if n % size ~= 0 then
    refuse(Q .. "weight_block_size", format("has blocks of %d %s, which must divide the %d of %s on each device", size, what, n, from))
  end
end

-- As quantised_parts.
function fp8_parts(from, out, features, split)
  if ranks > 1 and split == "rows" then check_blocks(from, rows, out, "rows") end
  if ranks > 1 and split == "columns" then check_blocks(from, columns, features, "columns") end
  local q = weight(from .. ".weight", out, features, split, "f8")
  local s = weight(from .. ".weight_scale_inv", (out + rows - 1) // rows, (features + columns - 1) // columns, split)
  return {q = q, s = s, group = columns, rows = rows}
end
