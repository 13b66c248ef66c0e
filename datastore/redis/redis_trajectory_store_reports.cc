// Operations of the controller: sweep, reports, ledger.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/ledger_segment.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

// Trash entries per script, and scripts per Sweep. A group of 16 has about 17 keys; a script takes
// under a millisecond.
constexpr int64_t kCollectEntries = 64;
constexpr int kCollectSlices = 100;
// Ledger entries per page: each is a group with a few hundred bytes per sample.
constexpr int64_t kLedgerPage = 512;
constexpr int kPackSlices = 16;  // segments per Sweep

// Number of the first row of a stream entry.
absl::StatusOr<int64_t> FirstRowOf(const RedisReply& entry) {
  if (entry.items.empty()) return DataLoss("ledger entry: not an entry of a stream");
  std::string_view id = entry.items[0].text;
  return TakeNumber(id, '-');
}

}  // namespace

absl::StatusOr<int64_t> RedisTrajectoryStore::Sweep() {
  FRESHET_ASSIGN_OR_RETURN(const Answer swept, Run(trajectory_scripts::kSweep, {}));
  FRESHET_RETURN_IF_ERROR(swept.Expect(3));
  const absl::Status packed = PackLedger(swept.values[1].integer, swept.values[2].integer);
  // Rows that cannot be packed stay as they are; ReadLedger reports the error.
  if (!absl::IsDataLoss(packed) && !absl::IsResourceExhausted(packed)) {
    FRESHET_RETURN_IF_ERROR(packed);
  }
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
    const size_t left = static_cast<size_t>(max_rows) - rows.size();
    FRESHET_ASSIGN_OR_RETURN(
        const LedgerPage page,
        ReadLedgerPage(after_seq, std::min(kLedgerPage, static_cast<int64_t>(left))));
    const size_t before = rows.size();
    for (size_t i = 0; i < page.entries.size() && rows.size() - before < left; ++i) {
      if (i + 1 < page.entries.size()) {
        FRESHET_ASSIGN_OR_RETURN(const int64_t next, FirstRowOf(page.entries[i + 1]));
        if (next <= page.after + 1) continue;
      }
      FRESHET_ASSIGN_OR_RETURN(std::vector<LedgerRow> expanded,
                               ExpandLedgerEntry(page.entries[i], config_));
      std::copy_if(std::make_move_iterator(expanded.begin()),
                   std::make_move_iterator(expanded.end()), std::back_inserter(rows),
                   [&page](const LedgerRow& row) { return row.seq > page.after; });
    }
    if (rows.size() == before) {
      if (page.packed) return DataLoss("ledger: the segment of row ", page.after + 1, " is gone");
      break;
    }
    rows.resize(std::min(rows.size(), before + left));
    after_seq = rows.back().seq;
  }
  return rows;
}

absl::StatusOr<RedisTrajectoryStore::LedgerPage> RedisTrajectoryStore::ReadLedgerPage(
    int64_t after_seq, int64_t max_entries) {
  FRESHET_ASSIGN_OR_RETURN(Answer answer, Run(trajectory_scripts::kReadLedger,
                                              {StrCat(after_seq), StrCat(max_entries)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(3));
  LedgerPage page;
  std::string_view after = answer.values[0].text;
  FRESHET_ASSIGN_OR_RETURN(page.after, TakeNumber(after, ' '));
  page.packed = !answer.values[1].text.empty();
  if (page.packed) {
    FRESHET_ASSIGN_OR_RETURN(page.entries, UnpackLedgerSegment(answer.values[1].text));
  } else {
    page.entries = std::move(answer.values[2].items);
  }
  return page;
}

absl::Status RedisTrajectoryStore::PackLedger(int64_t after, int64_t newest) {
  const int64_t wanted = settings_.ledger_segment_rows;
  for (int i = 0; i < kPackSlices && newest - after >= wanted; ++i) {
    std::vector<RedisReply> entries;
    int64_t last = after;
    while (last - after < wanted) {
      const int64_t left = wanted - (last - after);
      const int64_t groups = (left + options().group_size - 1) / options().group_size;
      FRESHET_ASSIGN_OR_RETURN(LedgerPage page,
                               ReadLedgerPage(last, std::min(groups, kLedgerPage)));
      // Another caller has packed or trimmed them.
      if (page.packed || page.entries.empty()) return absl::OkStatus();
      // Do not pack a damaged entry: in a segment it would hide the entries after it.
      for (const RedisReply& entry : page.entries) {
        FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> rows,
                                 ExpandLedgerEntry(entry, config_));
        const bool first = last == after;
        if (first ? rows.front().seq > last + 1 : rows.front().seq != last + 1) {
          return DataLoss("ledger: row ", last + 1, " is missing");
        }
        last = std::max(last, rows.back().seq);
      }
      std::move(page.entries.begin(), page.entries.end(), std::back_inserter(entries));
    }
    FRESHET_ASSIGN_OR_RETURN(const std::string segment, PackLedgerSegment(entries));
    FRESHET_RETURN_IF_ERROR(
        Run(trajectory_scripts::kPackLedger, {StrCat(after), StrCat(last), segment}).status());
    after = last;
  }
  return absl::OkStatus();
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
