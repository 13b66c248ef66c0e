-- Ends the lease of a row. Arguments: token, 'failed' or 'returned', reason.
expire()
local token = arg(1)
local hold = parse_hold(call('HGET', HOLDS, token))
if not hold then return finish('DEAD') end
if hold.done then
  local g = load(hold.ord)
  if g.step > 0 and g.step <= J.forgotten then return finish('DEAD') end
  return finish('DONE')
end
ends().end_row(token, hold, arg(2), arg(3))
return finish('OK')
