-- Rows up to a number are drained. Arguments: that number.
local upto, ledger = math.min(num(1), J.seq), prefix .. 'ledger'
if J.seq - J.trimmed >= J.max_ledger_rows then changed(ADMISSION) end
if upto > J.trimmed then
  set('trimmed', upto)
  local next_id = format('%d-0', upto + 1)
  -- The entry that holds the next row stays whole.
  local holder = upto < J.seq and call('XREVRANGE', ledger, next_id, '-', 'COUNT', 1)[1]
  call('XTRIM', ledger, 'MINID', holder and holder[1] or next_id)
end
return finish('OK')
