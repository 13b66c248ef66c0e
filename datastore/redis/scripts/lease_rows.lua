-- Leases pending rows, oldest first. Arguments: worker, requested rows, request id. Returns the
-- expiry and for each row 'TOKEN ORDINAL ATTEMPT INDEX CHECKSUM DESCRIPTOR', followed by a line
-- 'INDEX DESCRIPTOR' for each sample of the group if whole groups are scored.
local worker, wanted, request = arg(1), num(2), arg(3)
if is_revoked(worker) then return finish('REVOKED') end
expire()
local expires, out = now + J.ttl, {}
local expires_text = format('%d', expires)
local holds, leases, tokens = {}, {}, {}

-- Adds a row to the reply. s: its descriptor. group: lines of its group.
local function show(token, head, index, tail, s, group)
  tokens[#tokens + 1] = token
  leases[#leases + 1] = expires_text
  leases[#leases + 1] = token
  out[#out + 1] = concat({token, head, index, tail, s, group})
end
local function lines_of(ord)
  if J.whole ~= 1 then return '' end
  local names, lines = {}, {}
  local size = size_of(load(ord))
  for i = 1, size do names[i] = format('s%d', i - 1) end
  local _, f = load(ord, unpack(names))
  for i = 1, size do lines[i] = format('\n%d ', i - 1) .. f[i] end
  return concat(lines)
end
local function head_of(ord, g) return format(' %d %d ', tonumber(ord), g.att) end

-- Leases the rows popped[first..last], which belong to one group.
local function lease_run(ord, popped, first, last)
  local indices, fields = {}, {'ph', 'hd'}
  for n = first, last do
    local index = format('%d', tonumber(popped[n]:sub(18)))
    indices[#indices + 1] = index
    fields[#fields + 1] = 's' .. index
    fields[#fields + 1] = 'u' .. index
  end
  local g, f = load(ord, unpack(fields))
  local head, tail = head_of(ord, g), ' ' .. f[1] .. ' '
  local held, group = {f[2] or ''}, lines_of(ord)
  for n, index in ipairs(indices) do
    local token, at = format('%d', J.last_token + n), 2 * n + 1
    write(g, 'u' .. index, HELD .. ' ' .. token .. ' ' .. counts_in(f[at + 1]))
    held[n + 1] = token
    holds[#holds + 1] = token
    holds[#holds + 1] = hold_text(ord, index, 0, worker)
    show(token, head, index, tail, f[at], group)
  end
  write(g, 'hd', concat(held, ' '))
  set('last_token', J.last_token + #indices)
end
local function lease_rows()
  local popped = wanted > 0 and call('ZRANGE', PENDING_ROWS, 0, wanted - 1) or {}
  call_many('ZREM', PENDING_ROWS, popped)
  local at, MOST = 1, 256
  while at <= #popped do
    local ord, last = popped[at]:sub(1, 16), at
    while last < #popped and last - at < MOST - 1 and popped[last + 1]:sub(1, 16) == ord do
      last = last + 1
    end
    lease_run(ord, popped, at, last)
    at = last + 1
  end
  call_many('HSET', HOLDS, holds)
end

-- Rows of the worker's last reply whose leases are live.
local function repeat_rows(answer)
  for _, token in ipairs(answer) do
    local hold = parse_hold(call('HGET', HOLDS, token))
    if hold and not hold.done then
      local index = hold.index
      local g, f = load(hold.ord, 'ph', 's' .. index)
      show(token, head_of(hold.ord, g), index, ' ' .. f[1] .. ' ', f[2], lines_of(hold.ord))
    end
  end
end

local answers = prefix .. 'row_answers'
local known = request ~= '' and call('HGET', answers, worker)
local answer = known and cmsgpack.unpack(known)
if answer and answer[1] == request then
  repeat_rows(answer[2])
else
  lease_rows()
  if request ~= '' and #tokens > 0 and (known or call('HLEN', answers) < 1024) then
    call('HSET', answers, worker, cmsgpack.pack({request, tokens}))
  end
end
call_many('ZADD', ROW_LEASES, leases)
if #tokens > 0 then set('next_expiry', math.min(J.next_expiry, expires)) end
return finish('OK', expires_text, out)
