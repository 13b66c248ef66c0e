-- Part of the scripts that claim, journal and forget steps. Step S is the hash {job}:step:S: hash
-- (of the weights), digest, ordinals, attempts, at (time of the commit).
local LOADED, RECORDED = 1, 2
local function step_key(step) return format('%sstep:%d', prefix, step) end

-- The groups claimed for a step that its trainer will not commit are ready again.
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

-- Forgets the steps that the second-newest durable version holds. Their groups' keys are deleted
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
    local B, at = J.groups_per_step, tonumber(call('HGET', step_key(step), 'at'))
    bump(NOW[TRAINED], -B)
    bump(STAYED[TRAINED], B * (now - at))
    bump(NOW[DURABLE], B)
    bump(ENTERED[DURABLE], B)
    set('trained', J.trained - B)
  end
  set('newest_durable', math.max(J.newest_durable, version))
  forget()
  set('was_full', 0)
  changed(ADMISSION)
  changed(SPACE)
end
