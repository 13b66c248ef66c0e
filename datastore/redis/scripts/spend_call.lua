-- Counts a call of a component of the reward, unless its limit is reached. Arguments: component,
-- limit. Returns 1 if the call was counted, else 0. {job}:calls has the counts, {job}:refused_calls
-- the highest limit at which a call was refused.
local calls, refused = prefix .. 'calls', prefix .. 'refused_calls'
local component, limit = arg(1), num(2)
if tonumber(call('HGET', calls, component) or '0') < limit then
  call('HINCRBY', calls, component, 1)
  return finish('OK', 1)
end
if tonumber(call('HGET', refused, component) or '0') < limit then
  call('HSET', refused, component, arg(2))
end
return finish('OK', 0)
