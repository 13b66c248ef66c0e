-- Returns the high-water mark and the live ordinals: neither trained nor ended.
local claimed = J.claimed > 0 and call('GET', prefix .. 'claimed') or ''
return finish('OK', format('%d', J.high_water), call('ZRANGE', prefix .. 'queue', 0, -1),
  call('ZRANGE', prefix .. 'open', 0, -1), call('ZRANGE', prefix .. 'ready', 0, -1), split(claimed))
