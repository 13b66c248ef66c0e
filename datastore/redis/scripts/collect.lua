-- Deletes what is due, one slice. Arguments: entries at most. Returns the number of entries.
local due = call('ZRANGEBYSCORE', prefix .. 'trash', '-inf', now, 'LIMIT', 0, num(1))
for _, entry in ipairs(due) do
  local names, keys = {}, {}
  if entry:sub(1, 1) == 'g' then
    local ord = entry:sub(3)
    local f = load_all(ord)
    ends().forget_tokens(ord, f)
    names = ends().blob_names(f)
    if f.ph then names[#names + 1] = 'p:' .. ord .. ':' .. f.ph end
    keys[1] = group_key(ord)
  else
    for name in entry:sub(3):gmatch('%S+') do names[#names + 1] = name end
  end
  for _, name in ipairs(names) do keys[#keys + 1] = prefix .. 'b:' .. name end
  for first = 1, #keys, 1000 do
    call('UNLINK', unpack(keys, first, math.min(first + 999, #keys)))
  end
end
call_many('ZREM', prefix .. 'trash', due)
return finish('OK', #due)
