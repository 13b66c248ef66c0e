-- Deletes one slice of due entries. Arguments: maximum entries. Returns the number of entries.
local due = call('ZRANGEBYSCORE', prefix .. 'trash', '-inf', now, 'LIMIT', 0, num(1))
local keys, tokens, holds = {}, {}, {}
local function add(list, text, pattern, head)
  for part in (text or ''):gmatch(pattern) do list[#list + 1] = head .. part end
end
for _, entry in ipairs(due) do
  if entry:sub(1, 1) == 'g' then
    -- A group of a durable step has no pending or leased rows.
    local ord = entry:sub(3)
    local f = call('HMGET', group_key(ord), 'bl', 'hd', 'toks', 'ph')
    add(keys, f[1], '%S+', prefix .. 'b:')
    add(holds, f[2], '%d+', '')
    add(tokens, f[3], '%d+', '')
    if f[4] then keys[#keys + 1] = prefix .. 'b:p:' .. ord .. ':' .. f[4] end
    keys[#keys + 1] = group_key(ord)
  else
    add(keys, entry:sub(3), '%S+', prefix .. 'b:')
  end
end
for first = 1, #keys, 1000 do
  call('UNLINK', unpack(keys, first, math.min(first + 999, #keys)))
end
call_many('HDEL', HOLDS, holds)
call_many('HDEL', TOKENS, tokens)
call_many('ZREM', prefix .. 'trash', due)
return finish('OK', #due)
