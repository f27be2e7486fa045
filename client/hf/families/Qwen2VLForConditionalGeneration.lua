-- SPDX-License-Identifier: Apache-2.0
-- Qwen2-VL, which reads images too: its text. The three positions of a text's token are one.
text_part()
include "Qwen2ForCausalLM"
