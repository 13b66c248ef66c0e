-- Shared by the scripts that claim, journal and forget steps. Step S is the hash {job}:step:S: hash
-- (of the weights), digest, ordinals, attempts, at (commit time), skipped (samples, SKIPPED).
--
-- The store's lineages are J.root_lineage to J.lineage. J.ends lists, for each earlier lineage, its
-- newest version from which the current history descends; non-decreasing.
local LOADED, RECORDED = 1, 2
local function step_key(step) return format('%sstep:%d', prefix, step) end

local function last_of(lineage)
  return lineage < J.lineage and J.ends[lineage - J.root_lineage + 1] or nil
end
local function lineage_of(version)
  for lineage = J.root_lineage, J.lineage - 1 do
    if version <= last_of(lineage) then return lineage end
  end
  return J.lineage
end
-- The redone step produced different weights: starts a new lineage, at most once per epoch.
local function diverge(step)
  if J.diverged_in == J.epoch then return end
  local ends = {}
  for i, last in ipairs(J.ends or {}) do ends[i] = math.min(last, step - 1) end
  ends[#ends + 1] = step - 1
  set('ends', ends)
  set('lineage', J.lineage + 1)
  set('diverged_in', J.epoch)
  for _, version in ipairs(call('HKEYS', prefix .. 'durable')) do
    if tonumber(version) >= step then call('HDEL', prefix .. 'durable', version) end
  end
  changed(ADMISSION)
end

-- Groups claimed for a step that its trainer will not commit become ready again.
local function unclaim()
  if J.claimed == 0 then return end
  for _, ordinal in ipairs(split(call('GET', prefix .. 'claimed'))) do
    local g = load(key(ordinal))
    update(g, 'step', 0)
    move(g, READY)
  end
  call('DEL', prefix .. 'claimed')
  set('claimed', 0)
end

-- Forgets the steps contained in the second-newest durable version. Their groups' keys are deleted
-- later, in slices.
local function forget()
  local versions = {}
  for _, version in ipairs(call('HKEYS', prefix .. 'durable')) do
    versions[#versions + 1] = tonumber(version)
  end
  if #versions < 2 then return end
  table.sort(versions)
  local second = versions[#versions - 1]
  for step = J.forgotten + 1, second do
    for _, ordinal in ipairs(split(call('HGET', step_key(step), 'ordinals'))) do
      discard('g ' .. key(ordinal), now)
    end
    call('UNLINK', step_key(step))
  end
  set('forgotten', math.max(J.forgotten, second))
  for i = 1, #versions - 2 do call('HDEL', prefix .. 'durable', versions[i]) end
  for version = J.first_version, second - 1 do call('HDEL', prefix .. 'digests', version) end
  set('first_version', math.max(J.first_version, second))
end

local function set_durable(version, level)
  local known = tonumber(call('HGET', prefix .. 'durable', version)) or 0
  if level > known then call('HSET', prefix .. 'durable', version, level) end
  for step = J.newest_durable + 1, version do
    local B, f = J.groups_per_step, call('HMGET', step_key(step), 'at', 'skipped')
    local at, skipped = tonumber(f[1]), tonumber(f[2]) or 0 -- older stores have no `skipped`
    bump(NOW[TRAINED], -B)
    bump(STAYED[TRAINED], B * (now - at))
    bump(NOW[DURABLE], B)
    bump(ENTERED[DURABLE], B)
    bump(SKIPPED[TRAINED], -skipped)
    bump(SKIPPED[DURABLE], skipped)
    set('trained', J.trained - B)
  end
  set('newest_durable', math.max(J.newest_durable, version))
  forget()
  set('was_full', 0)
  changed(ADMISSION)
  changed(SPACE)
end
