-- SPDX-License-Identifier: Apache-2.0
-- Qwen2.5-VL, which reads images too: its text (models/qwen2_5_vl/modeling_qwen2_5_vl.py of transformers). The three
-- positions of a text's token are one.
text_part()
include "Qwen2ForCausalLM"
