-- Marks a worker as lost and ends its leases. Arguments: worker, maximum number of names to
-- remember.
expire()
local worker, revoked = arg(1), prefix .. 'revoked'
if not is_revoked(worker) then
  local newest = call('ZRANGE', revoked, -1, -1, 'WITHSCORES')[2]
  call('ZADD', revoked, (tonumber(newest) or 0) + 1, worker)
  if call('ZCARD', revoked) > num(2) then call('ZPOPMIN', revoked) end
end
call('HDEL', prefix .. 'engines', worker)
call('HDEL', prefix .. 'row_answers', worker)
local returned = 0
local groups = call('ZRANGE', GROUP_LEASES, 0, -1)
table.sort(groups)
for _, ord in ipairs(groups) do
  if call('HGET', group_key(ord), 'wrk') == worker then
    returned = returned + 1
    ends().end_lease(load(ord), 'worker_lost', 'worker ' .. worker .. ' was lost', worker)
  end
end
local rows = {}
for _, token in ipairs(call('ZRANGE', ROW_LEASES, 0, -1)) do
  if parse_hold(call('HGET', HOLDS, token)).worker == worker then
    rows[#rows + 1] = tonumber(token)
  end
end
returned = returned + ends().end_rows(rows, 'worker_lost', 'worker ' .. worker .. ' was lost')
count('leases_expired', returned)
return finish('OK', returned)
