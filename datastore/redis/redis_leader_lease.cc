#include "datastore/redis/redis_leader_lease.h"

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr char kLeaderKey[] = "{freshet}:leader";

// Both scripts also run at the memory limit (allow-oom), because a leader is needed to report it.
// KEYS: leader. ARGV: candidate, address, ttl in microseconds, time in microseconds or "".
// Returns {held, token, leader, address, remaining microseconds}. Candidate "" does not acquire.
constexpr RedisScript kAcquire = {"acquire_leader_lease", R"lua(#!lua flags=allow-oom
local candidate, ttl, now = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local row = redis.call('HMGET', KEYS[1], 'leader', 'address', 'token', 'expires')
local leader, token, expires = row[1] or '', tonumber(row[3] or '0'), tonumber(row[4] or '0')
local in_force = leader ~= '' and now < expires
if leader ~= candidate and in_force then
  return {0, token, leader, row[2] or '', expires - now}
end
if candidate == '' then return {0, token, '', '', 0} end
if not in_force then token = token + 1 end
redis.call('HSET', KEYS[1], 'leader', candidate, 'address', ARGV[2],
           'token', string.format('%.0f', token), 'expires', string.format('%.0f', now + ttl))
return {1, token, candidate, ARGV[2], ttl}
)lua"};

// KEYS: leader. ARGV: candidate, token.
constexpr RedisScript kRelease = {"release_leader_lease", R"lua(#!lua flags=allow-oom
local row = redis.call('HMGET', KEYS[1], 'leader', 'token')
if row[1] == ARGV[1] and row[2] == ARGV[2] then
  redis.call('HSET', KEYS[1], 'leader', '', 'address', '', 'expires', '0')
end
return 0
)lua"};

absl::StatusOr<LeaseState> ReadState(const RedisReply& reply) {
  if (reply.items.size() != 5) return DataLoss("unexpected redis reply to the leader lease");
  return LeaseState{reply.items[0].integer == 1, reply.items[1].integer, reply.items[2].text,
                    reply.items[3].text, absl::Microseconds(reply.items[4].integer)};
}

}  // namespace

std::string RedisLeaderLease::Now() const {
  return clock_ == nullptr ? "" : std::to_string(absl::ToUnixMicros(clock_->Now()));
}

absl::StatusOr<LeaseState> RedisLeaderLease::TryAcquire(const std::string& candidate,
                                                        const std::string& address,
                                                        absl::Duration ttl) {
  FRESHET_RETURN_IF_ERROR(ValidateLeaderRequest(candidate, ttl));
  FRESHET_ASSIGN_OR_RETURN(
      const RedisReply reply,
      client_->Run(kAcquire, {kLeaderKey},
                   {candidate, address, std::to_string(absl::ToInt64Microseconds(ttl)), Now()}));
  return ReadState(reply);
}

absl::StatusOr<LeaseState> RedisLeaderLease::Look() {
  FRESHET_ASSIGN_OR_RETURN(const RedisReply reply,
                           client_->Run(kAcquire, {kLeaderKey}, {"", "", "0", Now()}));
  return ReadState(reply);
}

absl::Status RedisLeaderLease::Release(const std::string& candidate, int64_t token) {
  return client_->Run(kRelease, {kLeaderKey}, {candidate, std::to_string(token)}).status();
}

}  // namespace freshet
