#ifndef FRESHET_RUNLOG_LEDGER_VERIFIER_H_
#define FRESHET_RUNLOG_LEDGER_VERIFIER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runlog/ledger_history.h"

namespace freshet {

// What a run's ledger proves.
struct VerifyReport {
  bool ok = false;  // no violation
  int64_t num_violations = 0;
  std::vector<std::string> violations;  // the first ones; one line each
  std::vector<std::string> notes;       // remarkable, no fault: a torn last line and the like
  std::string job;
  int64_t bound = 0;
  std::string disposition;
  int64_t groups_per_step = 0;
  int64_t group_size = 0;
  LedgerHistory::Counts counts;
  int64_t checkpoints = 0;       // on disk, checked
  int64_t checkpoint_files = 0;  // whose size and SHA-256 were recomputed
};

// Recomputes every promise of a run from ledger.jsonl alone, and compares it with job.yaml (when
// there) and with the checkpoints on disk. Shares no code with the store, so that a fault there
// cannot hide itself. In the history that survives all forks:
//   - steps 1..N, each of exactly B distinct prompts with exactly G samples;
//   - no sample and no prompt trained twice, none both trained and dropped;
//   - no token older than the staleness bound, none newer than the version that trains on it, none
//     of an orphaned version;
//   - the digest chain agrees with every durable row, resumed row and checkpoint, and checkpoints'
//     manifests and files with their SHA-256.
// Reads all files of all checkpoints. Returns NOT_FOUND when there is no ledger; anything wrong
// inside the folder is a violation in the report.
absl::StatusOr<VerifyReport> VerifyRun(const std::string& run_dir);

// Lines for a person: counts first, then notes, violations and the verdict.
std::string FormatVerifyReport(const VerifyReport& report);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LEDGER_VERIFIER_H_
