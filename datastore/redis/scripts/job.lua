-- Included in every script: job header, clock, counters, changes, ledger and reply.
--
-- KEYS[1]  {job}:state
-- ARGV[1]  prefix of all keys, "{job}:"      ARGV[2]  now in us; "" uses the server's clock
-- ARGV[3]  generation that the caller opened  ARGV[4]  outage threshold in us; 0 never extends
-- ARGV[5..] arguments of the operation
--
-- A script checks all arguments before it writes, because Redis does not roll back a failed script.
-- Ordinals are 16-digit strings, so they sort numerically; tokens count from 1 within the store's
-- generation. Times are in us, exact in a double until the year 2255.
local call, format, concat, insert = redis.call, string.format, table.concat, table.insert
local prefix = ARGV[1]
local function arg(i) return ARGV[4 + i] end
local function num(i) return tonumber(ARGV[4 + i]) end

local QUEUED, LEASED, GENERATED, SCORED, READY, CLAIMED, TRAINED, DURABLE = 0, 1, 2, 3, 4, 5, 6, 7
local REQUEUED, FILTERED, DROPPED, DEAD = 8, 9, 10, 11
local WAIT, DROP, REQUEUE, MASK = 0, 1, 2, 3
local PROMPTS, ADMISSION, ROWS, BATCH, SPACE, EVALUATION = 0, 1, 2, 3, 4, 5
local NEVER = 9007199254740991
local MAX_DEAD = 1000 -- entries of the dead-letter list

-- J: the state {job}:state, falling back to the options {job}:options (each one packed table), then
-- to the first values of keys that create.lua does not write.
local J
local UNWRITTEN = {losses = 0, lost_worker = '', lost_token = 0, epoch_requests = {}, replayed_samples = 0,
  skipped_samples = 0, limited_groups = 0}
do
  local packed = call('MGET', KEYS[1], prefix .. 'options')
  if not packed[1] or not packed[2] then return {'GONE', ''} end
  local options = cmsgpack.unpack(packed[2])
  if options.generation ~= ARGV[3] then return {'GONE', ''} end
  setmetatable(options, {__index = UNWRITTEN})
  J = setmetatable(cmsgpack.unpack(packed[1]), {__index = options})
end
local dirty = false
local now = tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local function set(name, value)
  if J[name] == value then return end
  J[name] = value
  dirty = true
end
-- Counters of the state itself.
local function count(name, by) set(name, J[name] + by) end

-- Counters of {job}:stats.
local increments = {}
local function bump(name, by) increments[name] = (increments[name] or 0) + by end

local topics = {}
local function changed(topic) topics[topic] = true end

-- Writes pending group changes. Defined by groups.lua.
local settle = function() end

-- Writes the operation's changes and builds its reply: a code, the new change counts, values.
local function finish(code, ...)
  settle()
  if dirty then call('SET', KEYS[1], cmsgpack.pack(J)) end
  for name, by in pairs(increments) do
    if by ~= 0 then call('HINCRBY', prefix .. 'stats', name, format('%.0f', by)) end
  end
  local text = ''
  for topic in pairs(topics) do
    local part = topic .. ':' .. call('HINCRBY', prefix .. 'changes', topic, 1)
    text = text == '' and part or text .. ' ' .. part
    call('PUBLISH', prefix .. 'changed:' .. topic, part)
  end
  return {code, text, ...}
end
local function refuse(...) return finish('PRECONDITION', format(...)) end

-- Calls `command key` with all values, in slices that fit on Lua's stack.
local function call_many(command, key, values)
  for first = 1, #values, 1000 do
    call(command, key, unpack(values, first, math.min(first + 999, #values)))
  end
end

-- Appends a ledger entry of `count` rows; its id is the number of the first row.
local function record(event, count, ...)
  local seq = J.seq + 1
  call('XADD', prefix .. 'ledger', format('%d-0', seq), 'event', event, 'count', count, ...)
  set('seq', J.seq + count)
end

-- Schedules keys for deletion at `due`, as one entry: 'g ORDINAL', or 'b' and blob names.
local function discard(entry, due)
  call('ZADD', prefix .. 'trash', due, entry)
end

local function ordinal_number(ord) return format('%d', tonumber(ord)) end
