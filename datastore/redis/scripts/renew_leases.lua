-- Extends leases of groups and rows. Arguments: worker, tokens. Returns the positions of dead ones.
local worker = arg(1)
if is_revoked(worker) then return finish('REVOKED') end
expire()
local dead = {}
for i = 2, #ARGV - 4 do
  local token = arg(i)
  local g = group_of(token)
  local hold = parse_hold(call('HGET', HOLDS, token))
  if is_live(g, token) and call('HGET', group_key(g.ord), 'wrk') == worker then
    call('ZADD', GROUP_LEASES, now + J.ttl, g.ord)
  elseif hold and not hold.done and hold.worker == worker then
    call('ZADD', ROW_LEASES, now + J.ttl, token)
  else
    dead[#dead + 1] = i - 2
  end
end
return finish('OK', dead)
