-- Ends expired leases and hopeless groups. Returns the number of the former, that of the last ledger
-- row that is packed or trimmed, and that of the newest one.
local expired = expire()
if J.disposition ~= WAIT then ends().apply_dispositions() end
return finish('OK', expired, math.max(J.packed, J.trimmed), J.seq)
