-- Opens a trainer epoch. Arguments: lineage and version of the trainer's weights, their required
-- digest or '', request id or '', maximum number of ids to remember.
-- Returns the epoch, the digest of the version, the current lineage, and for each later step: step,
-- content hash, ordinals, attempts.
local lineage, version, id = num(1), num(2), arg(4)
-- {id, epoch} of the newest requests with an id.
local requests, opened = J.epoch_requests, nil
for _, known in ipairs(requests) do
  if known[1] == id then opened = known[2] end
end
local fault = opened and epoch_fault(opened)
if fault then return finish('FENCED', fault) end
if lineage < J.root_lineage or lineage > J.lineage then
  return refuse("loaded lineage %d is not the store's %d: a fork needs a store of its own", lineage,
    J.lineage)
end
local last = last_of(lineage)
if last and version > last then
  return refuse('version %d of lineage %d is not where lineage %d comes from: load its version %d ' ..
    'or an older one', version, lineage, J.lineage, last)
end
if version > J.version then
  return refuse('loaded version %d is not committed: the store is at %d', version, J.version)
end
if version < J.first_version then
  return refuse('the steps after version %d are forgotten: load version %d or a newer one', version,
    J.first_version)
end
local digest = call('HGET', prefix .. 'digests', version)
if arg(3) ~= '' and arg(3) ~= digest then
  return refuse("version %d was trained on other samples than the store's: digest %s, not %s", version, arg(3), digest)
end
local redo = {}
for step = version + 1, J.version do
  local entry = call('HMGET', step_key(step), 'hash', 'ordinals', 'attempts')
  redo[#redo + 1] = step
  for i = 1, 3 do redo[#redo + 1] = entry[i] end
end
if opened then return finish('OK', opened, digest, J.lineage, redo) end
set('epoch', J.epoch + 1)
if id ~= '' then
  local newest = {}
  for i = math.max(1, #requests + 2 - num(5)), #requests do newest[#newest + 1] = requests[i] end
  newest[#newest + 1] = {id, J.epoch}
  set('epoch_requests', newest)
end
set('epoch_open', 1)
unclaim()
set('redo_next', version + 1)
set_durable(version, 1)
changed(BATCH)
return finish('OK', J.epoch, digest, J.lineage, redo)
