-- Claims the groups of a step. Arguments: epoch, step. Returns first whether the store is full;
-- then BATCH: 1 for a committed step, the digest of the previous version, and for each group:
-- ordinal, attempt, checksum of the prompt, rows, scores. WAIT: the blocking edge. PAUSED: the
-- count.
local epoch, step = num(1), num(2)
local fault = epoch_fault(epoch)
if fault then return refuse('%s', fault) end
expire()
local full = store_full() and 1 or 0

local function batch(committed, ordinals)
  local out = {}
  for _, ordinal in ipairs(ordinals) do
    local f = call('HMGET', group_key(key(ordinal)), 'n', 'ph', 'rows', 'scores')
    out[#out + 1] = ordinal_number(ordinal)
    out[#out + 1] = format('%d', unpack_group(f[1]).att)
    for i = 2, 4 do out[#out + 1] = f[i] end
  end
  return finish('BATCH', full, committed, call('HGET', prefix .. 'digests', step - 1) or '', out)
end

if step <= J.version then
  local ordinals = call('HGET', step_key(step), 'ordinals')
  if not ordinals then return refuse('step %d is forgotten', step) end
  return batch(1, split(ordinals))
end
fault = next_step_fault(step)
if fault then return refuse('%s', fault) end
if J.claimed > 0 then return batch(0, split(call('GET', prefix .. 'claimed'))) end
if J.paused > 0 then return finish('PAUSED', full, J.paused) end
local ordinals, reason, waits_for = decide()
if not ordinals then return finish('WAIT', full, blocking(reason, waits_for)) end

-- One update per group, because B groups move to CLAIMED at once.
local numbers, out = {}, {}
for i, ord in ipairs(ordinals) do
  local group = group_key(ord)
  local f = call('HMGET', group, 'n', 'ph', 'rows', 'scores')
  local g = unpack_group(f[1])
  bump(STAYED[READY], now - g.since)
  bump(SKIPPED[READY], -g.sk)
  bump(SKIPPED[CLAIMED], g.sk)
  g.st, g.since, g.step = CLAIMED, now, step
  call('HSET', group, 'n', pack_group(g))
  numbers[i] = ordinal_number(ord)
  out[#out + 1] = numbers[i]
  out[#out + 1] = format('%d', g.att)
  for n = 2, 4 do out[#out + 1] = f[n] end
end
call_many('ZREM', prefix .. 'ready', ordinals)
bump(NOW[READY], -#ordinals)
bump(NOW[CLAIMED], #ordinals)
bump(ENTERED[CLAIMED], #ordinals)
call('SET', prefix .. 'claimed', concat(numbers, ','))
set('claimed', #ordinals)
set('claimed_at', now)
return finish('BATCH', full, 0, call('HGET', prefix .. 'digests', step - 1), out)
