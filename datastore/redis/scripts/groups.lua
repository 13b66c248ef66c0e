-- Shared by the scripts that move groups: records, states and indexes.
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

-- Ends attempts, groups and leases. Defined by ends.lua.
local ends, expire

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
