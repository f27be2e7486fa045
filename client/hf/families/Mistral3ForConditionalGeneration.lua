-- SPDX-License-Identifier: Apache-2.0
-- Mistral Small 3.1 and later, and Ministral 3, which read images too: their text.
text_part()
local kind = text("model_type", "mistral")
if kind == "mistral" then include "MistralForCausalLM"
elseif kind == "ministral3" then include "Ministral3ForCausalLM"
else refuse("model_type", "must be mistral or ministral3") end
