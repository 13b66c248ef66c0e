-- Commits a trained step. Arguments: epoch, step, ordinals, content hash, the digest and attempts
-- that the caller started from, the resulting digest. The attempt of a group with a replayed sample
-- is 'ATTEMPT:INDEX', with that sample's index in its uid; of a group with fewer than G samples
-- 'ATTEMPT:INDEX:SAMPLES', with 2 * G for no index.
-- Returns RECEIPT: content hash, digest, lineage; or DIGEST: the digest and attempts to start from.
local epoch, step, ordinals, content_hash = num(1), num(2), arg(3), arg(4)
local fault = epoch_fault(epoch)
if fault then return refuse('%s', fault) end

-- Numbers and rows of a trained group.
local function trained(ordinal)
  local f = call('HMGET', group_key(key(ordinal)), 'n', 'rows')
  local g = unpack_group(f[1])
  g.ord = key(ordinal)
  return g, f[2]
end
local function record_trained(g, rows, redo)
  local size = g.gs > 0 and {'samples', g.gs} or {}
  record('trained', size_of(g), 'head', sample_head(g, step), 'redo', redo, 'rows', rows, unpack(size))
end

if step <= J.version then
  local entry = call('HMGET', step_key(step), 'hash', 'digest', 'ordinals')
  if not entry[1] then return refuse('step %d is committed and forgotten', step) end
  if entry[3] ~= ordinals then return refuse('step %d is committed with other groups', step) end
  if step > J.redo_next then
    return refuse('step %d is redone before step %d', J.redo_next, step)
  end
  if step < J.redo_next and entry[1] ~= content_hash then
    return finish('PRECONDITION', 'step ' .. step .. ' is committed with content hash ' ..
      entry[1] .. ', not ' .. content_hash)
  end
  if step == J.redo_next then
    if entry[1] ~= content_hash then
      call('HSET', step_key(step), 'hash', content_hash)
      diverge(step)
    end
    for _, ordinal in ipairs(split(ordinals)) do
      local g, rows = trained(ordinal)
      record_trained(g, rows, 1)
    end
    set('redo_next', step + 1)
  end
  return finish('RECEIPT', content_hash, entry[2], lineage_of(step))
end
fault = next_step_fault(step)
if fault then return refuse('%s', fault) end
if J.claimed == 0 then return refuse('step %d has no batch: call NextBatch first', step) end
local claimed = call('GET', prefix .. 'claimed')
local list = split(ordinals)
if claimed ~= ordinals then
  return refuse('step %d: the %d groups are not those of its batch', step, #list)
end
local groups, rows, attempts = {}, {}, {}
for i, ordinal in ipairs(list) do
  groups[i], rows[i] = trained(ordinal)
  local g = groups[i]
  attempts[i] = g.rp > 0 and format('%d:%d', g.att, uid_index(g, g.rp - 1)) or format('%d', g.att)
  if g.gs > 0 then
    local index = g.rp > 0 and uid_index(g, g.rp - 1) or 2 * J.group_size
    attempts[i] = format('%d:%d:%d', g.att, index, g.gs)
  end
end
local digest = call('HGET', prefix .. 'digests', J.version)
if digest ~= arg(5) or concat(attempts, ',') ~= arg(6) then
  return finish('DIGEST', digest, concat(attempts, ','))
end

local B, skipped = #list, 0
for i, g in ipairs(groups) do
  skipped = skipped + g.sk
  record_trained(g, rows[i], 0)
  count('trained_samples', size_of(g))
  count('trained_tokens', g.ntok)
end
bump(NOW[CLAIMED], -B)
bump(STAYED[CLAIMED], B * (now - J.claimed_at))
bump(NOW[TRAINED], B)
bump(ENTERED[TRAINED], B)
bump(SKIPPED[CLAIMED], -skipped)
bump(SKIPPED[TRAINED], skipped)
set('outstanding', J.outstanding - B)
set('trained', J.trained + B)
call('HSET', step_key(step), 'hash', content_hash, 'digest', arg(7), 'ordinals', ordinals,
  'attempts', arg(6), 'at', now, 'skipped', skipped)
call('HSET', prefix .. 'digests', step, arg(7))
call('DEL', prefix .. 'claimed')
set('claimed', 0)
set('version', step)
set('redo_next', step + 1)
if J.disposition ~= WAIT then ends().apply_dispositions() end
changed(ADMISSION)
changed(BATCH)
return finish('RECEIPT', content_hash, arg(7), J.lineage)
