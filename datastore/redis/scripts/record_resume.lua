-- Writes the first row of a resumed store. Arguments: epoch, parent lineage, fork version, SHA-256
-- of the checkpoint, digest.
if J.resumed == 0 then return refuse('a fresh store has nothing to resume') end
if J.resume_recorded == 1 then return refuse('the resumed row is written already') end
if J.seq ~= J.origin_seq then
  return refuse('the resumed row comes first: %d rows are written already', J.seq - J.origin_seq)
end
set('resume_recorded', 1)
record('resumed', 1, 'epoch', arg(1), 'parent', arg(2), 'fork', arg(3), 'sha256', arg(4), 'digest',
  arg(5))
return finish('OK')
