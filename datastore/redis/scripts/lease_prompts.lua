-- Leases groups to a rollout worker through the admission gate. Arguments: worker, request id, the
-- engine's lineage and version, requested groups, percent of the memory limit in use under memory
-- pressure (redis_reading.h), otherwise 0.
--
-- The reason is 'KIND LINEAGE V ENGINE_LINEAGE ENGINE OUTSTANDING RUNNING TRAINED BACKLOG COUNT'
-- and, if a group with kept tokens was refused, ' KEPT OUTSTANDING RUNNING' at that time. A lease
-- is 'TOKEN ORDINAL ATTEMPT EXPIRES CHECKSUM', with ' LIMIT' if its samples have a limit of their own,
-- and a line 'INDEX' or 'INDEX DESCRIPTOR' for each missing sample.
local worker, request, lineage, engine, wanted = arg(1), arg(2), num(3), num(4), num(5)
if is_revoked(worker) then return finish('REVOKED') end
expire()
local replay = worker .. '\0' .. request
if request ~= '' then
  local known = call('HGET', prefix .. 'replay', replay)
  if known then return finish('OK', unpack(cmsgpack.unpack(known))) end
end

-- DecideAdmission in staleness_policy.cc.
local lag = J.version - engine
local function admit(kept_version)
  if lineage ~= J.lineage or lag < 0 or J.running >= J.max_in_flight then return false end
  if kept_version then return engine >= kept_version and lag <= J.eta end
  local B = J.groups_per_step
  if J.version * B + J.outstanding >= J.last_step * B then return false end
  return J.outstanding < math.max(0, J.eta + 1 - lag) * B
end

-- Decides size and limit of an attempt that has no tokens yet. DecideRollouts in
-- adaptive_rollouts.cc.
local function adapt(g)
  local _, f = load(g.ord, 'pk', 'tk')
  local packed = call('HGET', prefix .. 'row_history', f[1]) or
    call('HGET', prefix .. 'task_history', f[2])
  local size, limit = J.group_size, 0
  if packed then
    local successes, samples, longest = unpack(cmsgpack.unpack(packed))
    local success = successes / samples
    if success > 0.5 then
      local rest = size - J.min_group_size
      size = J.min_group_size + math.ceil(rest * (4 * success * (1 - success)))
    end
    limit = math.ceil(J.max_tokens_factor * longest)
  end
  set('skipped_samples', J.skipped_samples + J.group_size - size)
  if limit > 0 then set('limited_groups', J.limited_groups + 1) end
  update(g, 'gs', size < J.group_size and size or 0, 'lim', limit)
end

local leases, expires, token_groups, expiries = {}, now + J.ttl, {}, {}
-- `further`: the group's toks and ph.
local function lease(g, further)
  local lines = {}
  if g.kept == 1 then
    local f = load_all(g.ord)
    for index = 0, size_of(g) - 1 do
      if not f['s' .. index] then
        local partial = f['p' .. index]
        lines[#lines + 1] = partial and index .. ' ' .. partial or tostring(index)
      end
    end
  else
    if J.min_group_size then adapt(g) end
    for index = 0, size_of(g) - 1 do lines[#lines + 1] = tostring(index) end
    g.min = engine
  end
  move(g, LEASED)
  set('last_token', J.last_token + 1)
  g.tok = J.last_token
  local token = format('%d', g.tok)
  write(g, 'wrk', worker)
  write(g, 'toks', (further[1] or '') .. ' ' .. token)
  token_groups[#token_groups + 1] = token
  token_groups[#token_groups + 1] = g.ord
  expiries[#expiries + 1] = expires
  expiries[#expiries + 1] = g.ord
  local limit = g.lim > 0 and format(' %d', g.lim) or ''
  insert(lines, 1,
    format('%s %s %d %d %s', token, ordinal_number(g.ord), g.att, expires, further[2]) .. limit)
  leases[#leases + 1] = concat(lines, '\n')
end

local refused = ''
local function lease_kept()
  local kept = call('ZRANGE', prefix .. 'kept', 0, -1)
  for _, ord in ipairs(kept) do
    if #leases >= wanted then return end
    local g, further = load(ord, 'toks', 'ph')
    if admit(g.cont) then
      lease(g, further)
    elseif refused == '' then
      refused = format(' %d %d %d', g.cont, J.outstanding, J.running)
    end
  end
end
local function lease_queued()
  if #leases >= wanted then return 'served' end
  local queue, next = call('ZRANGE', prefix .. 'queue', 0, wanted - #leases - 1), 1
  while #leases < wanted do
    if not admit(nil) then return 'admission' end
    if num(6) > 0 and J.outstanding >= J.groups_per_step then return 'memory' end
    if J.outstanding + J.trained >= J.capacity then
      if J.was_full == 0 then
        changed(BATCH)
        changed(SPACE)
      end
      set('was_full', 1)
      return 'full'
    end
    if J.seq - J.trimmed >= J.max_ledger_rows then return 'backlog' end
    if not queue[next] then return 'empty' end
    lease(load(queue[next], 'toks', 'ph'))
    next = next + 1
    changed(PROMPTS)
  end
  return 'served'
end

local kind, count = 'paused', J.paused
if J.paused == 0 then
  count = wanted
  lease_kept()
  kind = lease_queued()
  if kind == 'memory' then count = num(6) end
end
if #leases > 0 then
  call_many('HSET', TOKENS, token_groups)
  call_many('ZADD', GROUP_LEASES, expiries)
  set('next_expiry', math.min(J.next_expiry, expires))
end
local reason = format('%s %d %d %d %d %d %d %d %d %d', kind, J.lineage, J.version, lineage, engine,
  J.outstanding, J.running, J.trained, J.seq - J.trimmed, count) .. refused

local notes, note = prefix .. 'engines', #leases == 0 and reason or ''
local old_note = call('HGET', notes, worker)
if old_note ~= note and (old_note or call('HLEN', notes) < 1024) then
  call('HSET', notes, worker, note)
end
-- Empty replies have no effect and need no replay.
if #leases > 0 and request ~= '' then
  call('HSET', prefix .. 'replay', replay, cmsgpack.pack({reason, leases}))
  if call('RPUSH', prefix .. 'replays', replay) > 256 then
    call('HDEL', prefix .. 'replay', call('LPOP', prefix .. 'replays'))
  end
end
return finish('OK', reason, leases)
