-- One finished sample, whose bytes are in {job}:b:TOKEN:INDEX:CHECKSUM. Arguments: token, index, 1
-- when well-formed, lineage, oldest and newest version, oldest and newest loss-bearing version,
-- tokens, spans, checksum.
expire()
local token, index, sum = arg(1), arg(2), arg(11)
local g, finished, partial = group_of(token, 's' .. index, 'p' .. index)
if finished and finished:match('^%d+') == token then
  count('duplicate_puts', 1)
  return finish('OK')
end
if finished or not is_live(g, token) then
  count('fenced_puts', 1)
  return finish('DEAD')
end
if arg(3) ~= '1' or num(4) ~= J.lineage or num(5) < g.min or num(6) > J.version then
  return finish('RESPONSE', g.min, J.version)
end
local blob = prefix .. 'b:' .. token .. ':' .. index .. ':' .. sum
if call('PERSIST', blob) == 0 and call('EXISTS', blob) == 0 then return finish('RETRY') end

local group, oldest, newest = group_key(g.ord), num(7), num(8)
if g.fin > 0 then
  oldest, newest = math.min(oldest, g.lmin), math.max(newest, g.lmax)
end
if partial then
  local old_token, old_sum = partial:match('^(%d+) (%x+)')
  discard('b ' .. old_token .. ':' .. index .. ':' .. old_sum, now + J.grace)
  call('HDEL', group, 'p' .. index)
  g.np = g.np - 1
end
count('samples_put', 1)
update(g, 's' .. index, token .. ' ' .. sum .. ' ' .. arg(9) .. ' ' .. arg(10), 'fin', g.fin + 1,
  'lmin', oldest, 'lmax', newest, 'ntok', g.ntok + num(9), 'np', g.np)
offer(g, 0, index, 0)
if J.needs_ref == 1 then offer(g, 1, index, 0) end
changed(ROWS)
if g.fin == J.group_size then
  -- From here on the versions are known from the tokens themselves.
  update(g, 'min', g.lmin, 'max', g.lmax)
  move(g, GENERATED)
  changed(ADMISSION)
  changed(BATCH)
  advance(g)
end
return finish('OK')
