-- Moves rows from their entries into a segment. Arguments: number of the row before them, number of
-- the last one, the segment. No effect if another caller has packed or trimmed them.
local after, upto = num(1), num(2)
if after == math.max(J.packed, J.trimmed) and upto <= J.seq then
  call('XADD', prefix .. 'segments', format('%d-0', after + 1), 'rows', arg(3))
  call('XTRIM', prefix .. 'ledger', 'MINID', format('%d-0', upto + 1))
  set('packed', upto)
end
return finish('OK')
