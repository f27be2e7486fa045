-- SPDX-License-Identifier: Apache-2.0
-- Mistral Small 3.1 and later, which reads images too: its text.
text_part()
if text("model_type", "mistral") ~= "mistral" then refuse("model_type", "must be mistral") end
include "MistralForCausalLM"
