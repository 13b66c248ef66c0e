-- Returns counters: pairs of name and number, pairs of reason and number of groups, the hashes of
-- spend_call.lua, and pairs of reason and number of skipped samples.
local out = call('HGETALL', prefix .. 'stats')
local function put(name, value)
  out[#out + 1] = name
  out[#out + 1] = format('%d', value)
end
put('outstanding', J.outstanding)
put('running', J.running)
put('version', J.version)
put('queued', call('ZCARD', prefix .. 'queue'))
put('capacity_used', J.outstanding + J.trained)
put('backlog', J.seq - J.trimmed)
put('filtered_in_a_row', J.filtered)
put('pooled_successes', call('HLEN', prefix .. 'pool'))
put('skipped_samples', J.skipped_samples)
put('limited_groups', J.limited_groups)
for _, name in ipairs({'leases_expired', 'samples_put', 'duplicate_puts', 'fenced_puts',
  'trained_samples', 'trained_tokens', 'discarded_samples', 'discarded_tokens', 'replayed_samples'}) do
  put(name, J[name])
end
return finish('OK', out, call('HGETALL', prefix .. 'reasons'), call('HGETALL', prefix .. 'calls'),
  call('HGETALL', prefix .. 'refused_calls'), call('HGETALL', prefix .. 'skipped_reasons'))
