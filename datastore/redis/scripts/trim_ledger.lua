-- Removes ledger rows up to a number. Arguments: that number.
local upto = math.min(num(1), J.seq)
if J.seq - J.trimmed >= J.max_ledger_rows then changed(ADMISSION) end
if upto > J.trimmed then
  set('trimmed', upto)
  local next_id = format('%d-0', upto + 1)
  for stream, last in pairs({segments = J.packed, ledger = J.seq}) do
    -- Keep the entry that holds the next row.
    local holder = upto < last and call('XREVRANGE', prefix .. stream, next_id, '-', 'COUNT', 1)[1]
    call('XTRIM', prefix .. stream, 'MINID', holder and holder[1] or next_id)
  end
end
return finish('OK')
