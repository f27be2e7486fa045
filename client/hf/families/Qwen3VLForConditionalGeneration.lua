-- SPDX-License-Identifier: Apache-2.0
-- Qwen3-VL, which reads images too: its text.
include "qwen_vl"
include "Qwen3ForCausalLM"
