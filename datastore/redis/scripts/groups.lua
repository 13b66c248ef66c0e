-- Part of the scripts that move groups: their records, states, indexes and leases.
--
-- A group is the hash {job}:g:ORDINAL. Its numbers:
--   st since kept att min max rq step tok   as in the Group of the in-memory store
--   fin np sc rf                            finished, partial, scored, referenced samples
--   lmin lmax ntok                          loss versions and tokens of the finished samples
--   cont                                    engine version that may continue it
-- and wrk (holder), toks (its lease tokens), ph (checksum of the prompt), rw (first reward),
-- neq (1: another reward differs); by sample i: s (finished) and p (partial):
-- 'TOKEN CHECKSUM TOKENS FIRST:SUM:OFFSET:SIZE SPANS' with spans 'version:begin:end:loss;...', bytes
-- in the blob TOKEN:FIRST:SUM, u and v: 'STAGE TOKEN FAILURES' of the tasks score and ref_logprob, c:
-- the score, q: 'TOKEN CHECKSUM' of the reference log-probs; rows and scores: all of a ready group in
-- one piece.
local GROUP = {'st', 'since', 'kept', 'att', 'min', 'max', 'rq', 'step', 'tok', 'fin', 'np', 'sc',
  'rf', 'lmin', 'lmax', 'ntok', 'cont', 'neq'}
local PENDING, HELD, DONE = 1, 2, 3
local STAGE = {[0] = 'u', [1] = 'v'}
local TASK = {[0] = 'score', [1] = 'ref_logprob'}
local ROW_LEASES = {[0] = prefix .. 'rleases:0', [1] = prefix .. 'rleases:1'}
local PENDING_ROWS = {[0] = prefix .. 'rows:0', [1] = prefix .. 'rows:1'}
local GROUP_LEASES, HOLDS, TOKENS = prefix .. 'gleases', prefix .. 'holds', prefix .. 'tokens'

local function group_key(ord) return prefix .. 'g:' .. ord end

-- The group's numbers; and what the further fields hold, false where they are absent.
local function load(ord, ...)
  local wanted, further = {unpack(GROUP)}, {...}
  for i = 1, #further do wanted[#GROUP + i] = further[i] end
  local values = call('HMGET', group_key(ord), unpack(wanted))
  if not values[1] then return nil end
  local g = {ord = ord}
  for i = 1, #GROUP do g[GROUP[i]] = tonumber(values[i]) or 0 end
  for i = 1, #further do further[i] = values[#GROUP + i] end
  return g, further
end
local function load_all(ord)
  local list = call('HGETALL', group_key(ord))
  local f = {}
  for i = 1, #list, 2 do f[list[i]] = list[i + 1] end
  return f
end
local function update(g, ...)
  local pairs_ = {...}
  for i = 1, #pairs_, 2 do g[pairs_[i]] = pairs_[i + 1] end
  call('HSET', group_key(g.ord), ...)
end

local function is_open(st, kept)
  return st == LEASED or st == GENERATED or st == SCORED or (st == REQUEUED and kept == 1)
end
local function is_outstanding(st, kept)
  return is_open(st, kept) or st == READY or st == CLAIMED
end
local function is_queued(st, kept) return st == QUEUED or (st == REQUEUED and kept == 0) end

-- Changes the state, counting and timing it, and the indexes that follow from it. g.min is the new
-- one already. The lease index is the caller's when `to` is LEASED.
local function move(g, to, kept)
  local from, was_kept, ord = g.st, g.kept, g.ord
  kept = kept or 0
  bump('n' .. from, -1)
  bump('d' .. from, now - g.since)
  bump('n' .. to, 1)
  bump('t' .. to, 1)
  local before, after = is_outstanding(from, was_kept), is_outstanding(to, kept)
  if before ~= after then set('outstanding', J.outstanding + (after and 1 or -1)) end
  if from == LEASED then
    set('running', J.running - 1)
    call('ZREM', GROUP_LEASES, ord)
  end
  if to == LEASED then set('running', J.running + 1) end
  if is_open(to, kept) then
    call('ZADD', prefix .. 'open', g.min, ord)
  elseif is_open(from, was_kept) then
    call('ZREM', prefix .. 'open', ord)
  end
  if from == READY then call('ZREM', prefix .. 'ready', ord) end
  if to == READY then call('ZADD', prefix .. 'ready', g.min, ord) end
  if from == REQUEUED and was_kept == 1 then call('ZREM', prefix .. 'kept', ord) end
  if to == REQUEUED and kept == 1 then call('ZADD', prefix .. 'kept', g.min, ord) end
  if is_queued(from, was_kept) then call('ZREM', prefix .. 'queue', ord) end
  if is_queued(to, kept) then call('ZADD', prefix .. 'queue', 0, ord) end
  update(g, 'st', to, 'kept', kept, 'since', now)
