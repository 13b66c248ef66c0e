-- Rows that wait for a task, oldest first. Arguments: task, worker, rows asked for.
-- Returns the expiry and for each row 'TOKEN ORDINAL ATTEMPT INDEX CHECKSUM DESCRIPTOR', its score
-- and its reference log-probs.
local task, worker, wanted = num(1), arg(2), num(3)
if is_revoked(worker) then return finish('REVOKED') end
expire()
local expires, out = now + J.ttl, {}
local popped = wanted > 0 and call('ZRANGE', PENDING_ROWS[task], 0, wanted - 1) or {}
call_many('ZREM', PENDING_ROWS[task], popped)

local holds, leases = {}, {}
-- Leases the rows popped[first..last], which are of one group.
local function lease_run(ord, first, last)
  local indices, fields = {}, {'att', 'ph'}
  for n = first, last do
    local index = tonumber(popped[n]:sub(18))
    indices[#indices + 1] = index
    for _, kind in ipairs({'s', 'c', 'q', STAGE[task]}) do fields[#fields + 1] = kind .. index end
  end
  local f, progress = call('HMGET', group_key(ord), unpack(fields)), {}
  for n, index in ipairs(indices) do
    local token, at = J.last_token + n, 4 * n - 1
    progress[#progress + 1] = STAGE[task] .. index
    progress[#progress + 1] = format('%d %d %s', HELD, token, f[at + 3]:match('(%d+)$'))
    holds[#holds + 1] = token
    holds[#holds + 1] = format('%d %s %d 0 %s', task, ord, index, worker)
    leases[#leases + 1] = expires
    leases[#leases + 1] = token
    out[#out + 1] = format('%d %s %s %d %s %s', token, ordinal_number(ord), f[1], index, f[2], f[at])
    out[#out + 1] = f[at + 1] or ''
    out[#out + 1] = f[at + 2] or ''
  end
  set('last_token', J.last_token + #indices)
  call_many('HSET', group_key(ord), progress)
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
return finish('OK', format('%d', expires), out)
