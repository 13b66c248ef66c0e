-- Operations on the current evaluation, except begin and put (put_evaluation.lua). Arguments:
-- operation, its arguments.
local operation = arg(1)
if E then expire_rows() end

-- Arguments: worker, maximum rows, request id. Returns the expiry, the evaluation's id, and for
-- each row: token, row, prompt, response.
local function lease()
  local worker, wanted, request = arg(2), math.min(num(3), 1024), arg(4)
  local expires, out, bytes = now + J.ttl, {}, 0
  local function show(n, row)
    call('ZADD', LEASES, expires, n)
    local parts = call('HMGET', BYTES, 'p' .. n, 'r' .. n)
    bytes = bytes + #parts[1] + #parts[2]
    for _, value in ipairs({row.token, n, parts[1], parts[2]}) do out[#out + 1] = value end
  end
  if request ~= '' and call('HGET', REQUESTS, worker) == request then
    for _, n in ipairs(call('ZRANGE', LEASES, 0, -1)) do
      local row = read_row(n)
      if row.worker == worker and row.request == request then show(n, row) end
    end
  end
  if #out == 0 and wanted > 0 then
    for _, n in ipairs(call('ZRANGE', WAITING, 0, wanted - 1)) do
      if bytes > 4194304 then break end
      local row, token = read_row(n), format('%d', J.last_token + 1)
      set('last_token', J.last_token + 1)
      row.stage, row.token, row.worker, row.request = 'h', token, worker, request
      write_row(n, row)
      call('ZREM', WAITING, n)
      call('HSET', TOKENS, token, n)
      show(n, row)
    end
    if #out > 0 and request ~= '' then call('HSET', REQUESTS, worker, request) end
  end
  return finish('OK', format('%d', expires), E.id, out)
end

-- Arguments: for each row its token and score ("" if malformed). Returns for each rejected row:
-- position, code (DEAD or FIELD).
local function score()
  local faults = {}
  for i = 2, #ARGV - 4, 2 do
    local n = call('HGET', TOKENS, arg(i))
    local row = read_row(n)
    local mine = row and row.token == arg(i)
    if not mine or (row.stage ~= 'h' and row.stage ~= 's') then
      faults[#faults + 1] = {i / 2 - 1, 'DEAD'}
    elseif arg(i + 1) == '' then
      faults[#faults + 1] = {i / 2 - 1, 'FIELD'}
    elseif row.stage == 'h' then
      call('ZREM', LEASES, n)
      end_row(n, row, 's', arg(i + 1))
    end
  end
  return finish('OK', faults)
end

-- Arguments: token, 'failed' or 'returned', reason.
local function end_lease()
  local n = call('HGET', TOKENS, arg(2))
  local row = read_row(n)
  if not row or row.token ~= arg(2) or row.stage ~= 'h' then return finish('DEAD') end
  release(n, row, arg(3), arg(4))
  return finish('OK')
end

-- Arguments: worker, tokens. Returns the positions of dead ones.
local function renew()
  local dead = {}
  for i = 3, #ARGV - 4 do
    local n = call('HGET', TOKENS, arg(i))
    local row = read_row(n)
    if row and row.token == arg(i) and row.stage == 'h' and row.worker == arg(2) then
      call('ZADD', LEASES, now + J.ttl, n)
    else
      dead[#dead + 1] = i - 3
    end
  end
  return finish('OK', dead)
end

-- Arguments: id, first row, number of rows. Returns lineage, version, answered, ended, total and
-- the reason why it was abandoned; then, once all rows have ended, for each row its response
-- tokens, 's' or 'f', and score or reason.
local function read()
  local out = {}
  if E.ended == E.rows and num(4) > 0 then
    for n = num(3), math.min(num(3) + num(4), E.rows) - 1 do
      local row = read_row(format('%d', n))
      for _, value in ipairs({row.size, row.stage, row.value}) do out[#out + 1] = value end
    end
  end
  return finish('OK', E.lineage, E.version, E.answered, E.ended, E.rows, E.abandoned, out)
end

if operation == 'read' or operation == 'abandon' or operation == 'end' then
  if not E or E.id ~= arg(2) then return finish('OTHER') end
  if operation == 'read' then return read() end
  if operation == 'end' then
    delete_all()
  else
    E.abandoned = arg(3):sub(1, MAX_REASON)
    save()
  end
  return finish('OK')
end
if not E and operation == 'lease' then return finish('OK', '0', '', {}) end
return ({lease = lease, score = score, end_row = end_lease, renew = renew})[operation]()
