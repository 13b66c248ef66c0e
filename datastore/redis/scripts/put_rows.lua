-- Stores scores of rows in order, each independently. Arguments: for each row: token, 1 if the
-- score is well-formed, reward, score. Returns for each rejected row: position, code (DEAD or
-- FIELD).
expire()
local SIZE = 4
local total, faults = (#ARGV - 4) / SIZE, {}
local function field(i, k) return arg(i * SIZE + k) end
local function fault(i, code) faults[#faults + 1] = {i, code} end

local holds, taken, advanced = {}, {}, {}
do
  local tokens = {}
  for i = 0, total - 1 do tokens[i + 1] = field(i, 1) end
  for first = 1, total, 1000 do
    local texts = call('HMGET', HOLDS, unpack(tokens, first, math.min(first + 999, total)))
    for n, text in ipairs(texts) do holds[first + n - 2] = parse_hold(text) end
  end
end
-- The live or done hold of row `i`; nil if an earlier row of this call ended it.
local function hold_of(i)
  local hold = holds[i]
  if hold and advanced[hold.ord] then hold = parse_hold(call('HGET', HOLDS, field(i, 1))) end
  return hold
end

-- Stores the scores of one group's rows from `first` up to `behind`, or to the one that moves the
-- group on. Returns the position of the next row.
local function put_run(first, behind)
  local wanted, run = {'rw'}, {}
  for i = first, behind - 1 do
    run[i] = hold_of(i)
    wanted[#wanted + 1] = 'u' .. holds[i].index
  end
  local g, values = load(holds[first].ord, unpack(wanted))
  local reward = g and tonumber(values[1])
  local hold_writes, ended = {}, {}
  local function flush()
    if #ended == 0 then return end
    g.dirty = true
    call_many('HSET', HOLDS, hold_writes)
    call_many('ZREM', ROW_LEASES, ended)
  end
  for i = first, behind - 1 do
    local hold, token, at = run[i], field(i, 1), 2 + i - first
    local code = 'DEAD'
    if hold and g and not (g.step > 0 and g.step <= J.forgotten) then
      code = nil
      if not hold.done and not taken[token] then code = field(i, 2) == '1' and 'TAKE' or 'FIELD' end
    end
    if code == 'TAKE' then
      taken[token] = true
      write(g, 'u' .. hold.index, DONE .. ' ' .. token .. ' ' .. counts_in(values[at]))
      local value = tonumber(field(i, 3))
      if not reward then
        reward = value
        write(g, 'rw', field(i, 3))
      elseif reward ~= value then
        g.neq = 1
      end
      g.sc = g.sc + 1
      write(g, 'c' .. hold.index, field(i, 4))
      if J.curate == 1 then write(g, 'r' .. hold.index, field(i, 3)) end
      hold_writes[#hold_writes + 1] = token
      hold_writes[#hold_writes + 1] = hold_text(hold.ord, hold.index, 1, hold.worker)
      ended[#ended + 1] = token
      if g.sc == size_of(g) then
        flush()
        advance(g)
        advanced[g.ord] = true
        return i + 1
      end
    elseif code then
      fault(i, code)
    end
  end
  flush()
  return behind
end

local at, MOST = 0, 256
while at < total do
  if not holds[at] then
    fault(at, 'DEAD')
    at = at + 1
  else
    local behind = at + 1
    while behind < total and behind - at < MOST and holds[behind] and
        holds[behind].ord == holds[at].ord do
      behind = behind + 1
    end
    at = put_run(at, behind)
  end
end
return finish('OK', faults)
