-- Adds to the generation totals. Arguments: tokens, idle time and swap time in us.
bump('generated_tokens', num(1))
bump('idle_us', num(2))
bump('swap_us', num(3))
return finish('OK')
