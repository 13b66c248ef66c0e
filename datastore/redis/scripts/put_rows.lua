-- Stores a task's row values in order, each independently. Arguments: task, then for each row:
-- token, 1 if well-formed, then for a score: reward, value; for reference log-probs: their number,
-- checksum of {job}:b:TOKEN:r:CHECKSUM. Returns for each rejected row: position, code (DEAD, FIELD,
-- RETRY), the response's tokens.
expire()
local SIZE = 4
local task, total, faults = num(1), (#ARGV - 5) / SIZE, {}
local function field(i, k) return arg(1 + i * SIZE + k) end
local function fault(i, code, tokens) faults[#faults + 1] = {i, code, tokens} end

local holds, taken, advanced = {}, {}, {}
do
  local tokens = {}
  for i = 0, total - 1 do tokens[i + 1] = field(i, 1) end
  for first = 1, total, 1000 do
    local texts = call('HMGET', HOLDS, unpack(tokens, first, math.min(first + 999, total)))
    for n, text in ipairs(texts) do
      local hold = text and parse_hold(text)
      holds[first + n - 2] = hold and hold.task == task and hold or nil
    end
  end
end
-- The live or done hold of row `i`; nil if an earlier row of this call ended it.
local function hold_of(i)
  local hold = holds[i]
  if hold and advanced[hold.ord] then hold = parse_hold(call('HGET', HOLDS, field(i, 1))) end
  return hold
end

-- Why the value of row `i` is rejected, or nil.
local function refusal(i, descriptor)
  if field(i, 2) ~= '1' then return 'FIELD' end
  if task == 0 then return nil end
  if tonumber(field(i, 3)) ~= number_of_tokens(descriptor) then return 'FIELD' end
  local blob = concat({prefix, 'b:', field(i, 1), ':r:', field(i, 4)})
  if call('PERSIST', blob) == 0 and call('EXISTS', blob) == 0 then return 'RETRY' end
end

-- Stores the values of one group's rows from `first` up to `behind`, or to the one that moves the
-- group on. Returns the position of the next row.
local function put_run(first, behind)
  local wanted, run = {'rw'}, {}
  for i = first, behind - 1 do
    run[i] = hold_of(i)
    local index = holds[i].index
    wanted[#wanted + 1] = STAGE[task] .. index
    wanted[#wanted + 1] = 's' .. index
  end
  wanted[#wanted + 1] = 'bl'
  local g, values = load(holds[first].ord, unpack(wanted))
  local reward, blobs = g and tonumber(values[1]), g and values[#wanted] or ''
  local hold_writes, ended = {}, {}
  local function flush()
    if #ended == 0 then return end
    if task == 1 then write(g, 'bl', blobs) end
    g.dirty = true
    call_many('HSET', HOLDS, hold_writes)
    call_many('ZREM', ROW_LEASES[task], ended)
  end
  for i = first, behind - 1 do
    local hold, token, at = run[i], field(i, 1), 2 + 2 * (i - first)
    local code = 'DEAD'
    if hold and g and not (g.step > 0 and g.step <= J.forgotten) then
      code = nil
      if not hold.done and not taken[token] then code = refusal(i, values[at + 1]) or 'TAKE' end
    end
    if code == 'TAKE' then
      taken[token] = true
      write(g, STAGE[task] .. hold.index, DONE .. ' ' .. token .. ' ' .. counts_in(values[at]))
      if task == 0 then
        local value = tonumber(field(i, 3))
        if not reward then
          reward = value
          write(g, 'rw', field(i, 3))
        elseif reward ~= value then
          g.neq = 1
        end
        g.sc = g.sc + 1
        write(g, 'c' .. hold.index, field(i, 4))
      else
        g.rf = g.rf + 1
        write(g, 'q' .. hold.index, token .. ' ' .. field(i, 4))
        blobs = concat({blobs, ' ', token, ':r:', field(i, 4)})
      end
      hold_writes[#hold_writes + 1] = token
      hold_writes[#hold_writes + 1] = hold_text(task, hold.ord, hold.index, 1, hold.worker)
      ended[#ended + 1] = token
      if (task == 0 and g.sc or g.rf) == J.group_size then
        flush()
        advance(g)
        advanced[g.ord] = true
        return i + 1
      end
    elseif code then
      fault(i, code, hold and values[at + 1] and number_of_tokens(values[at + 1]) or 0)
    end
  end
  flush()
  return behind
end

local at, MOST = 0, 256
while at < total do
  if not holds[at] then
    fault(at, 'DEAD', 0)
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
