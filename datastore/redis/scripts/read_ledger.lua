-- Ledger entries that hold rows after a number. Arguments: that number, entries at most.
-- Returns the number after which rows are wanted and not trimmed, and the entries.
local after = math.max(num(1), J.trimmed)
local ledger = prefix .. 'ledger'
local first = call('XREVRANGE', ledger, format('%d-0', after + 1), '-', 'COUNT', 1)[1]
local start = first and first[1] or format('%d-0', after + 1)
return finish('OK', format('%d', after), call('XRANGE', ledger, start, '+', 'COUNT', num(2)))
