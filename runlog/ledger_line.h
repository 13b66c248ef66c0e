#ifndef FRESHET_RUNLOG_LEDGER_LINE_H_
#define FRESHET_RUNLOG_LEDGER_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

// One line of ledger.jsonl, parsed independently: only from the documented keys, without code
// shared with the store.
struct LedgerLine {
  enum class Event { kOpen, kResumed, kDurable, kTrained, kFiltered, kDropped, kRequeued, kDead };
  struct Span {
    int64_t lineage = 0;
    int64_t version = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  Event event = Event::kOpen;
  std::optional<int64_t> seq;  // always present in sample rows
  std::optional<int64_t> epoch;
  int64_t lineage = 0;
  // open
  std::string job;
  int64_t bound = 0;
  std::string disposition;
  int64_t groups_per_step = 0;
  int64_t group_size = 0;
  int64_t min_group_size = 0;  // 0: every group has group_size samples
  int64_t replay_max_age = 0;  // 0: the job replays nothing
  // resumed
  int64_t parent_lineage = 0;
  std::optional<int64_t> fork_version;  // set if the resume is a fork
  // durable
  int64_t version = 0;
  // resumed, durable
  std::string checkpoint_sha256;
  std::string digest;
  // sample rows
  int64_t step = 0;
  int64_t train_version = 0;
  std::string uid;
  int64_t prompt = 0;
  int64_t attempt = 0;
  int64_t sample = 0;
  int64_t samples = 0;    // of the group, if fewer than group_size; otherwise 0
  std::string replay_of;  // uid of the success that it is a copy of; empty: not replayed
  bool redo = false;
  int64_t loss_tokens = 0;
  int64_t masked_tokens = 0;
  std::vector<Span> spans;
  std::vector<int64_t> segments;  // first tokens; empty: one segment
  int64_t min_version = 0;
  int64_t max_version = 0;
  std::string reason;

  bool IsSample() const { return event >= Event::kTrained; }
};

// INVALID_ARGUMENT: a key is missing, or has a wrong type or range; the message names it.
absl::StatusOr<LedgerLine> ParseLedgerLine(std::string_view line);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LEDGER_LINE_H_
