-- Ends groups with unreadable bytes as dropped(corrupt). Arguments: (ordinal, attempt, field,
-- checksum, text) of each; field: ph, or s or p and the sample index. Skips groups whose field has
-- changed. Returns for each: 1 dropped, 0 gone, 2 already trained.
local out = {}
for i = 1, #ARGV - 4, 5 do
  local ord, field = key(arg(i)), arg(i + 2)
  local g = load(ord)
  local value = g and g.att == num(i + 1) and load_all(ord)[field]
  local sum = value and (field == 'ph' and value or value:match('^%d+ (%x+)'))
  if sum ~= arg(i + 3) then
    out[#out + 1] = 0
  elseif g.step > 0 and g.step <= J.version then
    out[#out + 1] = 2
  else
    if g.st == CLAIMED then
      unclaim()
      g = load(ord)
    end
    ends().end_group(g, 'dropped', 'corrupt', arg(i + 4))
    out[#out + 1] = 1
  end
end
return finish('OK', out)
