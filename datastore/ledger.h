#ifndef FRESHET_DATASTORE_LEDGER_H_
#define FRESHET_DATASTORE_LEDGER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/trajectory.h"

namespace freshet {

enum class LedgerEvent {
  kOpen,
  kResumed,
  kDurable,
  kTrained,
  kFiltered,
  kDropped,
  kRequeued,
  kDead
};
const char* Name(LedgerEvent event);
// Inverse of Name; nullopt for another name.
std::optional<LedgerEvent> ParseLedgerEvent(std::string_view name);

// One row of the append-only ledger. The fields depend on `event`:
//   open: job, bound, disposition, B, G, replay_max_age with a success pool, min_G with adaptive
//     rollouts
//   resumed: epoch, lineage, parent_lineage, fork_version, checkpoint_sha256, digest
//   durable: lineage, version, checkpoint_sha256, digest
//   trained | filtered | dropped | requeued | dead: one row per sample with tokens, at least one
//     per group. Except for redo rows, each uid appears once: a group requeued with kept tokens
//     keeps its uids and writes no row.
// A redo row whose lineage is one above that of the preceding rows starts that lineage: from its
// step on, the redo produced different weights (CommitStep in trajectory_store.h). A durable row
// has its version's lineage. In sample rows, `spans` cover the whole response, whose `segments` are
// as in Response (key absent: one segment); min_version and max_version cover only loss-bearing
// tokens (train_version if there are none).
struct LedgerRow {
  int64_t seq = 0;
  LedgerEvent event = LedgerEvent::kOpen;
  int64_t epoch = 0;
  int64_t lineage = 0;
  // open
  std::string job;
  int64_t bound = 0;
  std::string disposition;
  int64_t groups_per_step = 0;
  int64_t group_size = 0;
  int64_t min_group_size = 0;  // of adaptive rollouts; 0: all groups have G samples, key absent
  int64_t replay_max_age = 0;  // bound of replayed samples; 0: none are replayed, key absent
  // resumed
  int64_t parent_lineage = 0;
  int64_t fork_version = 0;  // version loaded by a fork; < 0: not a fork, key absent
  // resumed, durable
  int64_t version = 0;
  std::string checkpoint_sha256;
  std::string digest;
  // sample rows
  int64_t step = 0;
  int64_t train_version = 0;  // policy version at the start of the step
  std::string uid;
  int64_t prompt = 0;  // ordinal
  int32_t attempt = 0;
  int32_t sample = 0;     // 0..G-1; of a replayed sample G + the index that it replaced
  int32_t samples = 0;    // of a trained group with fewer than G samples; 0: G, key absent
  std::string replay_of;  // uid of the success that it is a copy of; "": not replayed, key absent
  bool redo = false;
  int64_t loss_tokens = 0;
  int64_t masked_tokens = 0;
  std::vector<Span> spans;
  std::vector<int32_t> segments;
  int64_t min_version = 0;
  int64_t max_version = 0;
  std::string reason;  // set unless `event` is trained
};

// One line of ledger.jsonl without the newline. Keys are in a fixed order.
std::string LedgerRowToJson(const LedgerRow& row);
// Inverse of LedgerRowToJson. Ignores unknown keys. INVALID_ARGUMENT: bad JSON, more than 1 MiB or
// 8 levels, a missing key, a wrong type, or a negative or overflowing number.
absl::StatusOr<LedgerRow> ParseLedgerRow(std::string_view line);

// Digest chain over trained uids: digest_0 = SHA-256 of "", digest_n = SHA-256(hex digest_{n-1} +
// uid_n), all in lower-case hex.
std::string InitialDigest();
std::string ExtendDigest(const std::string& digest, std::string_view uid);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_LEDGER_H_
