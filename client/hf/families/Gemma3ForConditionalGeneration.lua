-- SPDX-License-Identifier: Apache-2.0
-- Gemma 3 of 4B and larger, which reads images too: its text.
text_part()
include "Gemma3ForCausalLM"
