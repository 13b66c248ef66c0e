-- Rows that wait for a task, oldest first. Arguments: task, worker, rows asked for.
-- Returns the expiry and for each row 'TOKEN ORDINAL ATTEMPT INDEX CHECKSUM DESCRIPTOR', its score
-- and its reference log-probs.
local task, worker, wanted = num(1), arg(2), num(3)
if is_revoked(worker) then return finish('REVOKED') end
expire()
local expires, out = now + J.ttl, {}
local popped = call('ZRANGE', PENDING_ROWS[task], 0, wanted - 1)
if wanted == 0 then popped = {} end
call_many('ZREM', PENDING_ROWS[task], popped)
for _, member in ipairs(popped) do
  local ord, index = member:sub(1, 16), tonumber(member:sub(18))
  set('last_token', J.last_token + 1)
  local token, progress, group = J.last_token, STAGE[task] .. index, group_key(ord)
  local f = call('HMGET', group, 'att', 'ph', 's' .. index, 'c' .. index, 'q' .. index, progress)
  call('HSET', group, progress, format('%d %d %s', HELD, token, f[6]:match('(%d+)$')))
  call('HSET', HOLDS, token, format('%d %s %d 0 %s', task, ord, index, worker))
  call('ZADD', ROW_LEASES[task], expires, token)
  out[#out + 1] = format('%d %s %s %d %s %s', token, ordinal_number(ord), f[1], index, f[2], f[3])
  out[#out + 1] = f[4] or ''
  out[#out + 1] = f[5] or ''
end
if #popped > 0 then set('next_expiry', math.min(J.next_expiry, expires)) end
return finish('OK', format('%d', expires), out)
