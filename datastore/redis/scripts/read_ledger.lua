-- Reads ledger rows after a number. Arguments: that number, maximum entries. Returns the number
-- after which rows are wanted and not trimmed, and either the segment that holds the next row or
-- the entries starting with the one that holds it.
local after = math.max(num(1), J.trimmed)
local function holder(stream)
  return call('XREVRANGE', stream, format('%d-0', after + 1), '-', 'COUNT', 1)[1]
end
if after < J.packed then
  local segment = holder(prefix .. 'segments')
  if not segment or segment[2][2] == '' then return refuse('row %d of the ledger is gone', after + 1) end
  return finish('OK', format('%d', after), segment[2][2], {})
end
local ledger = prefix .. 'ledger'
local first = holder(ledger)
local start = first and first[1] or format('%d-0', after + 1)
return finish('OK', format('%d', after), '', call('XRANGE', ledger, start, '+', 'COUNT', num(2)))
