-- Shared by the scripts of evaluations (evaluation_store.h).
--
-- {job}:e:state packs E: id, rows, answered, ended, lineage, version, abandoned. Hash {job}:e:rows
-- maps a row to its packed record: stage ('w' waiting, 'h' held, 's' scored, 'f' failed), size
-- (response tokens), failures, losses, token, worker, request, and value (score or reason of the
-- failure). Hash {job}:e:bytes has the prompt pROW and the response rROW of rows that have not
-- ended. Sorted sets {job}:e:waiting (rows) and {job}:e:leases (rows by expiry), hashes
-- {job}:e:tokens (lease token -> row) and {job}:e:requests (worker -> id of its last request that
-- returned rows).
local STATE, RECORDS, BYTES = prefix .. 'e:state', prefix .. 'e:rows', prefix .. 'e:bytes'
local WAITING, LEASES, TOKENS = prefix .. 'e:waiting', prefix .. 'e:leases', prefix .. 'e:tokens'
local REQUESTS = prefix .. 'e:requests'
local MAX_REASON = 300
local E = call('GET', STATE)
E = E and cmsgpack.unpack(E)
local function save() call('SET', STATE, cmsgpack.pack(E)) end
local function delete_all()
  call('UNLINK', STATE, RECORDS, BYTES, WAITING, LEASES, TOKENS, REQUESTS)
end
local function read_row(n)
  local packed = n and call('HGET', RECORDS, n)
  return packed and cmsgpack.unpack(packed)
end
local function write_row(n, row) call('HSET', RECORDS, n, cmsgpack.pack(row)) end

local function end_row(n, row, stage, value)
  row.stage, row.value = stage, value
  write_row(n, row)
  call('HDEL', BYTES, 'p' .. n, 'r' .. n)
  E.ended = E.ended + 1
  save()
end
-- Ends the lease of a row as 'failed', 'returned' or 'lost'. DecideRowEnd in staleness_policy.cc.
local function release(n, row, how, reason)
  call('ZREM', LEASES, n)
  local failed = how == 'failed'
  if how == 'lost' then
    row.losses = row.losses + 1
    failed = row.losses > J.max_row_failures
  else
    row.losses = 0
  end
  if failed then row.failures = row.failures + 1 end
  if row.failures >= J.max_row_failures then
    return end_row(n, row, 'f', reason:sub(1, MAX_REASON))
  end
  row.stage = 'w'
  write_row(n, row)
  call('ZADD', WAITING, n, n)
  changed(EVALUATION)
end
local function expire_rows()
  for _, n in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now)) do
    local row = read_row(n)
    release(n, row, 'lost', 'lease of ' .. row.worker .. ' expired')
  end
end
