-- FailLease and HandBackLease. Arguments: token, label (lease_failed or handed_back), reason.
expire()
local token = arg(1)
local g = group_of(token)
if not is_live(g, token) then return finish('DEAD') end
ends().end_lease(g, arg(2), arg(3))
return finish('OK')
