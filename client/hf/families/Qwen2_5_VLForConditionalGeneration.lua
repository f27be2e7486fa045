-- SPDX-License-Identifier: Apache-2.0
-- Qwen2.5-VL, which reads images too: its text.
include "qwen_vl"
include "Qwen2ForCausalLM"
