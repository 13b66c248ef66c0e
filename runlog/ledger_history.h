#ifndef FRESHET_RUNLOG_LEDGER_HISTORY_H_
#define FRESHET_RUNLOG_LEDGER_HISTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "runlog/ledger_line.h"
#include "runlog/lineage_tree.h"
#include "runlog/violations.h"

namespace freshet {

// Training history rebuilt from ledger lines: the tree of lineages, each lineage's digest chain,
// and all guarantees that the rows can prove. Add all lines in order, then call Finish once.
// Confined to one thread at a time.
class LedgerHistory {
 public:
  // Totals of the surviving history and the whole ledger.
  struct Counts {
    int64_t rows = 0;
    int64_t steps = 0;            // surviving training steps
    int64_t trained_samples = 0;  // surviving
    int64_t trained_tokens = 0;   // surviving, loss-bearing
    int64_t masked_tokens = 0;    // surviving
    int64_t orphaned_samples = 0;
    int64_t redo_rows = 0;
    std::map<std::string, int64_t> dropped;  // by reason
    int64_t filtered = 0;
    int64_t requeued = 0;
    int64_t dead = 0;
    int64_t max_staleness = 0;     // surviving, without replayed samples
    int64_t replayed_samples = 0;  // surviving, part of trained_samples
    int64_t max_replay_age = 0;    // surviving
    // Surviving replayed samples whose success has no row yet: its group had not ended.
    int64_t replays_of_unknown = 0;
    int64_t resumes = 0;
    int64_t durable_versions = 0;
    int64_t lineage = 0;      // of the surviving history
    int64_t divergences = 0;  // redos with different weights, each starting a new lineage
  };

  explicit LedgerHistory(Violations& violations) : violations_(violations) {}

  void Add(int64_t line_number, const LedgerLine& line);

  // Runs the checks that need the whole ledger. `torn`: the file ended inside a line, so rows of
  // the last step may be missing.
  void Finish(bool torn);

  const LineageTree& lineages() const { return lineages_; }

  // Manifest SHA-256 in the last durable row of exactly (lineage, version); null if there is none.
  const std::string* DurableSha256(int64_t lineage, int64_t version) const;

  const std::optional<LedgerLine>& open() const { return open_; }
  const Counts& counts() const { return counts_; }
  // The last surviving step, if it lacks rows and the file is torn.
  std::optional<int64_t> incomplete_step() const { return incomplete_step_; }

 private:
  using Branch = LineageTree::Branch;
  struct TrainedRow {
    int64_t line_number;
    int64_t lineage;
    int64_t train_version;
    std::string uid;
    int64_t prompt;
    int64_t sample;
    int64_t group_size;
    int64_t loss_tokens;
    int64_t masked_tokens;
    int64_t staleness;
    bool redo;
    bool replayed;
  };
  // A replayed sample, and the tokens that the row of its success must have too.
  struct ReplayRow {
    int64_t line_number;
    int64_t lineage;
    int64_t train_version;
    std::string replay_of;
    std::string spans;
  };
  struct EndedRow {
    int64_t line_number;
    int64_t lineage;
    int64_t train_version;
    std::string uid;
  };
  struct StepTally;
  // A lineage created by a redo must redo all steps up to the newest before it trains the next one.
  struct PendingRedo {
    int64_t epoch = 0;
    int64_t step = 0;                       // being redone
    int64_t first = 0;                      // latest step at which another epoch may start
    std::set<std::string> uids;             // of `step`, redone so far
    std::map<int64_t, int64_t> sizes = {};  // of its groups seen so far, by prompt
  };

  // Adds a violation of the row at line_number_.
  template <typename... Args>
  void Report(const Args&... args) {
    violations_.Add("line ", line_number_, ": ", args...);
  }
  void AddOpen(const LedgerLine& line);
  void AddResumed(const LedgerLine& line);
  void AddDurable(const LedgerLine& line);
  void AddSample(const LedgerLine& line);
  void AddTrained(const LedgerLine& line);
  // Whether the row starts a lineage by redoing a step with different weights; if so, starts it.
  bool Diverges(const LedgerLine& line);
  void AddRedo(const LedgerLine& line);
  // Violation unless a redo that started a lineage is complete before `what`.
  void CheckRedone(const std::string& what);
  void CheckOrder(const LedgerLine& line);
  // Checks a row's index, and what a replayed sample's row says about its success.
  void CheckSampleIndex(const LedgerLine& line);
  void CheckGroupSize(const LedgerLine& line);
  int64_t GroupSizeOf(const LedgerLine& line) const;
  // Rows of a step whose groups have these sizes, by prompt; groups that are not seen yet have G.
  int64_t RowsOfStep(const std::map<int64_t, int64_t>& sizes) const;
  void CheckResumedDigest(const LedgerLine& line, const Branch& parent);
  void CheckResumedSha256(const LedgerLine& line);
  std::map<int64_t, StepTally> TallySteps();
  void CheckSteps(const std::map<int64_t, StepTally>& steps, bool torn);
  void CheckEnded();
  void CheckReplays();

  Violations& violations_;
  int64_t line_number_ = 0;  // of the row being checked
  Counts counts_;
  std::optional<LedgerLine> open_;
  std::optional<int64_t> last_seq_;
  std::optional<int64_t> last_epoch_;
  LineageTree lineages_;
  std::optional<PendingRedo> pending_;
  std::map<std::pair<int64_t, int64_t>, std::string> durable_;
  std::vector<TrainedRow> trained_;
  std::vector<EndedRow> ended_;
  std::vector<ReplayRow> replays_;
  // Spans of each sample by uid, if the job replays samples.
  std::unordered_map<std::string, std::string> spans_of_;
  std::optional<int64_t> incomplete_step_;
};

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LEDGER_HISTORY_H_
