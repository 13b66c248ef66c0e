-- Returns the oldest unit of work and what it waits for, as an edge.
expire()
local step = J.version + 1
local edge
if J.paused > 0 and J.claimed == 0 then
  edge = edge_of('paused', paused_text())
elseif step > J.last_step then
  edge = edge_of('done', format('all %d steps are committed', J.last_step))
elseif J.epoch_open == 1 and J.redo_next <= J.version then
  edge = edge_of('trainer', format('the trainer redoes step %d of %d', J.redo_next, J.version))
elseif J.claimed > 0 then
  edge = edge_of('trainer', format('step %d is claimed by epoch %d since ', step, J.epoch),
    now - J.claimed_at, ' and not committed')
else
  local ordinals, reason, waits_for = decide()
  if not ordinals then
    edge = blocking(reason, waits_for)
  else
    edge = edge_of('trainer', format('step %d has its groups, but %s', step,
      J.epoch_open == 1 and 'the trainer has not asked' or 'no trainer is there'))
  end
end
return finish('OK', edge)
