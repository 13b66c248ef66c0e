-- Ends expired leases and hopeless groups. Returns the number of the former.
local expired = expire()
if J.disposition ~= WAIT then ends().apply_dispositions() end
return finish('OK', expired)
