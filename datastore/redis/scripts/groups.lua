-- Shared by the scripts that move groups: records, states, indexes and leases.
--
-- A group is the hash {job}:g:ORDINAL. Field n holds its numbers, packed:
--   st since kept att min max rq step tok   as in the in-memory store's Group
--   fin np sc                               finished, partial, scored samples
--   lmin lmax ntok                          loss versions and tokens of the finished samples
--   cont                                    engine version that may continue it
--   lf put                                  failed leases, token of the last one with a sample
--   neq                                     1: a reward differs from the first one
--   ls lsn hb hbt pl                        losses, last_loss, hand_backs, counted_at, place
--   rp                                      1 + the index of the replayed sample; 0: none
--   gs lim                                  samples of the attempt, if fewer than G, and its
--                                           GroupLease::max_new_tokens; otherwise 0
--   sk                                      G minus the samples, as counted for the state
-- Other fields: wrk (holder), toks (its lease tokens), ph (checksum of the prompt), rw (first
-- reward), bl (blob names of its finished samples), hd (lease tokens of its rows), pk (key of its
-- prompt in the pool and in the histories), tk (its task, for the histories). Per sample i: r
-- (reward, only for curate()); s (finished) and p (partial): 'TOKEN CHECKSUM TOKENS
-- FIRST:SUM:OFFSET:SIZE SPANS', where spans are 'lineage:version:begin:end:loss;...' (':1' follows
-- if one begins a segment) and the bytes are in blob TOKEN:FIRST:SUM; of a replayed sample
-- ' ORIGIN' follows, the success's 'ORDINAL/ATTEMPT/INDEX'; u: 'STAGE TOKEN COUNTS' of its row, with counts 'FAILURES LOSSES' ('0'
-- for none); c: the score. From READY on, these are replaced by rows (a line 'INDEX s' each) and
-- scores ('SIZE:c' each). INDEX of a replayed sample is G + the index of the sample that it
-- replaced.
--
-- A script changes its copy of a group. settle() writes the copies and the derived indexes;
-- finish() calls it, and so must code that reads an index after a change.
local GROUP = {'st', 'since', 'kept', 'att', 'min', 'max', 'rq', 'step', 'tok', 'fin', 'np', 'sc',
  'lmin', 'lmax', 'ntok', 'cont', 'neq', 'lf', 'put', 'ls', 'lsn', 'hb', 'hbt', 'pl', 'rp', 'gs', 'lim',
  'sk'}
-- Fields that the next attempt keeps.
local LASTING = {st = true, since = true, kept = true, att = true, rq = true, lf = true, ls = true,
  lsn = true, hb = true, hbt = true, pl = true, sk = true}
local NOW = {[0] = 'n0', 'n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7', 'n8', 'n9', 'n10', 'n11'}
local ENTERED = {[0] = 't0', 't1', 't2', 't3', 't4', 't5', 't6', 't7', 't8', 't9', 't10', 't11'}
local STAYED = {[0] = 'd0', 'd1', 'd2', 'd3', 'd4', 'd5', 'd6', 'd7', 'd8', 'd9', 'd10', 'd11'}
local SKIPPED = {[0] = 's0', 's1', 's2', 's3', 's4', 's5', 's6', 's7', 's8', 's9', 's10', 's11'}
local PENDING, HELD, DONE = 1, 2, 3
local ROW_LEASES, PENDING_ROWS = prefix .. 'rleases:0', prefix .. 'rows:0'
local GROUP_LEASES, HOLDS, TOKENS = prefix .. 'gleases', prefix .. 'holds', prefix .. 'tokens'

local function group_key(ord) return prefix .. 'g:' .. ord end
local function pack_group(g)
  local numbers = {}
  for i = 1, #GROUP do numbers[i] = g[GROUP[i]] end
  return cmsgpack.pack(numbers)
end
local function unpack_group(packed)
  local g, numbers = {}, cmsgpack.unpack(packed)
  for i = 1, #GROUP do g[GROUP[i]] = numbers[i] or 0 end -- older stores have fewer
  return g
end

-- Number of the attempt's samples.
local function size_of(g) return g.gs > 0 and g.gs or J.group_size end

local function is_open(st, kept)
  return st == LEASED or st == GENERATED or st == SCORED or (st == REQUEUED and kept == 1)
