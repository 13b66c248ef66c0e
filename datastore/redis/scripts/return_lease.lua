-- Returns a group to the queue. Arguments: token, number of indices, 1 if there are as many
-- partials, then (index, kind, first and last lineage, oldest and newest version, descriptor, blob)
-- of each; kind: '-' empty, '1' well-formed, '0' malformed.
expire()
local token, count = arg(1), num(2)
local g = group_of(token)
if not is_live(g, token) then return finish('DEAD') end
if arg(3) ~= '1' then return finish('MISMATCH') end

local group, keep, seen = group_key(g.ord), J.eta > 0, {}
for i = 0, count - 1 do
  local at = 4 + 8 * i
  local index, kind = num(at), arg(at + 1)
  if index < 0 or index >= size_of(g) or seen[index] or
      call('HEXISTS', group, 's' .. index) == 1 then
    return finish('INDEX', i, ordinal_number(g.ord))
  end
  seen[index] = true
  if kind ~= '-' then
    if kind ~= '1' or num(at + 2) < J.root_lineage or num(at + 3) > J.lineage or
        num(at + 4) < g.min or num(at + 5) > J.version then
      return finish('RESPONSE', g.min, J.version, J.lineage, i)
    end
    if keep and call('EXISTS', prefix .. 'b:' .. arg(at + 7)) == 0 then return finish('RETRY') end
  end
end

local partials = g.np
for i = 0, count - 1 do
  local at = 4 + 8 * i
  local field = 'p' .. arg(at)
  local old = call('HGET', group, field)
  if old then
    discard('b ' .. blob_of(old), now + J.grace)
    call('HDEL', group, field)
    partials = partials - 1
  end
  if keep and arg(at + 1) == '1' then
    call('PERSIST', prefix .. 'b:' .. arg(at + 7))
    call('HSET', group, field, arg(at + 6))
    partials = partials + 1
  end
end
update(g, 'np', partials)
ends().end_lease(g, 'returned', '')
return finish('OK')
