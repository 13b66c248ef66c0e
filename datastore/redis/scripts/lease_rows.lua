-- Rows that wait for a task, oldest first. Arguments: task, worker, rows asked for.
-- Returns the expiry and for each row 'TOKEN ORDINAL ATTEMPT INDEX CHECKSUM DESCRIPTOR', its score
-- and its reference log-probs.
local task, worker, wanted = num(1), arg(2), num(3)
if is_revoked(worker) then return finish('REVOKED') end
expire()
local expires, out = now + J.ttl, {}
local expires_text = format('%d', expires)
local popped = wanted > 0 and call('ZRANGE', PENDING_ROWS[task], 0, wanted - 1) or {}
call_many('ZREM', PENDING_ROWS[task], popped)

local holds, leases = {}, {}
-- Leases the rows popped[first..last], which are of one group.
local function lease_run(ord, first, last)
  local indices, fields = {}, {'ph', 'hd'}
  for n = first, last do
    local index = format('%d', tonumber(popped[n]:sub(18)))
    indices[#indices + 1] = index
    for _, kind in ipairs({'s', 'c', 'q', STAGE[task]}) do fields[#fields + 1] = kind .. index end
  end
  local g, f = load(ord, unpack(fields))
  local head, tail = format(' %d %d ', tonumber(ord), g.att), ' ' .. f[1] .. ' '
  local tokens = {f[2] or ''}
  for n, index in ipairs(indices) do
    local token, at = format('%d', J.last_token + n), 4 * n - 1
    write(g, STAGE[task] .. index, HELD .. ' ' .. token .. ' ' .. failures_in(f[at + 3]))
    tokens[n + 1] = token
    holds[#holds + 1] = token
    holds[#holds + 1] = hold_text(task, ord, index, 0, worker)
    leases[#leases + 1] = expires_text
    leases[#leases + 1] = token
    out[#out + 1] = concat({token, head, index, tail, f[at]})
    out[#out + 1] = f[at + 1] or ''
    out[#out + 1] = f[at + 2] or ''
  end
  write(g, 'hd', concat(tokens, ' '))
  set('last_token', J.last_token + #indices)
end

local at, MOST = 1, 256
while at <= #popped do
  local ord, last = popped[at]:sub(1, 16), at
  while last < #popped and last - at < MOST - 1 and popped[last + 1]:sub(1, 16) == ord do
    last = last + 1
  end
  lease_run(ord, at, last)
  at = last + 1
end
call_many('HSET', HOLDS, holds)
call_many('ZADD', ROW_LEASES[task], leases)
if #popped > 0 then set('next_expiry', math.min(J.next_expiry, expires)) end
return finish('OK', expires_text, out)