end

local function row_member(ord, index) return format('%s:%05d', ord, index) end

-- The sample's inputs for the task are ready: it may be handed out (again).
local function offer(g, task, index, failures)
  call('HSET', group_key(g.ord), STAGE[task] .. index, PENDING .. ' 0 ' .. failures)
  call('ZADD', PENDING_ROWS[task], g.min, row_member(g.ord, index))
end

-- The name of the blob that holds a sample.
local function blob_of(descriptor)
  local token, blob = descriptor:match('^(%d+) %x+ %d+ (%d+:%x+)')
  return token .. ':' .. blob
end
local function number_of_tokens(descriptor) return tonumber(descriptor:match('^%d+ %x+ (%d+)')) end

local function sample_head(g, step)
  return format('%d %d %d %s %d', J.epoch, step, step - 1, ordinal_number(g.ord), g.att)
end

-- A hold is 'TASK ORDINAL INDEX DONE WORKER'.
local function parse_hold(text)
  if not text then return nil end
  local task, ord, index, done, worker = text:match('^(%d) (%d+) (%d+) (%d) (.*)$')
  return {task = tonumber(task), ord = ord, index = tonumber(index), done = done == '1',
    worker = worker}
end
local function failures_in(progress) return tonumber(progress:match('(%d+)$')) end

