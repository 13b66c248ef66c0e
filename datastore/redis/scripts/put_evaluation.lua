-- Begins an evaluation or stores answers. Arguments: 'begin', id, rows; or 'put', id, lineage,
-- version, then for each answer: row, response tokens or "" for a failure, prompt or reason of the
-- failure, response.
local id = arg(2)
if arg(1) == 'begin' then
  if not E or E.id ~= id then
    delete_all()
    E = {id = id, rows = num(3), answered = 0, ended = 0, lineage = '0', version = '0',
      abandoned = ''}
    save()
  end
  return finish('OK')
end
if not E or E.id ~= id then return finish('OTHER') end
local SIZE = 4
for i = 5, #ARGV - 4, SIZE do
  if num(i) >= E.rows then return finish('RANGE', arg(i), E.rows) end
end
E.lineage, E.version = arg(3), arg(4)
for i = 5, #ARGV - 4, SIZE do
  local n, size = arg(i), num(i + 1)
  if call('HEXISTS', RECORDS, n) == 0 then
    E.answered = E.answered + 1
    local row = {stage = 'w', size = size or 0, failures = 0, losses = 0, token = '', worker = '',
      request = '', value = ''}
    if size then
      write_row(n, row)
      call('HSET', BYTES, 'p' .. n, arg(i + 2), 'r' .. n, arg(i + 3))
      call('ZADD', WAITING, n, n)
    else
      end_row(n, row, 'f', arg(i + 2):sub(1, MAX_REASON))
    end
  end
end
save()
changed(EVALUATION)
return finish('OK')
