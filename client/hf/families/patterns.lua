-- SPDX-License-Identifier: Apache-2.0
--
-- Regular expressions that name modules, as checkpoints have them ("re:.*lm_head"): letters, digits, "_", "-", "\.", "."
-- and ".*", "^" in front and "$" behind. A match begins with the name and, without "$", may end before it does, as
-- Python's re.match. There is nothing to nest or to repeat, so that matching takes no more than length times length.
-- quantised.lua includes this file.

local PATTERNS_MAX = 16 -- a run has a limited number of instructions
local STAR, ANY = {}, {}
local literal = {}
for i = 1, 64 do
  literal[sub("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", i, i)] = true
end

local function items_of(pattern, key)
  local items, i, n = {}, sub(pattern, 1, 1) == "^" and 2 or 1, #pattern
  while i <= n do
    local c, two = sub(pattern, i, i), sub(pattern, i, i + 1)
    if c == "$" and i == n then return items end
    if two == ".*" or two == "\\." or two == "\\-" then
      insert(items, c == "." and STAR or sub(two, 2, 2))
      i = i + 2
    elseif c == "." or literal[c] then
      insert(items, c == "." and ANY or c)
      i = i + 1
    else
      refuse(key, format("has the pattern %s: of patterns only letters, digits, _, -, \\., ., .*, ^ and $ are supported",
        sub(pattern, 1, 40)))
    end
  end
  insert(items, STAR)
  return items
end

local function matches(items, name)
  local i, j, star, from = 1, 1, nil, nil
  while j <= #name do
    local item = items[i]
    if item == STAR then
      if i == #items then return true end
      star, from, i = i, j, i + 1
    elseif item == ANY or item == sub(name, j, j) then
      i, j = i + 1, j + 1
    elseif star then
      i, from = star + 1, from + 1
      j = from
    else
      return false
    end
  end
  while items[i] == STAR do i = i + 1 end
  return i > #items
end

-- Returns a function that says whether a name matches one of the patterns of a field.
function matcher(patterns, key)
  local all = {}
  if #patterns > PATTERNS_MAX then refuse(key, format("has more than %d patterns", PATTERNS_MAX)) end
  for k, pattern in ipairs(patterns) do all[k] = items_of(pattern, key) end
  return function(name)
    for _, items in ipairs(all) do
      if matches(items, name) then return true end
    end
    return false
  end
end
