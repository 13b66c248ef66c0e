-- Returns what batches hold, and changes nothing. Arguments: ordinal and attempt of each group.
-- Returns for each group: checksum of the prompt, rows. MISSING: the ordinal of a group that is
-- neither claimed nor trained in that attempt, or whose step is forgotten.
local out = {}
for i = 1, #ARGV - 4, 2 do
  local ord = format('%016d', num(i))
  local f = call('HMGET', group_key(ord), 'n', 'ph', 'rows')
  local g = f[1] and unpack_group(f[1])
  if not g or g.att ~= num(i + 1) or g.st < CLAIMED or g.st > DURABLE or
    (g.step > 0 and g.step <= J.forgotten) then
    return finish('MISSING', arg(i))
  end
  out[#out + 1] = f[2]
  out[#out + 1] = f[3]
end
return finish('OK', out)
