#ifndef FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_RECORDS_H_
#define FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_RECORDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_trajectory_store_config.h"
#include "datastore/response_check.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Text records exchanged between the scripts and RedisTrajectoryStore. Parsers return DATA_LOSS for
// malformed text. Pure functions: thread-safe.

// What the scripts need to know about a response besides its bytes.
struct ResponseSummary {
  bool well_formed = false;   // shape is valid, ignoring the bounds; if false the rest is 0
  int64_t first_lineage = 0;  // lineages and versions over all tokens
  int64_t last_lineage = 0;
  int64_t oldest = 0;
  int64_t newest = 0;
  int64_t loss_oldest = 0;  // over loss-bearing tokens, or all if none bears a loss
  int64_t loss_newest = 0;
  int64_t num_tokens = 0;
  // "lineage:version:begin:end:loss;..."; loss: loss-bearing tokens in the span. ":1" follows if it
  // begins a segment.
  std::string spans;
};
ResponseSummary Summarize(const Response& response, bool needs_loss);
// The CheckResponse error of a response that a script rejected under these bounds.
absl::Status Malformed(const Response& response, const ResponseBounds& bounds);
absl::Status RowNotLive(int64_t token);

// "TOKEN CHECKSUM TOKENS FIRST:SUM:OFFSET:SIZE SPANS": location of a sample's bytes, and its ledger
// data. The bytes are in blob TOKEN:FIRST:SUM, which may hold several samples. "
// ORDINAL/ATTEMPT/INDEX" of the success follows if the sample is a copy of one.
struct SampleRecord {
  std::string blob;  // name
  std::string checksum;
  int64_t num_tokens = 0;
  int64_t offset = 0;
  int64_t size = 0;
  std::string spans;
  std::string replay_of;  // its uid without the job; "": not a copy
};
absl::StatusOr<SampleRecord> ParseSampleRecord(std::string_view text);
std::string SampleRecordText(std::string_view token, std::string_view checksum,
                             const ResponseSummary& summary, std::string_view place);

// Removes and returns the text up to the next `separator` (or the end).
std::string_view TakePart(std::string_view& text, char separator);
// Like TakePart, parsed as a number. DATA_LOSS: not a number.
absl::StatusOr<int64_t> TakeNumber(std::string_view& text, char separator);
// TakeNumber for each of `out`, up to the first error.
template <typename... Numbers>
absl::Status TakeNumbers(std::string_view& text, char separator, Numbers&... out) {
  absl::Status status;
  const auto take = [&]<typename Number>(Number& number) {
    const absl::StatusOr<int64_t> value = TakeNumber(text, separator);
    if (value.ok()) number = static_cast<Number>(*value);
    status = value.status();
    return status.ok();
  };
  (void)(take(out) && ...);
  return status;
}
// The number up to the first space (or the end). DATA_LOSS: not a number.
absl::StatusOr<int64_t> ParseNumber(std::string_view text);
// Removes "SIZE:bytes" from the front of `text` and returns the bytes.
absl::StatusOr<std::string> TakeSized(std::string_view& text);

std::string PausedText(int64_t filtered);
// uid of the success that a record names; "" if it names none.
std::string ReplayOf(const SampleRecord& record, std::string_view job);
// Why a lease reply has no more groups, from the numbers of lease_prompts.lua.
struct LeaseReason {
  std::string text;
  PolicyVersion committed;
  PolicyVersion engine;  // of the requesting engine
};
absl::StatusOr<LeaseReason> ParseLeaseReason(std::string_view reason,
                                             const RedisStoreConfig& config);

// Converts an edge of steps.lua. Formats engine notes with ParseLeaseReason.
absl::StatusOr<Explanation> EdgeText(const RedisReply& edge, const RedisStoreConfig& config);

// Counters from stats.lua.
absl::StatusOr<StoreStats> ParseStats(const RedisReply& counters, const RedisReply& reasons,
                                      const RedisReply& skipped_reasons);

// Prompts that have ended, given the live ordinals.
PromptCursor CursorOf(int64_t high_water, std::vector<int64_t> live, const PromptCursor& origin);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_RECORDS_H_
