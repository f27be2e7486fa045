-- SPDX-License-Identifier: Apache-2.0
-- Qwen3-VL, which reads images too: its text (models/qwen3_vl/modeling_qwen3_vl.py of transformers). The three positions of
-- a text's token are one.
text_part()
include "Qwen3ForCausalLM"
