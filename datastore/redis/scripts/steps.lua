-- Shared by the scripts of training steps: which groups a step takes, and what blocks it.
local function key(ordinal) return format('%016d', tonumber(ordinal)) end
local function split(list)
  local out = {}
  for ordinal in list:gmatch('%d+') do out[#out + 1] = ordinal end
  return out
end

local function store_full() return J.outstanding + J.trained >= J.capacity end

-- Why the caller may not act, or nil.
local function epoch_fault(epoch)
  if J.epoch_open == 1 and epoch == J.epoch then return nil end
  if J.epoch_open == 0 then return format('epoch %d: no trainer epoch is open', epoch) end
  return format('trainer epoch %d is fenced: the open one is %d', epoch, J.epoch)
end
local function next_step_fault(step)
  if step ~= J.version + 1 then
    return format('step %d is not next: %d steps are committed', step, J.version)
  end
  if step > J.last_step then
    return format('step %d is beyond the last step %d', step, J.last_step)
  end
  if J.redo_next <= J.version then
    return format('step %d comes after the redo: step %d is not redone yet', step, J.redo_next)
  end
  return nil
end

-- The older of two {ordinal, min version}; either may be nil.
local function older(a, b)
  if not a or not b then return a or b end
  if a[2] ~= b[2] then return a[2] < b[2] and a or b end
  return a[1] < b[1] and a or b
end
local function first_of(list) return list[1] and {list[1], tonumber(list[2])} or nil end

-- Returns the oldest ready groups within the bound, at most B, as {ordinal, min version}; the
-- oldest ready one beyond the bound and the number of those; and the ready one after those taken.
local function eligible()
  local taken, stale, num_stale, follower = {}, nil, 0, nil
  local ready, horizon = prefix .. 'ready', J.version - J.eta
  local list
  if J.disposition == MASK then
    list = call('ZRANGE', ready, 0, -1, 'WITHSCORES')
  else
    num_stale = call('ZCOUNT', ready, '-inf', '(' .. horizon)
    if num_stale > 0 then stale = first_of(call('ZRANGE', ready, 0, 0, 'WITHSCORES')) end
    list = call('ZRANGEBYSCORE', ready, horizon, '+inf', 'WITHSCORES', 'LIMIT', 0,
      J.groups_per_step + 1)
  end
  for i = 1, #list, 2 do
    local entry = {list[i], tonumber(list[i + 1])}
    local newest = entry[2]
    if J.disposition == MASK then newest = load(list[i]).max end
    if newest < horizon then
      stale = stale or entry
      num_stale = num_stale + 1
    elseif #taken < J.groups_per_step then
      taken[#taken + 1] = entry
    else
      follower = follower or entry
    end
  end
  return taken, stale, num_stale, follower
end

-- FirstBrokenK in staleness_policy.cc, by counts: the smallest k such that more than k * B of the
-- groups left by the claim have min version <= V - eta + k, and their number.
local function first_broken_k(taken, front)
  local horizon, open, ready = J.version - J.eta, prefix .. 'open', prefix .. 'ready'
  local total = call('ZCARD', open) + call('ZCARD', ready) - #taken
  for k = math.max(0, front[2] - horizon), J.eta do
    local count = call('ZCOUNT', open, '-inf', horizon + k) +
      call('ZCOUNT', ready, '-inf', horizon + k)
    for _, entry in ipairs(taken) do
      if entry[2] <= horizon + k then count = count - 1 end
    end
    if count > k * J.groups_per_step then return k, count end
    if count == total then return nil end
  end
  return nil
end

-- DecideConsumption in staleness_policy.cc. Returns the groups to take; or nil, the reason and the
-- ordinal waited for.
local function decide()
  local B, step = J.groups_per_step, J.version + 1
  local taken, stale, num_stale, follower = eligible()
  local open = first_of(call('ZRANGE', prefix .. 'open', 0, 0, 'WITHSCORES'))
  if #taken < B then
    local rest = call('ZCARD', prefix .. 'open') + num_stale
    local reason = format(
      'step %d needs %d more groups: %d of %d complete, %d outstanding are not', step, B - #taken,
      #taken, B, rest)
    local front = older(open, stale)
    if not front then return nil, reason, nil end
    return nil, reason .. format('; the oldest is group %d (min version %d)', tonumber(front[1]),
      front[2]), front[1]
  end
  local front = older(older(open, stale), follower)
  if J.disposition == WAIT and front then
    local k, count = first_broken_k(taken, front)
    if k then
      local horizon = J.version - J.eta + k
      local waited = front
      if open and open[2] <= horizon then waited = open end
      return nil, format('step %d waits for group %d (min version %d): claiming without it leaves ' ..
        '%d groups of version <= %d, and %d more steps can take only %d', step,
        tonumber(waited[1]), waited[2], count, horizon, k, k * B), waited[1]
    end
  end
  local ordinals = {}
  for i, entry in ipairs(taken) do ordinals[i] = entry[1] end
  table.sort(ordinals)
  return ordinals
end

-- An edge is {name, text, time in us to insert between the texts or -1, text, engine notes}.
local function edge_of(name, text, elapsed, rest, notes)
  return {name, text, elapsed or -1, rest or '', notes or {}}
end
local function group_edge(ord)
  local g = load(ord)
  local name = format('group %d', tonumber(ord))
  if g.st == LEASED then
    return edge_of('rollout', format('%s is leased to %s since ', name,
      call('HGET', group_key(ord), 'wrk')), now - g.since,
      format(', %d of %d samples finished', g.fin, size_of(g)))
  elseif g.st == REQUEUED then
    return edge_of('rollout', name .. ' waits in the queue since ', now - g.since,
      format(' for an engine at version >= %d', g.cont))
  elseif g.st == GENERATED then
    local f, held = load_all(ord), 0
    for index = 0, size_of(g) - 1 do
      if (f['u' .. index] or ''):sub(1, 1) == '2' then held = held + 1 end
    end
    return edge_of('reward', format(
      '%s has %d rows unscored, %d of them leased; in all %d rows wait and %d are leased', name,
      size_of(g) - g.sc, held, call('ZCARD', PENDING_ROWS), call('ZCARD', ROW_LEASES)))
  end
  return edge_of('staleness', format('%s is ready with min version %d', name, g.min))
end

-- No group is outstanding: explains why there are no new ones.
local function supply_edge()
  if store_full() then
    return edge_of('store', format('store full: %d groups outstanding and %d trained but not ' ..
      'durable, of %d: a checkpoint must become durable', J.outstanding, J.trained, J.capacity))
  end
  local queued = call('ZCARD', prefix .. 'queue')
  if queued == 0 then
    return edge_of('prompts', format('prompt queue empty, last ordinal %d', J.high_water))
  end
  return edge_of('rollout', '', -1, format('%d prompts queued, but none is leased', queued),
    call('HGETALL', prefix .. 'engines'))
end
local function blocking(reason, ord)
  local edge = ord and group_edge(ord) or supply_edge()
  edge[2] = reason .. ': ' .. edge[2]
  return edge
end

local function paused_text()
  return format('job paused: the last %d groups were filtered: their rewards are equal, or too ' ..
    'low or too high on average', J.paused)
end
