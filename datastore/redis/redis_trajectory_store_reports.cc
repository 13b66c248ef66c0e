// The controller's operations: sweeping, reports, the ledger.
#include <algorithm>
#include <utility>

#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// Entries of the trash that one script deletes, and slices of one Sweep. A group of 16 has about 17
// keys: a slice stays under a millisecond.
constexpr int64_t kCollectEntries = 64;
constexpr int kCollectSlices = 100;
// Ledger entries of one page: each is a group with a few hundred bytes per sample.
constexpr int64_t kLedgerPage = 512;

}  // namespace

absl::StatusOr<int64_t> RedisTrajectoryStore::Sweep() {
  FRESHET_ASSIGN_OR_RETURN(const Answer swept, Run(trajectory_scripts::kSweep, {}));
  FRESHET_RETURN_IF_ERROR(swept.Expect(1));
  for (int i = 0; i < kCollectSlices; ++i) {
    FRESHET_ASSIGN_OR_RETURN(const Answer collected,
                             Run(trajectory_scripts::kCollect, {StrCat(kCollectEntries)}));
    FRESHET_RETURN_IF_ERROR(collected.Expect(1));
    if (collected.values[0].integer < kCollectEntries) break;
  }
  return swept.values[0].integer;
}

absl::StatusOr<StoreStats> RedisTrajectoryStore::Stats() {
  FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(trajectory_scripts::kStats, {}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(2));
  return ParseStats(answer.values[0], answer.values[1]);
}

absl::StatusOr<Explanation> RedisTrajectoryStore::Explain() {
  FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(trajectory_scripts::kExplain, {}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  return EdgeText(answer.values[0], config_);
}

absl::StatusOr<PromptCursor> RedisTrajectoryStore::Cursor() {
  FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(trajectory_scripts::kCursor, {}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(5));
  std::string_view high_water_text = answer.values[0].text;
  FRESHET_ASSIGN_OR_RETURN(const int64_t high_water, TakeNumber(high_water_text, ' '));
  std::vector<int64_t> live;
  for (size_t i = 1; i < answer.values.size(); ++i) {
    for (const RedisReply& ordinal : answer.values[i].items) {
      std::string_view text = ordinal.text;
      FRESHET_ASSIGN_OR_RETURN(live.emplace_back(), TakeNumber(text, ' '));
    }
  }
  return CursorOf(high_water, std::move(live), config_.origin.cursor);
}

absl::StatusOr<std::vector<LedgerRow>> RedisTrajectoryStore::ReadLedger(int64_t after_seq,
                                                                        int64_t max_rows) {
  if (after_seq < 0 || max_rows < 0) {
    return InvalidArgument("ledger read after ", after_seq, " of ", max_rows,
                           " rows: neither may be negative");
  }
  std::vector<LedgerRow> rows;
  while (static_cast<int64_t>(rows.size()) < max_rows) {
    const int64_t entries = std::min(kLedgerPage, max_rows - static_cast<int64_t>(rows.size()));
    FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(trajectory_scripts::kReadLedger,
                                                      {StrCat(after_seq), StrCat(entries)}));
    FRESHET_RETURN_IF_ERROR(answer.Expect(2));
    std::string_view after_text = answer.values[0].text;
    FRESHET_ASSIGN_OR_RETURN(const int64_t after, TakeNumber(after_text, ' '));
    const size_t before = rows.size();
    for (const RedisReply& entry : answer.values[1].items) {
      FRESHET_ASSIGN_OR_RETURN(std::vector<LedgerRow> expanded, ExpandLedgerEntry(entry, config_));
      for (LedgerRow& row : expanded) {
        const bool wanted = row.seq > after && static_cast<int64_t>(rows.size()) < max_rows;
        if (wanted) rows.push_back(std::move(row));
      }
    }
    if (rows.size() == before) break;
    after_seq = rows.back().seq;
  }
  return rows;
}

absl::Status RedisTrajectoryStore::TrimLedger(int64_t upto_seq) {
  return Run(trajectory_scripts::kTrimLedger, {StrCat(upto_seq)}).status();
}

absl::StatusOr<std::vector<DeadLetter>> RedisTrajectoryStore::DeadLetters(int64_t max_letters) {
  if (max_letters < 1) {
    return InvalidArgument("max_letters: ", max_letters, " is too small: use at least 1");
  }
  FRESHET_ASSIGN_OR_RETURN(
      const RedisReply reply,
      client_->Command({"LRANGE", StrCat(prefix_, "dead"), "0", StrCat(max_letters - 1)}));
  std::vector<DeadLetter> letters;
  for (const RedisReply& entry : reply.items) {
    std::string_view text = entry.text;
    DeadLetter letter;
    FRESHET_ASSIGN_OR_RETURN(const int64_t micros, TakeNumber(text, ' '));
    FRESHET_ASSIGN_OR_RETURN(letter.ordinal, TakeNumber(text, ' '));
    FRESHET_ASSIGN_OR_RETURN(const int64_t attempt, TakeNumber(text, ' '));
    letter.time = absl::FromUnixMicros(micros);
    letter.attempt = static_cast<int32_t>(attempt);
    letter.reason = std::string(text);
    letters.push_back(std::move(letter));
  }
  return letters;
}

}  // namespace freshet
