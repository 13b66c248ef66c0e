-- The common case of put_sample.lua, before the part for groups is built: a live lease, a new sample
-- without kept tokens, not the last one of its group, and nothing expires.
do
  local token, index = arg(1), arg(2)
  local ord = is_quiet() and arg(3) == '1' and call('HGET', prefix .. 'tokens', token)
  if ord then
    local group, sum = prefix .. 'g:' .. ord, arg(11)
    local f = call('HMGET', group, 'st', 'tok', 'min', 'fin', 'lmin', 'lmax', 'ntok', 's' .. index,
      'p' .. index)
    local finished = tonumber(f[4]) or 0
    if f[1] == '1' and f[2] == token and not f[8] and not f[9] and
        finished + 1 < J.group_size and num(4) == J.lineage and num(5) >= tonumber(f[3]) and
        num(6) <= J.version and
        call('PERSIST', prefix .. 'b:' .. token .. ':' .. index .. ':' .. sum) == 1 then
      local oldest, newest, member = num(7), num(8), format('%s:%05d', ord, index)
      if finished > 0 then
        oldest, newest = math.min(oldest, tonumber(f[5])), math.max(newest, tonumber(f[6]))
      end
      call('HSET', group, 's' .. index, token .. ' ' .. sum .. ' ' .. arg(9) .. ' ' .. arg(10),
        'fin', finished + 1, 'lmin', oldest, 'lmax', newest, 'ntok',
        (tonumber(f[7]) or 0) + num(9), 'u' .. index, '1 0 0')
      call('ZADD', prefix .. 'rows:0', f[3], member)
      if J.needs_ref == 1 then
        call('HSET', group, 'v' .. index, '1 0 0')
        call('ZADD', prefix .. 'rows:1', f[3], member)
      end
      count('samples_put', 1)
      changed(ROWS)
      return finish('OK')
    end
  end
end
