-- Finished samples, each for itself in order. Arguments, of each: token, index, lineage ('-' when
-- malformed), oldest and newest version, oldest and newest loss-bearing version, tokens, its
-- descriptor, the blob {job}:b:TOKEN:... that holds its bytes, reward ('' without a score, '-' when
-- that is malformed), score. Returns of those not accepted: position, code (DEAD, RESPONSE, SCORE,
-- RETRY), the group's min version and the committed one.
expire()
local SIZE = 12
local total, faults = (#ARGV - 4) / SIZE, {}
local function field(i, k) return ARGV[4 + i * SIZE + k] end
local function number(i, k) return tonumber(field(i, k)) end
local function fault(i, code, min) faults[#faults + 1] = {i, code, min, J.version} end

-- Whether the blob is there, from now on for good.
local there = {}
local function keep(name)
  if there[name] == nil then
    local blob = prefix .. 'b:' .. name
    there[name] = call('PERSIST', blob) == 1 or call('EXISTS', blob) == 1
  end
  return there[name]
end

-- Why sample `i` of the live lease of `g` cannot be taken, or nil.
local function refusal(g, i)
  local lineage = field(i, 3)
  if lineage == '-' or tonumber(lineage) ~= J.lineage or number(i, 4) < g.min or
      number(i, 5) > J.version then
    return 'RESPONSE'
  end
  if field(i, 11) == '-' then return 'SCORE' end
  if not keep(field(i, 10)) then return 'RETRY' end
end

-- What the samples of one run change, written at once.
local function new_run(g, reward)
  return {g = g, reward = reward, fields = {}, partials = {}, rows = {[0] = {}, [1] = {}}}
end
local function write(run, name, value)
  local fields = run.fields
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
local function offer_later(run, task, index)
  write(run, STAGE[task] .. index, '1 0 0')
  local rows = run.rows[task]
  rows[#rows + 1] = run.g.min
  rows[#rows + 1] = row_member(run.g.ord, tonumber(index))
end

local function take(run, i, partial)
  local g, index = run.g, field(i, 2)
  local oldest, newest = number(i, 6), number(i, 7)
  if g.fin > 0 then
    oldest, newest = math.min(oldest, g.lmin), math.max(newest, g.lmax)
  end
  g.fin, g.lmin, g.lmax, g.ntok = g.fin + 1, oldest, newest, g.ntok + number(i, 8)
  if partial then
    discard('b ' .. blob_of(partial), now + J.grace)
    run.partials[#run.partials + 1] = 'p' .. index
    g.np = g.np - 1
  end
  write(run, 's' .. index, field(i, 9))
  local reward = field(i, 11)
  if reward == '' then
    offer_later(run, 0, index)
  else
    if not run.reward then
      run.reward = reward
      write(run, 'rw', reward)
    elseif tonumber(run.reward) ~= tonumber(reward) then
      g.neq = 1
    end
    g.sc = g.sc + 1
    write(run, 'c' .. index, field(i, 12))
  end
  if J.needs_ref == 1 then offer_later(run, 1, index) end
  count('samples_put', 1)
end

local function flush(run)
  local g = run.g
  if #run.fields == 0 then return end
  for _, name in ipairs({'fin', 'lmin', 'lmax', 'ntok', 'np', 'sc', 'neq'}) do
    write(run, name, g[name])
  end
  call_many('HSET', group_key(g.ord), run.fields)
  call_many('HDEL', group_key(g.ord), run.partials)
  for task = 0, 1 do
    if #run.rows[task] > 0 then
      call_many('ZADD', PENDING_ROWS[task], run.rows[task])
      changed(ROWS)
    end
  end
end

local function complete(g)
  -- From here on the versions are known from the tokens themselves.
  update(g, 'min', g.lmin, 'max', g.lmax)
  move(g, GENERATED)
  -- The group stays outstanding: its end matters to the gate only at the in-flight limit.
  if J.running == J.max_in_flight - 1 then changed(ADMISSION) end
  changed(BATCH)
  advance(g)
end

-- Takes the samples of one lease from `first` up to `behind`, or to the one that ends the lease.
-- Returns the position of the next sample.
local function put_run(first, behind)
  local token, wanted = field(first, 1), {'rw'}
  for i = first, behind - 1 do
    wanted[#wanted + 1] = 's' .. field(i, 2)
    wanted[#wanted + 1] = 'p' .. field(i, 2)
  end
  local g, values = group_of(token, unpack(wanted))
  local live, seen = is_live(g, token), {}
  local run = new_run(g, g and values[1])
  for i = first, behind - 1 do
    local index, at = field(i, 2), 2 * (i - first) + 2
    local finished = g and (seen[index] or values[at])
    if finished and finished:match('^%d+') == token then
      count('duplicate_puts', 1)
    elseif finished or not live then
      count('fenced_puts', 1)
      fault(i, 'DEAD', 0)
    else
      local code = refusal(g, i)
      if code then
        fault(i, code, g.min)
      else
        take(run, i, values[at + 1])
        seen[index] = field(i, 9)
        if g.fin == J.group_size then
          flush(run)
          complete(g)
          return i + 1
        end
      end
    end
  end
  flush(run)
  return behind
end

local at, MOST = 0, 256
while at < total do
  local behind = at + 1
  while behind < total and behind - at < MOST and field(behind, 1) == field(at, 1) do
    behind = behind + 1
  end
  at = put_run(at, behind)
end
return finish('OK', faults)
