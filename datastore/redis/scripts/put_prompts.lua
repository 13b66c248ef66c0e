-- Queues prompts. Arguments: count, then (ordinal, first attempt, checksum, key in pool and histories
-- or "", task) of each. The task counts for the histories only.
local count, previous = num(1), -1
for i = 0, count - 1 do
  local ordinal, attempt = num(2 + 5 * i), num(3 + 5 * i)
  if ordinal < 0 or ordinal <= previous then
    return finish('INVALID', format('prompt ordinal %d does not grow after %d', ordinal, previous))
  end
  local last = math.max(previous, J.high_water)
  if last >= 0 and ordinal - last > 1048576 then
    return finish('INVALID', format('prompt ordinal %d leaps from %d: by at most 1048576', ordinal,
      last))
  end
  if attempt < 0 then
    return finish('INVALID', format('prompt %d: first_attempt %d is negative', ordinal, attempt))
  end
  previous = ordinal
end

local queued = call('ZCARD', prefix .. 'queue')
local added, accepted, high_water = {}, 0, J.high_water
for i = 0, count - 1 do
  local at = 2 + 5 * i
  local ordinal = num(at)
  local ord = format('%016d', ordinal)
  local ended = J.above > 0 and call('SISMEMBER', prefix .. 'above', ord) == 1
  if ordinal > high_water and not ended then
    if queued + #added >= J.max_queued then break end
    local blob = prefix .. 'b:p:' .. ord .. ':' .. arg(at + 2)
    if call('EXISTS', blob) == 0 then return finish('RETRY') end
    added[#added + 1] = {ord, arg(at + 1), arg(at + 2), blob, arg(at + 3), arg(at + 4)}
  end
  high_water = math.max(high_water, ordinal)
  accepted = accepted + 1
end
local places, fresh = {}, {}
for _, name in ipairs(GROUP) do fresh[name] = 0 end
fresh.st, fresh.since = QUEUED, now
for _, prompt in ipairs(added) do
  fresh.att, fresh.pl = tonumber(prompt[2]), tonumber(prompt[1])
  call('HSET', group_key(prompt[1]), 'n', pack_group(fresh), 'ph', prompt[3])
  if prompt[5] ~= '' then call('HSET', group_key(prompt[1]), 'pk', prompt[5]) end
  if J.min_group_size then call('HSET', group_key(prompt[1]), 'tk', prompt[6]) end
  call('PERSIST', prompt[4])
  places[#places + 1] = fresh.pl
  places[#places + 1] = prompt[1]
end
call_many('ZADD', prefix .. 'queue', places)
bump(NOW[QUEUED], #added)
bump(ENTERED[QUEUED], #added)
-- Prompts behind already queued ones do not change any answer.
if queued == 0 and #added > 0 then changed(ADMISSION) end
set('high_water', high_water)
return finish('OK', accepted, format('%d', high_water),
  queued + #added >= J.max_queued and 1 or 0)
