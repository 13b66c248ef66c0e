#ifndef FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_RECORDS_H_
#define FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_trajectory_store_config.h"
#include "datastore/response_check.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// The texts that the scripts and RedisTrajectoryStore exchange. Parsers give DATA_LOSS for what no
// script of ours writes. Pure functions: thread-safe.

// What the scripts must know of a response besides its bytes.
struct ResponseSummary {
  bool well_formed = false;   // by its own shape, whatever the bounds; else the rest is 0
  int64_t first_lineage = 0;  // lineages and versions grow from token to token
  int64_t last_lineage = 0;
  int64_t oldest = 0;  // versions over all tokens
  int64_t newest = 0;
  int64_t loss_oldest = 0;  // over loss-bearing tokens; 0 without one
  int64_t loss_newest = 0;
  int64_t num_tokens = 0;
  std::string spans;  // "lineage:version:begin:end:loss;...", loss: loss-bearing tokens of the span
};
ResponseSummary Summarize(const Response& response, bool needs_loss);
// What CheckResponse says of a response that a script refused under these bounds.
absl::Status Malformed(const Response& response, const ResponseBounds& bounds);
absl::Status RowNotLive(Task task, int64_t token);

// "TOKEN CHECKSUM TOKENS FIRST:SUM:OFFSET:SIZE SPANS": where a sample's bytes are, and the ledger's
// view of them. The bytes lie in the blob TOKEN:FIRST:SUM, which may hold several samples.
struct SampleRecord {
  std::string blob;  // its name
  std::string checksum;
  int64_t num_tokens = 0;
  int64_t offset = 0;
  int64_t size = 0;
  std::string spans;
};
absl::StatusOr<SampleRecord> ParseSampleRecord(std::string_view text);
std::string SampleRecordText(std::string_view token, std::string_view checksum,
                             const ResponseSummary& summary, std::string_view place);

// Takes the text up to the next `separator` (or the end) from the front of `text`.
std::string_view TakePart(std::string_view& text, char separator);
// Takes such a part and reads it as a number; DATA_LOSS when it is none.
absl::StatusOr<int64_t> TakeNumber(std::string_view& text, char separator);
// Takes "SIZE:bytes" from the front of `text`.
absl::StatusOr<std::string> TakeSized(std::string_view& text);
// "1,2,3"
std::string JoinNumbers(const std::vector<int64_t>& numbers);
absl::StatusOr<std::vector<int64_t>> ParseNumbers(std::string_view text);

// Why a lease reply holds no more groups, from the numbers that lease_prompts.lua gives.
struct LeaseReason {
  std::string text;
  PolicyVersion committed;
  PolicyVersion engine;  // of the engine that asked
};
absl::StatusOr<LeaseReason> ParseLeaseReason(std::string_view reason,
                                             const RedisStoreConfig& config);

// An edge of steps.lua as the port's explanation. Engines' notes become text by ParseLeaseReason.
absl::StatusOr<Explanation> EdgeText(const RedisReply& edge, const RedisStoreConfig& config);

// The rows of one ledger entry: [id, [name, value, ...]] of XRANGE.
absl::StatusOr<std::vector<LedgerRow>> ExpandLedgerEntry(const RedisReply& entry,
                                                         const RedisStoreConfig& config);

// The counters that stats.lua gives.
absl::StatusOr<StoreStats> ParseStats(const RedisReply& counters, const RedisReply& reasons);

// Which prompts need not come again, given the ordinals that live.
PromptCursor CursorOf(int64_t high_water, std::vector<int64_t> live, const PromptCursor& origin);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_RECORDS_H_
