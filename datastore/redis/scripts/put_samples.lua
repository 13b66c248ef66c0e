-- Stores finished samples in order, each independently. They come in runs with the same lease,
-- versions and blob. Arguments of each run: token, number of samples, versions 'FIRST_LINEAGE
-- LAST_LINEAGE OLDEST NEWEST LOSS_OLDEST LOSS_NEWEST' ('' if malformed; the last two over
-- loss-bearing tokens, or all if none bears a loss), the blob TOKEN:... that holds their bytes,
-- total number of tokens; then for each sample: index, descriptor, reward ('' without a score, '-'
-- if malformed), score.
-- Returns for each rejected sample: position, code (DEAD, INDEX, RESPONSE, SCORE, RETRY), the group's
-- min version (INDEX: its size), the committed version and the current lineage.
expire()
local argv, count_state = ARGV, count
local HEAD, SIZE = 5, 4
local faults, position, num_put = {}, 0, 0
local function fault(code, min) faults[#faults + 1] = {position, code, min, J.version, J.lineage} end

-- Makes the blob permanent. Returns whether it exists.
local known_blobs = {}
local function keep(name)
  if known_blobs[name] == nil then
    local blob = prefix .. 'b:' .. name
    known_blobs[name] = call('PERSIST', blob) == 1 or call('EXISTS', blob) == 1
  end
  return known_blobs[name]
end

-- The loss versions of a run; nil if the group's live lease can take none of its samples.
local function check_run(g, at)
  local root, lineage, oldest, newest, loss_oldest, loss_newest =
    argv[at + 2]:match('^(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)$')
  if not root or tonumber(root) < J.root_lineage or tonumber(lineage) > J.lineage or
      tonumber(oldest) < g.min or tonumber(newest) > J.version then
    return nil
  end
  return tonumber(loss_oldest), tonumber(loss_newest)
end

-- Makes the rows of the group available that have no score yet.
local function offer_all(g)
  local f = load_all(g.ord)
  for index = 0, size_of(g) - 1 do
    if not f['c' .. index] then offer(g, index, '0') end
  end
  changed(ROWS)
end

local function complete(g, ready)
  -- The versions are now known from the tokens themselves.
  update(g, 'min', g.lmin, 'max', g.lmax)
  move(g, GENERATED)
  -- The group stays outstanding, so admission changes only at the in-flight limit.
  if J.running == J.max_in_flight - 1 then changed(ADMISSION) end
  changed(BATCH)
  if J.whole == 1 and g.sc < size_of(g) then offer_all(g) end
  advance(g, ready)
end

-- Adds samples and versions to the group's numbers.
local function add(g, samples, tokens, loss_oldest, loss_newest)
  if g.fin > 0 then
    loss_oldest, loss_newest = math.min(loss_oldest, g.lmin), math.max(loss_newest, g.lmax)
  end
  update(g, 'fin', g.fin + samples, 'ntok', g.ntok + tokens, 'lmin', loss_oldest, 'lmax', loss_newest,
    'put', g.tok)
  num_put = num_put + samples
end
local function differ(reward, other)
  return reward ~= other and tonumber(reward) ~= tonumber(other)
end

-- Stores a run that is a whole group, scored and in order, without writing per-sample fields.
-- Returns false without effect for any other run.
local function put_whole(g, at, count, loss_oldest, loss_newest)
  if g.fin + g.np > 0 or count ~= J.group_size or J.curate == 1 then return false end
  local rows, scores, neq, first = {}, {}, 0, argv[at + HEAD + 2]
  for n = 1, count do
    local i = at + HEAD + (n - 1) * SIZE
    local index, reward = argv[i], argv[i + 2]
    if tonumber(index) ~= n - 1 or reward == '' or reward == '-' then return false end
    rows[n] = index .. ' ' .. argv[i + 1]
    scores[n] = ready_score(argv[i + 3])
    if neq == 0 and differ(reward, first) then neq = 1 end
  end
  if (J.filter == 1 and neq == 0) or not keep(argv[at + 3]) then return false end
  add(g, count, tonumber(argv[at + 4]), loss_oldest, loss_newest)
  g.sc, g.neq = count, neq
  write(g, 'bl', argv[at + 3])
  complete(g, {rows = rows, scores = scores})
  return true
end

-- The group's fields for the run's samples.
local function present(g, at, count)
  if g.fin == size_of(g) then return load_all(g.ord) end
  local names, f = {}, {}
  if g.fin + g.np == 0 then return f end
  for i = at + HEAD, at + HEAD + (count - 1) * SIZE, SIZE do
    names[#names + 1] = 's' .. argv[i]
    names[#names + 1] = 'p' .. argv[i]
  end
  local _, values = load(g.ord, unpack(names))
  for n, name in ipairs(names) do f[name] = values[n] or nil end
  return f
end

-- Stores the samples of a run, each independently.
local function put_each(g, at, count, loss_oldest, loss_newest)
  local token, blob = argv[at], argv[at + 3]
  local f = g and present(g, at, count) or {}
  local live, min = is_live(g, token), g and g.min
  local further = g and select(2, load(g.ord, 'rw', 'bl'))
  local first = further and further[1]
  local rows, taken = {}, false
  local function flush()
    if not taken then return end
    write(g, 'bl', further[2] and further[2] .. ' ' .. blob or blob)
    call_many('ZADD', PENDING_ROWS, rows)
    if #rows > 0 then changed(ROWS) end
  end
  local function take(index, i)
    local partial, reward, descriptor = f['p' .. index], argv[i + 2], argv[i + 1]
    taken = true
    add(g, 1, number_of_tokens(descriptor), loss_oldest, loss_newest)
    if partial then
      discard('b ' .. blob_of(partial), now + J.grace)
      call('HDEL', group_key(g.ord), 'p' .. index)
      f['p' .. index] = nil
      g.np = g.np - 1
    end
    f['s' .. index] = descriptor
    write(g, 's' .. index, descriptor)
    if reward == '' then
      write(g, 'u' .. index, '1 0 0')
      if J.whole ~= 1 then
        rows[#rows + 1] = min
        rows[#rows + 1] = row_member(g.ord, index)
      end
    else
      if not first then
        first = reward
        write(g, 'rw', reward)
      end
      if differ(reward, first) then g.neq = 1 end
      g.sc = g.sc + 1
      write(g, 'c' .. index, argv[i + 3])
      if J.curate == 1 then write(g, 'r' .. index, reward) end
    end
  end
  for i = at + HEAD, at + HEAD + (count - 1) * SIZE, SIZE do
    local index = argv[i]
    local finished = f['s' .. index]
    if g and tonumber(index) >= size_of(g) then
      fault('INDEX', size_of(g))
    elseif finished and finished:match('^%d+') == token then
      count_state('duplicate_puts', 1)
    elseif finished or not live then
      count_state('fenced_puts', 1)
      fault('DEAD', 0)
    elseif not loss_oldest then
      fault('RESPONSE', min)
    elseif argv[i + 2] == '-' then
      fault('SCORE', min)
    elseif not keep(blob) then
      fault('RETRY', min)
    else
      take(index, i)
      if g.fin == size_of(g) then
        flush()
        taken, live = false, false
        complete(g)
        -- The attempt may have ended, along with its samples' fields.
        if not group_of(token) then f, g = {}, nil end
      end
    end
    position = position + 1
  end
  flush()
end

local at = 5
while at <= #argv do
  local count = tonumber(argv[at + 1])
  local g = group_of(argv[at])
  local loss_oldest, loss_newest
  if is_live(g, argv[at]) then loss_oldest, loss_newest = check_run(g, at) end
  if loss_oldest and put_whole(g, at, count, loss_oldest, loss_newest) then
    position = position + count
  else
    put_each(g, at, count, loss_oldest, loss_newest)
  end
  at = at + HEAD + count * SIZE
end
count_state('samples_put', num_put)
return finish('OK', faults)
