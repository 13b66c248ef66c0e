#ifndef FRESHET_RUNLOG_LEDGER_VERIFIER_H_
#define FRESHET_RUNLOG_LEDGER_VERIFIER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runlog/ledger_history.h"

namespace freshet {

// Result of verifying a run's ledger.
struct VerifyReport {
  bool ok = false;  // no violations
  int64_t num_violations = 0;
  std::vector<std::string> violations;  // the first ones, one line each
  std::vector<std::string> notes;       // remarks that are not errors, such as a torn last line
  std::string job;
  int64_t bound = 0;
  int64_t replay_max_age = 0;  // 0: the job replays nothing
  std::string disposition;
  int64_t groups_per_step = 0;
  int64_t group_size = 0;
  int64_t min_group_size = 0;  // 0: every group has group_size samples
  LedgerHistory::Counts counts;
  int64_t checkpoints = 0;       // on disk and checked
  int64_t checkpoint_files = 0;  // with recomputed size and SHA-256
};

// Verifies all guarantees of a run from ledger.jsonl alone, and compares it with job.yaml (if
// present) and the checkpoints on disk. Shares no code with the store, so that a bug there cannot
// hide itself. Checks for the history that survives all forks:
//   - steps 1..N, each of exactly B distinct prompts with exactly G samples or, with adaptive
//     rollouts, as many as their rows say, from min_G on;
//   - no sample or prompt is trained twice, or both trained and dropped;
//   - no token is older than the staleness bound, newer than the version that trains on it, or of
//     an orphaned version; a replayed sample has a bound and a uid of its own, and the spans of the
//     sample that it is a copy of;
//   - the digest chain matches every durable row, resumed row and checkpoint, and the checkpoints'
//     manifests and files match their SHA-256.
// Reads all files of all checkpoints. NOT_FOUND: no ledger. Any other problem inside the folder is
// reported as a violation.
absl::StatusOr<VerifyReport> VerifyRun(const std::string& run_dir);

// Report for users: counts, notes, violations and the verdict.
std::string FormatVerifyReport(const VerifyReport& report);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LEDGER_VERIFIER_H_