end
local function is_outstanding(st, kept)
  return is_open(st, kept) or st == READY or st == CLAIMED
end
local function is_queued(st, kept) return st == QUEUED or (st == REQUEUED and kept == 0) end

-- Copies by ordinal; false for a group that ended in this script.
local copies = {}

-- Writes the copy's changes: fields, then indexes.
local function save(g)
  if g.dirty then
    g.fields[#g.fields + 1] = 'n'
    g.fields[#g.fields + 1] = pack_group(g)
    g.dirty = false
  end
  if #g.fields > 0 then
    call_many('HSET', group_key(g.ord), g.fields)
    g.fields = {}
  end
  local ord, st, kept, min = g.ord, g.st, g.kept, g.min
  if st == g.old_st and kept == g.old_kept and min == g.old_min then return end
  local function index(name, was, is, score)
    if is and (not was or (score == min and min ~= g.old_min)) then
      call('ZADD', prefix .. name, score, ord)
    elseif was and not is then
      call('ZREM', prefix .. name, ord)
    end
  end
  local function is_kept(state, tokens) return state == REQUEUED and tokens == 1 end
  index('open', is_open(g.old_st, g.old_kept), is_open(st, kept), min)
  index('ready', g.old_st == READY, st == READY, min)
  index('kept', is_kept(g.old_st, g.old_kept), is_kept(st, kept), min)
  index('queue', is_queued(g.old_st, g.old_kept), is_queued(st, kept), g.pl)
  if g.old_st == LEASED and st ~= LEASED then call('ZREM', GROUP_LEASES, ord) end
  g.old_st, g.old_kept, g.old_min = st, kept, min
end
settle = function()
  for _, g in pairs(copies) do
    if g then save(g) end
  end
end

-- Returns the copy of a group and the values of further fields, false if absent.
local function load(ord, ...)
  local g, further = copies[ord], {...}
  if g == false then return nil end
  if g then
    if #further == 0 then return g, further end
    save(g)
    return g, call('HMGET', group_key(ord), ...)
  end
  local values = call('HMGET', group_key(ord), 'n', ...)
  if not values[1] then return nil end
  g = unpack_group(values[1])
  g.ord, g.fields, g.dirty = ord, {}, false
  g.old_st, g.old_kept, g.old_min = g.st, g.kept, g.min
  copies[ord] = g
  for i = 1, #further do further[i] = values[i + 1] end
  return g, further
end
local function load_all(ord)
  if copies[ord] then save(copies[ord]) end
  local list = call('HGETALL', group_key(ord))
  local f = {}
  for i = 1, #list, 2 do f[list[i]] = list[i + 1] end
  for index, descriptor in (f.rows or ''):gmatch('(%d+) ([^\n]+)') do
    f['s' .. index] = descriptor
    -- A replayed one stands for the sample in its place too.
    f['s' .. tonumber(index) % J.group_size] = descriptor
  end
  return f
end
-- Sets numbers.
local function update(g, ...)
  local pairs_ = {...}
  for i = 1, #pairs_, 2 do g[pairs_[i]] = pairs_[i + 1] end
  g.dirty = true
end
-- Sets another field.
local function write(g, name, value)
  local fields = g.fields
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end

-- Changes the state; counts and times the transition. g.min must already be the new one. The caller
-- updates the lease index when `to` is LEASED.
local function move(g, to, kept)
  local from, was_kept = g.st, g.kept
  kept = kept or 0
  bump(NOW[from], -1)
  bump(STAYED[from], now - g.since)
  bump(NOW[to], 1)
  bump(ENTERED[to], 1)
  local skipped = J.group_size - size_of(g)
  if g.sk > 0 or skipped > 0 then
    bump(SKIPPED[from], -g.sk)
    bump(SKIPPED[to], skipped)
    g.sk = skipped
  end
  local before, after = is_outstanding(from, was_kept), is_outstanding(to, kept)
  if before ~= after then set('outstanding', J.outstanding + (after and 1 or -1)) end
  if from == LEASED then set('running', J.running - 1) end
  if to == LEASED then set('running', J.running + 1) end
  g.st, g.kept, g.since, g.dirty = to, kept, now, true
end

local function row_member(ord, index) return format('%s:%05d', ord, index) end

-- Makes the row available again.
local function offer(g, index, counts)
  write(g, 'u' .. index, PENDING .. ' 0 ' .. counts)
  call('ZADD', PENDING_ROWS, g.min, row_member(g.ord, index))
end

-- Name of the blob that holds a sample.
local function blob_of(descriptor)
  local token, blob = descriptor:match('^(%d+) %x+ %d+ (%d+:%x+)')
  return token .. ':' .. blob
end
local function number_of_tokens(descriptor) return tonumber(descriptor:match('^%d+ %x+ (%d+)')) end

-- The index of a sample in its uid.
local function uid_index(g, index)
  return g.rp == index + 1 and J.group_size + index or index
end

local function sample_head(g, step)
  return format('%d %d %d %s %d %d', J.epoch, step, step - 1, ordinal_number(g.ord), g.att, J.lineage)
end

-- A hold is 'ORDINAL INDEX DONE WORKER'.
local function parse_hold(text)
  if not text then return nil end
  local ord, index, done, worker = text:match('^(%d+) (%d+) (%d) (.*)$')
  return {ord = ord, index = index, done = done == '1', worker = worker}
end
local function hold_text(ord, index, done, worker) return concat({ord, index, done, worker}, ' ') end
local function counts_in(progress) return progress:match('^%d %d+ (.*)$') end

-- Functions that end attempts and groups. Created on first use, because most calls end none.
local made
local function ends()
  if made then return made end
  local function forget_listed(key, list)
    local tokens = {}
    for token in (list or ''):gmatch('%d+') do tokens[#tokens + 1] = token end
    call_many('HDEL', key, tokens)
  end
  -- Removes the rows, holds and tokens of the attempt described by `f` (load_all).
  local function forget_tokens(ord, f)
    for index = 0, J.group_size - 1 do
      local stage, token = (f['u' .. index] or ''):match('^(%d) (%d+)')
      if stage == '1' then call('ZREM', PENDING_ROWS, row_member(ord, index)) end
      if stage == '2' then call('ZREM', ROW_LEASES, token) end
    end
    forget_listed(HOLDS, f.hd)
    forget_listed(TOKENS, f.toks)
  end

  -- Names of the attempt's blobs, without the common prefix {job}:b:.
  local function blob_names(f)
    local names = {}
    for name in (f.bl or ''):gmatch('%S+') do names[#names + 1] = name end
    for index = 0, J.group_size - 1 do
      local partial = f['p' .. index]
      if partial then names[#names + 1] = blob_of(partial) end
    end
    return names
  end

  local function count_discarded(descriptor)
    count('discarded_samples', 1)
    count('discarded_tokens', number_of_tokens(descriptor))
  end

  -- Ledger rows of an attempt that ends untrained: one per sample with tokens, at least one.
  local function record_end(g, f, event, label, detail)
    local name = event .. '(' .. label .. ')'
    call('HINCRBY', prefix .. 'reasons', name, 1)
    if g.sk > 0 then call('HINCRBY', prefix .. 'skipped_reasons', name, g.sk) end
    local rows = {}
    for index = 0, J.group_size - 1 do
      local descriptor = f['s' .. index] or f['p' .. index]
      if descriptor then
        rows[#rows + 1] = uid_index(g, index) .. ' ' .. descriptor
        count_discarded(descriptor)
      end
    end
    local reason = detail == '' and label or label .. ': ' .. detail
    record(event, math.max(1, #rows), 'head', sample_head(g, J.version + 1), 'reason',
      reason:sub(1, 300), 'rows', concat(rows, '\n'))
  end

  -- Ends the attempt; the prompt is queued again.
  local function end_attempt(g, label, detail)
    local f = load_all(g.ord)
    record_end(g, f, 'requeued', label, detail)
    forget_tokens(g.ord, f)
    local names = blob_names(f)
    if #names > 0 then discard('b ' .. concat(names, ' '), now + J.grace) end
    call('DEL', group_key(g.ord))
    for _, name in ipairs(GROUP) do
      if not LASTING[name] then g[name] = 0 end
    end
    g.att, g.fields = g.att + 1, {'ph', f.ph}
    if f.pk then write(g, 'pk', f.pk) end
    if f.tk then write(g, 'tk', f.tk) end
    move(g, REQUEUED, 0)
    changed(ADMISSION)
    changed(BATCH)
    changed(SPACE)
  end

  local ENDS = {filtered = FILTERED, dropped = DROPPED, dead = DEAD}

  -- Ends the group for good. `label` is a short fixed word, `detail` free text.
  local function end_group(g, event, label, detail)
    local f = load_all(g.ord)
    record_end(g, f, event, label, detail)
    forget_tokens(g.ord, f)
    local names = blob_names(f)
    names[#names + 1] = 'p:' .. g.ord .. ':' .. f.ph
    discard('b ' .. concat(names, ' '), now + J.grace)
    move(g, ENDS[event])
    save(g)
    copies[g.ord] = false
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

  -- Sequence number of the loss of `worker`, which ends the group's lease. All leases that the
  -- worker took before it was lost belong to the same loss.
  local function count_loss(g, worker)
    if worker ~= J.lost_worker or g.tok > J.lost_token then
      set('lost_worker', worker)
      set('lost_token', J.last_token)
      set('losses', J.losses + 1)
    end
    return J.losses
  end
  -- DecideLeaseEnd in staleness_policy.cc. `label` says how the lease ended; `lost` is the lost
  -- worker or nil. Returns label and count if the group is dead, otherwise nil.
  local function decide_lease_end(g, label, lost)
    local loss = lost and count_loss(g, lost)
    if g.put == g.tok then
      update(g, 'ls', 0, 'hb', 0)
      return nil
    end
    if label == 'returned' then return nil end
    local dead, times
    if label == 'lease_failed' then update(g, 'lf', g.lf + 1) end
    if lost then update(g, 'ls', g.lsn == loss - 1 and g.ls + 1 or 1, 'lsn', loss) end
    if lost or label == 'handed_back' then
      if g.hb == 0 or now - g.hbt >= J.ttl then update(g, 'hb', g.hb + 1, 'hbt', now) end
      if g.hb >= J.max_hand_backs then dead, times = 'handed_back', g.hb end
    end
    if label ~= 'handed_back' and g.lf + g.ls >= J.max_lease_failures then
      dead, times = 'lease_failed', g.lf + g.ls
    end
    return dead, times
  end
  -- QueuePlace in staleness_policy.cc.
  local function queue_place(g)
    local bit = math.floor(tonumber(g.ord) / 2 ^ (g.hb % 6)) % 2
    return J.high_water + 1 + bit * J.max_in_flight
  end
  -- Ends a lease that lacks samples: requeues the group, with or without kept tokens, or makes it
  -- dead. `reason` is free text.
  local function end_lease(g, label, reason, lost)
    local dead, times = decide_lease_end(g, label, lost)
    if dead then return end_group(g, 'dead', dead, format('%d times: ', times) .. reason) end
    if g.fin + g.np == 0 then
      local told = label == 'lease_failed' or label == 'handed_back'
      if label == 'handed_back' and g.hb > 1 then g.pl = queue_place(g) end
      return end_attempt(g, label, told and reason or '')
    end
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

  -- DecideDisposition in staleness_policy.cc.
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
    end_attempt(g, 'too_old', '')
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
    settle()
  end

  -- DecideRowEnd in staleness_policy.cc. `label` says how the lease ended, `reason` is free text.
  local function end_row(token, hold, label, reason)
    local g, progress = load(hold.ord, 'u' .. hold.index)
    local failures, losses = counts_in(progress[1]):match('^(%d+) ?(%d*)$')
    failures, losses = tonumber(failures), tonumber(losses) or 0
    local failed = label == 'failed'
    if label == 'worker_lost' then
      losses = losses + 1
      failed = losses > J.max_row_failures
    elseif label ~= 'expired' then
      losses = 0
    end
    if failed then failures = failures + 1 end
    call('ZREM', ROW_LEASES, token)
    call('HDEL', HOLDS, token)
    if failures >= J.max_row_failures then
      call('HDEL', group_key(g.ord), 'u' .. hold.index)
      return end_group(g, 'dead', 'score_failed', failures .. ' times: ' .. reason)
    end
    offer(g, hold.index, failures .. ' ' .. losses)
    changed(ROWS)
  end
  -- Ends the row leases with these tokens, oldest first. Returns how many were live.
  local function end_rows(numbers, label, reason)
    local ended = 0
    table.sort(numbers)
    for _, number in ipairs(numbers) do
      local token = format('%d', number)
      local hold = parse_hold(call('HGET', HOLDS, token))
      if hold then -- otherwise its group died with an earlier row
        ended = ended + 1
        end_row(token, hold, label, reason)
      end
    end
    return ended
  end

  local function extend_leases(gap)
    for _, leases in ipairs({GROUP_LEASES, ROW_LEASES}) do
      for _, member in ipairs(call('ZRANGE', leases, 0, -1)) do call('ZINCRBY', leases, gap, member) end
    end
    if J.next_expiry ~= NEVER then set('next_expiry', J.next_expiry + gap) end
  end

  -- Returns the number of expired leases.
  local function expire_now()
    local expired = 0
    local groups = call('ZRANGEBYSCORE', GROUP_LEASES, '-inf', now)
    table.sort(groups)
    for _, ord in ipairs(groups) do
      expired = expired + 1
      local g, holder = load(ord, 'wrk')
      end_lease(g, 'lease_expired', 'lease of ' .. holder[1] .. ' expired', holder[1])
    end
    local tokens = {}
    for _, token in ipairs(call('ZRANGEBYSCORE', ROW_LEASES, '-inf', now)) do
      tokens[#tokens + 1] = tonumber(token)
    end
    expired = expired + end_rows(tokens, 'expired', '')
    count('leases_expired', expired)
    settle()
    local earliest = NEVER
    for _, leases in ipairs({GROUP_LEASES, ROW_LEASES}) do
      local first = call('ZRANGE', leases, 0, 0, 'WITHSCORES')
      if first[2] then earliest = math.min(earliest, tonumber(first[2])) end
    end
    set('next_expiry', earliest)
    return expired
  end

  local function filter_group(g, label)
    end_group(g, 'filtered', label, '')
    set('filtered', J.filtered + 1)
    if J.filtered < J.max_filtered or J.paused > 0 then return end
    set('paused', J.filtered)
    changed(BATCH)
  end

  made = {end_group = end_group, count_discarded = count_discarded,
    end_lease = end_lease, apply_disposition = apply_disposition, apply_dispositions = apply_dispositions,
    end_row = end_row, end_rows = end_rows, extend_leases = extend_leases,
    expire_now = expire_now, filter_group = filter_group}
  return made
end

-- Ends expired leases and returns their number. If there was no operation for longer than the
-- threshold, Redis was unreachable and nobody could renew: extends leases by that time first.
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

-- The group of lease `token`, if its attempt is remembered, and further fields, as in load.
local function group_of(token, ...)
  local ord = call('HGET', TOKENS, token)
  if not ord then return nil end
  local g, further = load(ord, ...)
  if not g or (g.step > 0 and g.step <= J.forgotten) then return nil end
  return g, further
end
local function is_live(g, token) return g and g.st == LEASED and g.tok == tonumber(token) end

-- Replays and filters by the rewards. Returns why the group is filtered, or false. Defined by
-- curation.lua.
local curate

local function ready_score(score) return format('%d:', #score) .. score end

-- Moves the group on if all of its samples are finished and scored. `ready`: rows and scores of a
-- group that becomes ready now and has no per-sample fields.
local function advance(g, ready)
  if g.st ~= GENERATED or g.sc < size_of(g) then return end
  move(g, SCORED)
  local label = J.filter == 1 and g.neq == 0 and 'zero_variance'
  if J.curate == 1 then label = curate(g) end
  if label then return ends().filter_group(g, label) end
  if not ready then
    ready = {rows = {}, scores = {}}
    local f, old = load_all(g.ord), {}
    for i = 1, size_of(g) do
      local index = format('%d', i - 1)
      ready.rows[i] = format('%d ', uid_index(g, i - 1)) .. f['s' .. index]
      ready.scores[i] = ready_score(f['c' .. index])
      for _, kind in ipairs({'s', 'c', 'u', 'r'}) do
        if f[kind .. index] then old[#old + 1] = kind .. index end
      end
    end
    call_many('HDEL', group_key(g.ord), old)
  end
  write(g, 'rows', concat(ready.rows, '\n'))
  write(g, 'scores', concat(ready.scores))
  move(g, READY)
  set('filtered', 0)
  changed(BATCH)
  if J.disposition ~= WAIT then ends().apply_disposition(g) end
end
