-- Ends the lease of a row. Arguments: task, token, 'failed' or 'returned', reason.
expire()
local task, token = num(1), arg(2)
local hold = parse_hold(call('HGET', HOLDS, token))
if not hold or hold.task ~= task then return finish('DEAD') end
if hold.done then
  local g = load(hold.ord)
  if g.step > 0 and g.step <= J.forgotten then return finish('DEAD') end
  return finish('DONE')
end
ends().end_row(token, hold, arg(3), arg(4))
return finish('OK')
