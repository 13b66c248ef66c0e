-- Records a durable checkpoint. Arguments: epoch, version, SHA-256 of the checkpoint.
local epoch, version = num(1), num(2)
local fault = epoch_fault(epoch)
if fault then return refuse('%s', fault) end
if version < 0 or version > J.version then
  return refuse('version %d is not committed: the store is at %d', version, J.version)
end
-- A version older than all remembered ones is already durable.
local digest = call('HGET', prefix .. 'digests', version)
local known = tonumber(call('HGET', prefix .. 'durable', version)) or 0
if not digest or known == RECORDED then return finish('OK') end
record('durable', 1, 'lineage', lineage_of(version), 'version', version, 'sha256', arg(3), 'digest', digest)
set_durable(version, RECORDED)
return finish('OK')
