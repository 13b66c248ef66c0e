#include <algorithm>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/job_records.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_job_records.h"

namespace freshet {
namespace {

constexpr char kScanCount[] = "1000";  // keys scanned per call: under 1 ms of server time
constexpr size_t kUnlinkSlice = 500;   // keys per script

bool IsJobIdChar(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// KEYS: the records' metadata, the store's configuration, the keys to remove. ARGV: fence,
// generation. Returns {outcome, number}. Also runs at the memory limit.
constexpr RedisScript kUnlink = {"unlink_job_keys", R"lua(#!lua flags=allow-oom
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < seen then return {'fenced', seen} end
local config = redis.call('GET', KEYS[2]) or ''
local generation = tonumber(string.match(config, '"generation":(%d+)') or '0')
if tonumber(ARGV[2]) < generation then return {'newer', generation} end
return {'ok', redis.call('UNLINK', unpack(KEYS, 3))}
)lua"};

absl::StatusOr<int64_t> UnlinkSlice(RedisClient& client, const JobRemoval& removal,
                                    const std::string* begin, const std::string* end) {
  std::vector<std::string> keys = {kRecordsMetaKey, StrCat("{", removal.job, "}:config")};
  keys.insert(keys.end(), begin, end);
  FRESHET_ASSIGN_OR_RETURN(
      const RedisReply reply,
      client.Run(kUnlink, keys, {StrCat(removal.fence), StrCat(removal.generation)}));
  if (reply.items.size() != 2) return DataLoss("unexpected redis reply to a removal");
  const int64_t number = reply.items[1].integer;
  if (reply.items[0].text == "ok") return number;
  if (reply.items[0].text == "newer") {
    return FailedPrecondition("job ", removal.job, ": its store is of generation ", number,
                              ", later than ", removal.generation, ": another job has the id");
  }
  return FailedPrecondition("job ", removal.job, ": fence ", removal.fence, " is older than ",
                            number, ": another controller leads");
}

absl::StatusOr<int64_t> Unlink(RedisClient& client, const JobRemoval& removal,
                               const std::vector<std::string>& keys) {
  int64_t removed = 0;
  for (size_t begin = 0; begin < keys.size(); begin += kUnlinkSlice) {
    const size_t end = std::min(keys.size(), begin + kUnlinkSlice);
    FRESHET_ASSIGN_OR_RETURN(const int64_t slice,
                             UnlinkSlice(client, removal, keys.data() + begin, keys.data() + end));
    removed += slice;
  }
  return removed;
}

absl::Status ValidateJob(const std::string& job) {
  if (job.empty() || !std::all_of(job.begin(), job.end(), IsJobIdChar)) {
    return InvalidArgument("job id '", job, "' is empty or has characters outside [A-Za-z0-9._-]");
  }
  if (job == kClusterTag) {
    return InvalidArgument("'", job,
                           "' is not a job id: it is reserved for the cluster's own keys");
  }
  return absl::OkStatus();
}

// Unlinks the job's keys that match `family`, except the store's configuration.
absl::StatusOr<int64_t> UnlinkMatching(RedisClient& client, const JobRemoval& removal,
                                       const std::string& family) {
  const std::string prefix = StrCat("{", removal.job, "}:");
  int64_t removed = 0;
  std::string cursor = "0";
  do {
    FRESHET_ASSIGN_OR_RETURN(
        const RedisReply reply,
        client.Command({"SCAN", cursor, "MATCH", StrCat(prefix, family), "COUNT", kScanCount}));
    if (reply.items.size() != 2) return DataLoss("unexpected redis reply to SCAN");
    cursor = reply.items[0].text;
    std::vector<std::string> keys;
    for (const RedisReply& key : reply.items[1].items) {
      if (key.text != StrCat(prefix, "config")) keys.push_back(key.text);
    }
    FRESHET_ASSIGN_OR_RETURN(const int64_t slice, Unlink(client, removal, keys));
    removed += slice;
  } while (cursor != "0");
  return removed;
}

}  // namespace

absl::StatusOr<int64_t> DeleteJobKeys(RedisClient& client, const JobRemoval& removal) {
  FRESHET_RETURN_IF_ERROR(ValidateJob(removal.job));
  const std::string prefix = StrCat("{", removal.job, "}:");
  FRESHET_ASSIGN_OR_RETURN(
      const int64_t first,
      Unlink(client, removal, {StrCat(prefix, "state"), StrCat(prefix, "options")}));
  FRESHET_ASSIGN_OR_RETURN(const int64_t rest, UnlinkMatching(client, removal, "*"));
  // Last: while the configuration exists, no new store can take the name, and the generation is
  // known.
  FRESHET_ASSIGN_OR_RETURN(const int64_t last, Unlink(client, removal, {StrCat(prefix, "config")}));
  return first + rest + last;
}

absl::StatusOr<int64_t> DeleteJobSamples(RedisClient& client, const JobRemoval& removal) {
  FRESHET_RETURN_IF_ERROR(ValidateJob(removal.job));
  FRESHET_ASSIGN_OR_RETURN(const int64_t samples, UnlinkMatching(client, removal, "[bge]:*"));
  // Keys for replaying replies and finding groups by lease.
  std::vector<std::string> keys;
  for (const char* name : {"holds", "tokens", "replay", "replays", "row_answers", "queue", "pool",
                           "pool_ages", "row_history", "task_history"}) {
    keys.push_back(StrCat("{", removal.job, "}:", name));
  }
  FRESHET_ASSIGN_OR_RETURN(const int64_t rest, Unlink(client, removal, keys));
  return samples + rest;
}

}  // namespace freshet
