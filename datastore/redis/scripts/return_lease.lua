-- A group back to the queue. Arguments: token, number of indices, 1 when there are as many partials,
-- then (index, kind, lineage, oldest and newest version, tokens, spans, checksum) of each; kind: '-'
-- empty, '1' well-formed, '0' malformed.
expire()
local token, count = arg(1), num(2)
local g = group_of(token)
if not is_live(g, token) then return finish('DEAD') end
if arg(3) ~= '1' then return finish('MISMATCH') end

local group, keep, seen = group_key(g.ord), J.eta > 0, {}
for i = 0, count - 1 do
  local at = 4 + 8 * i
  local index, kind = num(at), arg(at + 1)
  if index < 0 or index >= J.group_size or seen[index] or
      call('HEXISTS', group, 's' .. index) == 1 then
    return finish('INDEX', i, ordinal_number(g.ord))
  end
  seen[index] = true
  if kind ~= '-' then
    if kind ~= '1' or num(at + 2) ~= J.lineage or num(at + 3) < g.min or
        num(at + 4) > J.version then
      return finish('RESPONSE', g.min, J.version, i)
    end
    local blob = prefix .. 'b:' .. token .. ':' .. index .. ':' .. arg(at + 7)
    if keep and call('EXISTS', blob) == 0 then return finish('RETRY') end
  end
end

local partials = g.np
for i = 0, count - 1 do
  local at = 4 + 8 * i
  local index, field = arg(at), 'p' .. arg(at)
  local old = call('HGET', group, field)
  if old then
    local old_token, old_sum = old:match('^(%d+) (%x+)')
    discard('b ' .. old_token .. ':' .. index .. ':' .. old_sum, now + J.grace)
    call('HDEL', group, field)
    partials = partials - 1
  end
  if keep and arg(at + 1) == '1' then
    local sum = arg(at + 7)
    call('PERSIST', prefix .. 'b:' .. token .. ':' .. index .. ':' .. sum)
    call('HSET', group, field, concat({token, sum, arg(at + 5), arg(at + 6)}, ' '))
    partials = partials + 1
  end
end
update(g, 'np', partials)
ends().end_lease(g, 'returned')
return finish('OK')
