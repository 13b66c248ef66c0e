#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "datastore/job_records.h"
#include "datastore/redis/redis_client.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

constexpr char kScanCount[] = "1000";  // buckets that a SCAN looks at: under 1 ms of server time
constexpr size_t kUnlinkSlice = 500;   // keys of one UNLINK

bool IsJobIdChar(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

absl::StatusOr<int64_t> UnlinkSlices(RedisClient& client, const std::vector<RedisReply>& keys) {
  int64_t removed = 0;
  for (size_t begin = 0; begin < keys.size(); begin += kUnlinkSlice) {
    std::vector<std::string> command = {"UNLINK"};
    for (size_t i = begin; i < std::min(keys.size(), begin + kUnlinkSlice); ++i) {
      command.push_back(keys[i].text);
    }
    FRESHET_ASSIGN_OR_RETURN(const RedisReply reply, client.Command(command));
    removed += reply.integer;
  }
  return removed;
}

}  // namespace

absl::StatusOr<int64_t> DeleteJobKeys(RedisClient& client, const std::string& job) {
  if (job.empty() || !std::all_of(job.begin(), job.end(), IsJobIdChar)) {
    return InvalidArgument("job id '", job, "' is empty or has characters outside [A-Za-z0-9._-]");
  }
  if (job == kClusterTag) {
    return InvalidArgument("'", job, "' is no job: the cluster's own keys carry it");
  }
  int64_t removed = 0;
  std::string cursor = "0";
  do {
    FRESHET_ASSIGN_OR_RETURN(
        const RedisReply reply,
        client.Command({"SCAN", cursor, "MATCH", StrCat("{", job, "}:*"), "COUNT", kScanCount}));
    if (reply.items.size() != 2) return DataLoss("redis answered SCAN with something else");
    cursor = reply.items[0].text;
    FRESHET_ASSIGN_OR_RETURN(const int64_t slice, UnlinkSlices(client, reply.items[1].items));
    removed += slice;
  } while (cursor != "0");
  return removed;
}

}  // namespace freshet
