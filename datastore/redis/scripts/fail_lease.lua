-- Engine or environment failed on a group. Arguments: token, reason.
expire()
local token, reason = arg(1), arg(2)
local g = group_of(token)
if not is_live(g, token) then return finish('DEAD') end
ends().end_lease(g, 'lease_failed', reason)
return finish('OK')
