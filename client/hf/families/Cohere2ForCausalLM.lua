-- SPDX-License-Identifier: Apache-2.0
-- Command R7B and Command A: as Command R; three of four layers have a sliding window, and only these know positions
-- (models/cohere2/modeling_cohere2.py of transformers).
include "CohereForCausalLM"
local pattern = int("sliding_window_pattern", 4)
local has_window = read_windows(int("sliding_window", 4096), function(i) return (i + 1) % pattern ~= 0 end)

function positions_of(i) return has_window(i) and "rope" or nil end
