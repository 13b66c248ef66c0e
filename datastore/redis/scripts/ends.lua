-- Shared by the scripts that move groups: functions that end attempts, groups and leases. Created on
-- first use, because most calls end none.
local made
function ends()
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
function expire()
  local threshold, gap = tonumber(ARGV[4]), now - J.alive
  if threshold > 0 and gap >= threshold / 16 then
    set('alive', now)
    if gap >= threshold then ends().extend_leases(gap) end
  end
  if now < J.next_expiry then return 0 end
  return ends().expire_now()
end
