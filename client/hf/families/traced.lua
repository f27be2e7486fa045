-- SPDX-License-Identifier: Apache-2.0
--
-- What the files are written with that npugraph.export makes of a model's own code (DIR/npugraph.lua). Such a file includes
-- this one. It calls begins(), and defines build(), which emits the nodes of a step as they were traced: values are
-- [rows, 1, features], and heads [rows, heads, 1, dim]. Files are kept, so what is here keeps its meaning.

include "decoder"
takes_mxfp4 = true

-- Sizes of the model; positions: where contexts end.
function begins(sizes)
  vocab, hidden, layers, positions = sizes.vocab, sizes.hidden, sizes.layers, sizes.positions
  one_device "exported models are for one device"
  read_quantisation()
end

-- A tensor, in f32, for operators that mix no dtypes.
function wide(name, from, shape)
  local value = tensor(from, shape)
  if dtype(from) == "f32" then return node(name, "aten.alias", {value}) end
  return node(name, "aten._to_copy", {value}, "dtype=f32")
end

-- A tensor as it is in the file, for the second operand of a product.
function narrow(name, from, shape)
  return node(name, "aten.alias", {tensor(from, shape)})
end

-- The head's product, whose weight may be a table: quantised checkpoints have both as floats.
function plain_linear(name, x, from, out, features, bias)
  return node(name, "aten.linear", {x, weight(from .. ".weight", out, features), bias and weight(from .. ".bias", out) or nil})
end

-- Rows of a table, in f32.
function lookup(name, from, rows_of_table, columns, indices)
  local rows_found = node(name .. "_row", "aten.embedding", {weight(from, rows_of_table, columns), indices})
  return node(name, dtype(from) == "f32" and "aten.alias" or "aten._to_copy", {rows_found},
    dtype(from) ~= "f32" and "dtype=f32" or nil)
end

-- Hidden states behind the final norm, x: [rows, size]. Returns those that build() returns; the value %NAME has the rows
-- whose logits are wanted.
function states(name, x)
  if headless and pooling == "mean" and prefill then return x end
  if not prefill then return node(name, "aten.alias", {x}) end
  local picked = node(name, "aten.index.Tensor", {x, "%logits_rows"})
  return pooling == "mean" and x or picked
end

-- y = x * w_e^T, or x * w_e if they are turned, plus b_e, for the rows of each expert e. The weights of all are one tensor,
-- of floats or of MXFP4, which is never turned.
function stacked(name, x, counts, from, shape, turned, bias)
  local n, out, features = shape[1], shape[turned and 3 or 2], shape[turned and 2 or 3]
  local biases = bias and tensor(bias, {n, out}) or nil
  if has_mxfp4 then return mxfp4_experts(name, x, counts, n, from, out, features, biases) end
  local operands = {x, counts, tensor(from, shape)}
  if biases then insert(operands, biases) end
  return node(name, "npu.grouped_matmul", operands, format("group_list_type=1, transpose_weight=%s, bias=%s",
    tostring(not turned), tostring(bias ~= nil)))
end
