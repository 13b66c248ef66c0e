-- Writes a job's configuration and initial state, once. KEYS[1] {job}:state. Arguments: prefix,
-- configuration ("" only reads), time in us or "", digest, version, 1 for the first row of a fresh
-- ledger, number of ordinals that ended before, these ordinals, number of options, names and values
-- of the options, and of the state.
-- Returns the existing configuration or "", and the generation: the server's time when the store
-- was written, which distinguishes it from another store of the same name.
local call = redis.call
local prefix = ARGV[1]
local known = call('GET', prefix .. 'config')
if known then
  local options = call('GET', prefix .. 'options')
  local there = options and call('EXISTS', KEYS[1]) == 1
  return {known, there and cmsgpack.unpack(options).generation or ''}
end
if ARGV[2] == '' then return {'', ''} end
local time = call('TIME')
local generation = time[1] .. '.' .. time[2]
local now = tonumber(ARGV[3]) or time[1] * 1000000 + time[2]
call('SET', prefix .. 'config', ARGV[2])
local num_above = tonumber(ARGV[7])
for i = 8, 7 + num_above do
  call('SADD', prefix .. 'above', string.format('%016d', tonumber(ARGV[i])))
end
local at = 8 + num_above
local options, state = {generation = generation, above = num_above}, {alive = now}
for i = at + 1, #ARGV, 2 do
  local values = i <= at + 2 * tonumber(ARGV[at]) and options or state
  values[ARGV[i]] = tonumber(ARGV[i + 1])
end
call('HSET', prefix .. 'digests', ARGV[5], ARGV[4])
if ARGV[6] == '1' then
  call('XADD', prefix .. 'ledger', '1-0', 'event', 'open', 'count', 1)
  state.seq = 1
end
call('SET', prefix .. 'options', cmsgpack.pack(options))
call('SET', KEYS[1], cmsgpack.pack(state))
return {'', generation}
