-- SPDX-License-Identifier: Apache-2.0
--
-- Regular expressions that name modules, as checkpoints have them ("re:.*lm_head"): letters, digits, "_", "-", "\.", "."
-- and ".*", "^" in front and "$" behind. A match begins with the name and, without "$", may end before it does, as
-- Python's re.match. There is nothing to nest or to repeat, so that matching takes no more than length times length: like() of family_calls.c does it.
-- quantised.lua includes this file.

local PATTERNS_MAX = 16
local literal = {}
for i = 1, 64 do
  literal[sub("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", i, i)] = true
end

-- The pattern as like() takes it: "*" for any characters, "?" for one.
local function wildcards_of(pattern, key)
  local items, i, n = {}, sub(pattern, 1, 1) == "^" and 2 or 1, #pattern
  while i <= n do
    local c, two = sub(pattern, i, i), sub(pattern, i, i + 1)
    if c == "$" and i == n then return concat(items) end
    if two == ".*" or two == "\\." or two == "\\-" then
      insert(items, c == "." and "*" or sub(two, 2, 2))
      i = i + 2
    elseif c == "." or literal[c] then
      insert(items, c == "." and "?" or c)
      i = i + 1
    else
      refuse(key, format("has the pattern %s: of patterns only letters, digits, _, -, \\., ., .*, ^ and $ are supported",
        sub(pattern, 1, 40)))
    end
  end
  return concat(items) .. "*"
end

-- Returns a function that says whether a name matches one of the patterns of a field.
function matcher(patterns, key)
  local all = {}
  if #patterns > PATTERNS_MAX then refuse(key, format("has more than %d patterns", PATTERNS_MAX)) end
  for k, pattern in ipairs(patterns) do all[k] = wildcards_of(pattern, key) end
  return function(name)
    for _, wildcards in ipairs(all) do
      if like(name, wildcards) then return true end
    end
    return false
  end
end
