-- SPDX-License-Identifier: Apache-2.0
--
-- The text of Qwen's models that read images too (models/qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe of transformers): that
-- of a model of text, whose tokens' three positions are one. Defaults are others: files have the fields that differ.

text_part()
for _, key in ipairs {"rope_theta", "rms_norm_eps"} do
  if not has(key) and not has("rope_parameters." .. key) then refuse(key, "is missing") end
end
