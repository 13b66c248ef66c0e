-- The common case of put_fields.lua, before the part for groups is built: a well-formed score, not
-- the last one of its group, under a live lease, and nothing expires.
do
  local token = arg(2)
  local hold = is_quiet() and arg(1) == '0' and arg(3) == '1' and
    call('HGET', prefix .. 'holds', token)
  local ord, index, worker
  if hold then ord, index, worker = hold:match('^0 (%d+) (%d+) 0 (.*)$') end
  if ord then
    local group, stage = prefix .. 'g:' .. ord, 'u' .. index
    local f = call('HMGET', group, 'sc', 'rw', stage)
    local scored = tonumber(f[1]) or 0
    if scored + 1 < J.group_size then
      call('HSET', group, 'c' .. index, arg(5), 'sc', scored + 1, 'rw', f[2] or arg(4), stage,
        '3 ' .. token .. ' ' .. f[3]:match('(%d+)$'))
      if f[2] and tonumber(f[2]) ~= num(4) then call('HSET', group, 'neq', 1) end
      call('HSET', prefix .. 'holds', token, '0 ' .. ord .. ' ' .. index .. ' 1 ' .. worker)
      call('ZREM', prefix .. 'rleases:0', token)
      return finish('OK')
    end
  end
end
