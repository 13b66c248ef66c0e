-- A task's value for a row. Arguments: task, token, 1 when well-formed, then for a score: reward,
-- value; for reference log-probs: their number, checksum of {job}:b:TOKEN:r:CHECKSUM.
expire()
local task, token = num(1), arg(2)
local hold = parse_hold(call('HGET', HOLDS, token))
if not hold or hold.task ~= task then return finish('DEAD') end
local index, stage = hold.index, STAGE[task] .. hold.index
local g, progress, sample, first = load(hold.ord, stage, 's' .. index, 'rw')
if g.step > 0 and g.step <= J.forgotten then return finish('DEAD') end
if hold.done then return finish('OK') end
local num_tokens = number_of_tokens(sample)
if arg(3) ~= '1' or (task == 1 and num(4) ~= num_tokens) then return finish('FIELD', num_tokens) end
local done = DONE .. ' ' .. token .. ' ' .. failures_in(progress)
if task == 0 then
  if first and tonumber(first) ~= num(4) then g.neq = 1 end
  update(g, 'c' .. index, arg(5), 'sc', g.sc + 1, 'rw', first or arg(4), 'neq', g.neq, stage, done)
else
  local blob = prefix .. 'b:' .. token .. ':r:' .. arg(5)
  if call('PERSIST', blob) == 0 and call('EXISTS', blob) == 0 then return finish('RETRY') end
  update(g, 'q' .. index, token .. ' ' .. arg(5), 'rf', g.rf + 1, stage, done)
end
call('HSET', HOLDS, token, concat({task, hold.ord, index, 1, hold.worker}, ' '))
call('ZREM', ROW_LEASES[task], token)
advance(g)
return finish('OK')
