-- Ends expired leases and hopeless groups. Returns the number of expired leases, the number of the
-- last packed or trimmed ledger row, and that of the newest one.
local expired = expire()
if J.disposition ~= WAIT then ends().apply_dispositions() end
return finish('OK', expired, math.max(J.packed, J.trimmed), J.seq)
