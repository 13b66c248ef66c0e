-- A step is trained. Arguments: epoch, step, its ordinals, content hash, the digest and the attempts
-- that the caller started from, the digest that it made of them.
-- RECEIPT: content hash, digest. DIGEST: the digest and the attempts to start from.
local epoch, step, ordinals, content_hash = num(1), num(2), arg(3), arg(4)
local fault = epoch_fault(epoch)
if fault then return refuse('%s', fault) end

local function record_trained(ordinal, f, redo)
  local g = {ord = key(ordinal), att = tonumber(f[1])}
  record('trained', J.group_size, 'head', sample_head(g, step), 'redo', redo, 'rows', f[2])
end

if step <= J.version then
  local entry = call('HMGET', step_key(step), 'hash', 'digest', 'ordinals')
  if not entry[1] then return refuse('step %d is committed and forgotten', step) end
  if entry[3] ~= ordinals then return refuse('step %d is committed with other groups', step) end
  if entry[1] ~= content_hash then
    return finish('PRECONDITION', 'step ' .. step .. ' is committed with content hash ' ..
      entry[1] .. ', not ' .. content_hash ..
      ': the redone weights differ and need a lineage of their own')
  end
  if step > J.redo_next then
    return refuse('step %d is redone before step %d', J.redo_next, step)
  end
  if step == J.redo_next then
    for _, ordinal in ipairs(split(ordinals)) do
      record_trained(ordinal, call('HMGET', group_key(key(ordinal)), 'att', 'rows'), 1)
    end
    set('redo_next', step + 1)
  end
  return finish('RECEIPT', entry[1], entry[2])
end
fault = next_step_fault(step)
if fault then return refuse('%s', fault) end
if J.claimed == 0 then return refuse('step %d has no batch: call NextBatch first', step) end
local claimed = call('GET', prefix .. 'claimed')
local list = split(ordinals)
if claimed ~= ordinals then
  return refuse('step %d: the %d groups are not those of its batch', step, #list)
end
local groups, attempts = {}, {}
for i, ordinal in ipairs(list) do
  groups[i] = call('HMGET', group_key(key(ordinal)), 'att', 'rows', 'ntok')
  attempts[i] = groups[i][1]
end
local digest = call('HGET', prefix .. 'digests', J.version)
if digest ~= arg(5) or concat(attempts, ',') ~= arg(6) then
  return finish('DIGEST', digest, concat(attempts, ','))
end

local B = #list
for i, ordinal in ipairs(list) do
  record_trained(ordinal, groups[i], 0)
  count('trained_samples', J.group_size)
  count('trained_tokens', tonumber(groups[i][3]))
end
bump('n' .. CLAIMED, -B)
bump('d' .. CLAIMED, B * (now - J.claimed_at))
bump('n' .. TRAINED, B)
bump('t' .. TRAINED, B)
set('outstanding', J.outstanding - B)
set('trained', J.trained + B)
call('HSET', step_key(step), 'hash', content_hash, 'digest', arg(7), 'ordinals', ordinals,
  'attempts', arg(6), 'at', now)
call('HSET', prefix .. 'digests', step, arg(7))
call('DEL', prefix .. 'claimed')
set('claimed', 0)
set('version', step)
set('redo_next', step + 1)
if J.disposition ~= WAIT then ends().apply_dispositions() end
changed(ADMISSION)
changed(BATCH)
return finish('RECEIPT', content_hash, arg(7))
