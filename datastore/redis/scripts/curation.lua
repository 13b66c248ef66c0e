-- Shared by the scripts that move groups: filters by reward, the pool of successes, and histories.
--
-- {job}:pool has {ORIGIN, oldest version, descriptor, reward, score} by prompt key, packed;
-- {job}:pool_ages has the keys by oldest version. The bytes are copies: in {job}:b:r:KEY for the pool,
-- and in a blob of its own for each group that replays them.
--
-- {job}:row_history and {job}:task_history have {successes, samples, longest} by prompt key and by
-- task, packed.
curate = function(g)
  local POOL, POOL_AGES = prefix .. 'pool', prefix .. 'pool_ages'
  local function pool_blob(key) return prefix .. 'b:r:' .. key end
  -- Version of the oldest loss-bearing token; nil without one. Versions may decrease from one segment to the next.
  local function oldest_of(descriptor)
    local oldest
    for version, loss in descriptor:gmatch('%d+:(%d+):%d+:%d+:(%d+)') do
      if loss ~= '0' then oldest = math.min(oldest or math.huge, tonumber(version)) end
    end
    return oldest
  end
  local function remove_success(key)
    call('HDEL', POOL, key)
    call('ZREM', POOL_AGES, key)
    call('UNLINK', pool_blob(key))
  end
  -- SuccessPool::Add. `index` counts from 0.
  local function keep_success(g, f, index)
    local descriptor = f['s' .. index]
    local oldest = oldest_of(descriptor:match('^%d+ %x+ %d+ %S+ (%S+)'))
    if not oldest then return end
    local offset, size = descriptor:match('^%d+ %x+ %d+ %d+:%x+:(%d+):(%d+)')
    local bytes = call('GETRANGE', prefix .. 'b:' .. blob_of(descriptor), offset, offset + size - 1)
    local known = tonumber(call('ZSCORE', POOL_AGES, f.pk))
    if #bytes == tonumber(size) and (not known or known <= oldest) then
      local origin = format('%s/%d/%d', ordinal_number(g.ord), g.att, index)
      call('SET', pool_blob(f.pk), bytes)
      call('HSET', POOL, f.pk,
        cmsgpack.pack({origin, oldest, descriptor, f['r' .. index], f['c' .. index]}))
      call('ZADD', POOL_AGES, oldest, f.pk)
    end
    local old = call('ZRANGEBYSCORE', POOL_AGES, '-inf', format('(%d', J.version - J.replay_max_age))
    for _, key in ipairs(old) do remove_success(key) end
    local beyond = call('ZCARD', POOL_AGES) - J.replay_capacity
    for _, key in ipairs(beyond > 0 and call('ZRANGE', POOL_AGES, 0, beyond - 1) or {}) do
      remove_success(key)
    end
  end
  -- MayReplay in curation_policy.cc, and the replacement. Changes `f` as well.
  local function replay_success(g, f, index)
    local packed = call('HGET', POOL, f.pk)
    if not packed then return end
    local origin, oldest, descriptor, reward, score = unpack(cmsgpack.unpack(packed))
    local latest = (J.disposition == MASK and g.max or g.min) + J.eta
    local bytes = call('GET', pool_blob(f.pk))
    if latest - oldest > J.replay_max_age or not bytes then return end
    local replaced = f['s' .. index]
    record('dropped', 1, 'head', sample_head(g, J.version + 1), 'reason', 'replaced', 'rows',
      index .. ' ' .. replaced)
    ends().count_discarded(replaced)
    local sum, tokens, spans = descriptor:match('^%d+ (%x+) (%d+) %S+ (%S+)')
    -- Put again under its lease, the replaced sample is still recognized.
    local token = replaced:match('^%d+')
    local copy = format('%s %s %s %d:%s:0:%d %s %s', token, sum, tokens, index, sum, #bytes, spans,
      origin)
    call('SET', prefix .. 'b:' .. blob_of(copy), bytes)
    update(g, 'rp', index + 1, 'ntok', g.ntok + number_of_tokens(copy) - number_of_tokens(replaced))
    f['s' .. index], f['r' .. index], f['c' .. index] = copy, reward, score
    f.bl = f.bl .. ' ' .. blob_of(copy)
    write(g, 's' .. index, copy)
    write(g, 'c' .. index, score)
    write(g, 'bl', f.bl)
    set('replayed_samples', J.replayed_samples + 1)
  end

  local function rewards_in(f)
    local rewards = {}
    for i = 1, size_of(g) do rewards[i] = tonumber(f['r' .. (i - 1)]) end
    return rewards
  end
  -- DecideReplay in curation_policy.cc.
  local function replay(g, f)
    local successes, best, worst, rewards = 0, 1, 1, rewards_in(f)
    for i, reward in ipairs(rewards) do
      if reward >= J.replay_min_reward then successes = successes + 1 end
      if reward > rewards[best] then best = i end
      if reward <= rewards[worst] then worst = i end
    end
    if successes == 0 then return replay_success(g, f, worst - 1) end
    if successes <= J.replay_max_successes then keep_success(g, f, best - 1) end
  end
  -- DecideFilter in curation_policy.cc.
  local function decide_filter(rewards)
    local sum, equal = 0, true
    for _, reward in ipairs(rewards) do
      sum = sum + reward
      equal = equal and reward == rewards[1]
    end
    local mean = sum / #rewards
    if J.filter_min_mean and mean < J.filter_min_mean then return 'too_hard' end
    if J.filter_max_mean and mean > J.filter_max_mean then return 'too_easy' end
    return J.filter == 1 and equal and 'zero_variance'
  end

  -- RolloutHistories::Add in adaptive_rollouts.cc.
  local function remember(f)
    local ROWS, TASKS, MAX = prefix .. 'row_history', prefix .. 'task_history', 65536
    local rewards, successes, longest = rewards_in(f), 0, 0
    for i, reward in ipairs(rewards) do
      if reward >= J.adaptive_min_reward then
        successes = successes + 1
        longest = math.max(longest, number_of_tokens(f['s' .. (i - 1)]))
      end
    end
    local function add(histories, name, memory)
      local packed = call('HGET', histories, name)
      local old = packed and cmsgpack.unpack(packed) or {0, 0, 0}
      call('HSET', histories, name, cmsgpack.pack({old[1] * memory + successes,
        old[2] * memory + #rewards, math.max(old[3], longest)}))
    end
    add(TASKS, f.tk, 0.96875)
    if call('HEXISTS', ROWS, f.pk) == 1 or call('HLEN', ROWS) + call('HLEN', TASKS) < MAX then
      add(ROWS, f.pk, 0.5)
    end
  end

  local f = load_all(g.ord)
  if J.min_group_size then remember(f) end
  if J.replay_max_age and f.pk then replay(g, f) end
  return decide_filter(rewards_in(f))
end