-- How attempts and groups end: made when the first one does, for most calls end none.
local made
local function ends()
  if made then return made end
  -- Forgets the rows, holds and tokens of the attempt that `f` (load_all) describes.
  local function forget_tokens(ord, f)
    local holds = {}
    for task = 0, 1 do
      for index = 0, J.group_size - 1 do
        local progress = f[STAGE[task] .. index]
        if progress then
          local stage, token = progress:match('^(%d) (%d+)')
          if stage == '1' then call('ZREM', PENDING_ROWS[task], row_member(ord, index)) end
          if stage == '2' then call('ZREM', ROW_LEASES[task], token) end
          if stage ~= '1' and token ~= '0' then holds[#holds + 1] = token end
        end
      end
    end
    call_many('HDEL', HOLDS, holds)
    local tokens = {}
    for token in (f.toks or ''):gmatch('%d+') do tokens[#tokens + 1] = token end
    call_many('HDEL', TOKENS, tokens)
  end

  -- Names of the blobs of the attempt, without the common prefix {job}:b:.
  local function blob_names(f)
    local names, seen = {}, {}
    local function add(name)
      if seen[name] then return end
      seen[name] = true
      names[#names + 1] = name
    end
    for index = 0, J.group_size - 1 do
      if f['s' .. index] then add(blob_of(f['s' .. index])) end
      if f['p' .. index] then add(blob_of(f['p' .. index])) end
      local token, sum = (f['q' .. index] or ''):match('^(%d+) (%x+)')
      if token then add(token .. ':r:' .. sum) end
    end
    return names
  end

  -- The ledger rows of an attempt that ends untrained: one per sample with tokens, at least one.
  local function record_end(g, f, event, label, detail)
    call('HINCRBY', prefix .. 'reasons', event .. '(' .. label .. ')', 1)
    local rows = {}
    for index = 0, J.group_size - 1 do
      local descriptor = f['s' .. index] or f['p' .. index]
      if descriptor then
        rows[#rows + 1] = index .. ' ' .. descriptor
        count('discarded_samples', 1)
        count('discarded_tokens', number_of_tokens(descriptor))
      end
    end
    local reason = detail == '' and label or label .. ': ' .. detail
    record(event, math.max(1, #rows), 'head', sample_head(g, J.version + 1), 'reason',
      reason:sub(1, 300), 'rows', concat(rows, '\n'))
  end

  -- The attempt ends and the prompt waits for another one.
  local function end_attempt(g, label)
    local f = load_all(g.ord)
    record_end(g, f, 'requeued', label, '')
    forget_tokens(g.ord, f)
    local names = blob_names(f)
    if #names > 0 then discard('b ' .. concat(names, ' '), now + J.grace) end
    call('DEL', group_key(g.ord))
    local rest = {}
    for _, name in ipairs(GROUP) do
      if name ~= 'st' and name ~= 'since' and name ~= 'kept' then rest[name] = 0 end
    end
    rest.att, rest.rq = g.att + 1, g.rq
    local out = {'ph', f.ph}
    for name, value in pairs(rest) do
      g[name] = value
      out[#out + 1] = name
      out[#out + 1] = value
    end
    call('HSET', group_key(g.ord), unpack(out))
    move(g, REQUEUED, 0)
    changed(ADMISSION)
    changed(BATCH)
    changed(SPACE)
  end

  local ENDS = {filtered = FILTERED, dropped = DROPPED, dead = DEAD}

  -- The group ends for good. `label` is a short fixed word, `detail` free text.
  local function end_group(g, event, label, detail)
    local f = load_all(g.ord)
    record_end(g, f, event, label, detail)
    forget_tokens(g.ord, f)
    local names = blob_names(f)
    names[#names + 1] = 'p:' .. g.ord .. ':' .. f.ph
    discard('b ' .. concat(names, ' '), now + J.grace)
    move(g, ENDS[event])
    call('DEL', group_key(g.ord))
    if event == 'dead' then
      local reason = detail == '' and label or label .. ': ' .. detail
      call('LPUSH', prefix .. 'dead',
        format('%d %s %d %s', now, ordinal_number(g.ord), g.att, reason:sub(1, 300)))
      call('LTRIM', prefix .. 'dead', 0, MAX_DEAD - 1)
    end
    set('was_full', 0)
    changed(ADMISSION)
    changed(BATCH)
    changed(SPACE)
  end

  -- The lease ends without all samples: back to the queue, with or without kept tokens.
  local function end_lease(g, label)
    if g.fin + g.np == 0 then return end_attempt(g, label) end
    local continue = g.min
    if g.np > 0 then
      local f = load_all(g.ord)
      for index = 0, J.group_size - 1 do
        local newest = (f['p' .. index] or ''):match('(%d+):%d+:%d+:%d+$')
        if newest then continue = math.max(continue, tonumber(newest)) end
      end
    end
    update(g, 'cont', continue)
    move(g, REQUEUED, 1)
    changed(ADMISSION)
  end

  -- staleness_policy.cc, DecideDisposition.
  local function apply_disposition(g)
    if g.st == CLAIMED or J.disposition == WAIT then return end
    local horizon = J.version - J.eta
    if J.disposition == MASK then
      if g.st == READY and g.max < horizon then end_group(g, 'dropped', 'fully_masked', '') end
      return
    end
    if g.min >= horizon then return end
    if J.disposition == DROP then return end_group(g, 'dropped', 'too_old', '') end
    if g.rq >= J.max_requeues then return end_group(g, 'dead', 'too_slow', '') end
    update(g, 'rq', g.rq + 1)
    end_attempt(g, 'too_old')
  end
  local function apply_dispositions()
    if J.disposition == WAIT then return end
    local below = format('(%d', J.version - J.eta)
    local old = call('ZRANGEBYSCORE', prefix .. 'ready', '-inf', below)
    if J.disposition ~= MASK then
      for _, ord in ipairs(call('ZRANGEBYSCORE', prefix .. 'open', '-inf', below)) do
        old[#old + 1] = ord
      end
    end
    table.sort(old)
    for _, ord in ipairs(old) do apply_disposition(load(ord)) end
  end

  local function release(token, hold)
    call('ZREM', ROW_LEASES[hold.task], token)
    call('HDEL', HOLDS, token)
  end
  local function fail_row(token, hold, reason)
    local g, progress = load(hold.ord, STAGE[hold.task] .. hold.index)
    local failures = failures_in(progress[1]) + 1
    release(token, hold)
    if failures >= J.max_row_failures then
      call('HDEL', group_key(g.ord), STAGE[hold.task] .. hold.index)
      return end_group(g, 'dead', TASK[hold.task] .. '_failed', failures .. ' times: ' .. reason)
    end
    offer(g, hold.task, hold.index, failures)
    changed(ROWS)
  end

  local function extend_leases(gap)
    for _, leases in ipairs({GROUP_LEASES, ROW_LEASES[0], ROW_LEASES[1]}) do
      for _, member in ipairs(call('ZRANGE', leases, 0, -1)) do call('ZINCRBY', leases, gap, member) end
    end
    if J.next_expiry ~= NEVER then set('next_expiry', J.next_expiry + gap) end
  end

  -- Returns the number of leases that have expired.
  local function expire_now()
    local expired = 0
    local groups = call('ZRANGEBYSCORE', GROUP_LEASES, '-inf', now)
    table.sort(groups)
    for _, ord in ipairs(groups) do
      expired = expired + 1
      end_lease(load(ord), 'lease_expired')
    end
    local tokens = {}
    for task = 0, 1 do
      for _, token in ipairs(call('ZRANGEBYSCORE', ROW_LEASES[task], '-inf', now)) do
        tokens[#tokens + 1] = tonumber(token)
      end
    end
    table.sort(tokens)
    for _, number in ipairs(tokens) do
      local token = format('%d', number)
      local hold = parse_hold(call('HGET', HOLDS, token))
      if hold then -- else its group died with a row before it
        expired = expired + 1
        fail_row(token, hold, 'lease of ' .. hold.worker .. ' expired')
      end
    end
    count('leases_expired', expired)
    local earliest = NEVER
    for _, leases in ipairs({GROUP_LEASES, ROW_LEASES[0], ROW_LEASES[1]}) do
      local first = call('ZRANGE', leases, 0, 0, 'WITHSCORES')
      if first[2] then earliest = math.min(earliest, tonumber(first[2])) end
    end
    set('next_expiry', earliest)
    return expired
  end

  local function filter_group(g)
    end_group(g, 'filtered', 'zero_variance', '')
    set('filtered', J.filtered + 1)
    if J.filtered < J.max_filtered or J.paused > 0 then return end
    set('paused', J.filtered)
    changed(BATCH)
  end

  made = {forget_tokens = forget_tokens, blob_names = blob_names, end_group = end_group,
    end_lease = end_lease, apply_disposition = apply_disposition, apply_dispositions = apply_dispositions,
    release = release, fail_row = fail_row, extend_leases = extend_leases,
    expire_now = expire_now, filter_group = filter_group}
  return made
end

-- Ends what has expired; returns the number of leases that had. When no operation came for long,
-- Redis was away and nobody could renew: leases get that time back first.
local function expire()
  local threshold, gap = tonumber(ARGV[4]), now - J.alive
  if threshold > 0 and gap >= threshold / 16 then
    set('alive', now)
    if gap >= threshold then ends().extend_leases(gap) end
  end
  if now < J.next_expiry then return 0 end
  return ends().expire_now()
end

local function is_revoked(worker) return call('ZSCORE', prefix .. 'revoked', worker) end

-- The group of the lease `token`, if its attempt is not forgotten; and further fields, as of load.
local function group_of(token, ...)
  local ord = call('HGET', TOKENS, token)
  if not ord then return nil end
  local g, further = load(ord, ...)
  if not g or (g.step > 0 and g.step <= J.forgotten) then return nil end
  return g, further
end
local function is_live(g, token) return g and g.st == LEASED and g.tok == tonumber(token) end

local function ready_part(text) return #text .. ':' .. text end

-- Moves a group on that has the fields of its next states.
local function advance(g)
  if g.st == GENERATED then
    if g.sc < J.group_size then return end
    move(g, SCORED)
    if J.filter == 1 and g.neq == 0 then return ends().filter_group(g) end
  end
  if g.st ~= SCORED then return end
  if J.needs_ref == 1 and g.rf < J.group_size then return end
  local f = load_all(g.ord)
  local rows, scores = {}, {}
  for index = 0, J.group_size - 1 do
    rows[#rows + 1] = index .. ' ' .. f['s' .. index]
    scores[#scores + 1] = ready_part(f['c' .. index]) .. ready_part(f['q' .. index] or '')
  end
  update(g, 'rows', concat(rows, '\n'), 'scores', concat(scores))
  move(g, READY)
  set('filtered', 0)
  changed(BATCH)
  if J.disposition ~= WAIT then ends().apply_disposition(g) end
end
