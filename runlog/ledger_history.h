#ifndef FRESHET_RUNLOG_LEDGER_HISTORY_H_
#define FRESHET_RUNLOG_LEDGER_HISTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runlog/ledger_line.h"
#include "runlog/violations.h"

namespace freshet {

// Training history rebuilt from ledger lines: the tree of lineages, the digest chain of each, and
// every promise that can be decided from the rows. Feed all lines in order, then call Finish once.
// Confined to one thread at a time.
class LedgerHistory {
 public:
  // What the surviving history and the whole ledger hold.
  struct Counts {
    int64_t rows = 0;
    int64_t steps = 0;            // surviving training steps
    int64_t trained_samples = 0;  // surviving
    int64_t trained_tokens = 0;   // surviving, bearing loss
    int64_t masked_tokens = 0;    // surviving
    int64_t orphaned_samples = 0;
    int64_t redo_rows = 0;
    std::map<std::string, int64_t> dropped;  // by reason
    int64_t filtered = 0;
    int64_t requeued = 0;
    int64_t dead = 0;
    int64_t max_staleness = 0;  // surviving
    int64_t resumes = 0;
    int64_t durable_versions = 0;
    int64_t lineage = 0;      // of the surviving history
    int64_t divergences = 0;  // redos that gave other weights, and so a new lineage
  };

  explicit LedgerHistory(Violations& violations) : violations_(violations) {}

  void Add(int64_t line_number, const LedgerLine& line);

  // Checks what needs the whole ledger. `torn`: the file ended inside a line, so that rows of the
  // last step may be missing.
  void Finish(bool torn);

  // Digest of the trained uids that a checkpoint of (lineage, version) stands for; empty when that
  // lineage never reached the version.
  std::string DigestAt(int64_t lineage, int64_t version) const;

  // SHA-256 of the manifest last said durable for exactly (lineage, version); null when none was.
  const std::string* DurableSha256(int64_t lineage, int64_t version) const;

  const std::optional<LedgerLine>& open() const { return open_; }
  const Counts& counts() const { return counts_; }
  // The last surviving step when it lacks rows and the file is torn.
  std::optional<int64_t> incomplete_step() const { return incomplete_step_; }

 private:
  // One lineage: what it inherited, and the digest after each version that it reached.
  struct Branch {
    std::optional<int64_t> parent;
    int64_t fork_version = 0;  // versions above it are not inherited
    // Set when a redo made the lineage: what it inherits stays trained and trainable up to
    // fork_version, but its weights come from versions up to this one.
    std::optional<int64_t> diverged_from;
    int64_t epoch = 0;         // of that redo
    int64_t last_version = 0;  // highest version reached
    std::string digest;
    std::map<int64_t, std::string> digest_after;
  };
  struct TrainedRow {
    int64_t line_number;
    int64_t lineage;
    int64_t train_version;
    std::string uid;
    int64_t prompt;
    int64_t sample;
    int64_t loss_tokens;
    int64_t masked_tokens;
    int64_t staleness;
    bool redo;
  };
  struct EndedRow {
    int64_t line_number;
    int64_t lineage;
    int64_t train_version;
    std::string uid;
  };
  struct StepTally;
  // A lineage that a redo made must redo every step up to the newest one before it trains the next.
  struct PendingRedo {
    int64_t epoch = 0;
    int64_t step = 0;            // being redone
    int64_t first = 0;           // where another epoch begins at the latest
    std::set<std::string> uids;  // redone of `step`
  };

  void AddOpen(int64_t line_number, const LedgerLine& line);
  void AddResumed(int64_t line_number, const LedgerLine& line);
  void AddDurable(int64_t line_number, const LedgerLine& line);
  void AddSample(int64_t line_number, const LedgerLine& line);
  void AddTrained(int64_t line_number, const LedgerLine& line);
  // ledger_redo.cc
  // Whether the row begins a lineage by redoing a step with other weights; then it is begun.
  bool Diverges(int64_t line_number, const LedgerLine& line);
  void AddRedo(int64_t line_number, const LedgerLine& line);
  // `what` does not happen before a redo that began a lineage is done.
  void CheckRedone(int64_t line_number, const std::string& what);
  // Whether the current lineage is, or comes from, this version, with redos alone between them.
  bool ComesFrom(int64_t lineage, int64_t version) const;
  void CheckOrder(int64_t line_number, const LedgerLine& line);
  void CheckSpans(int64_t line_number, const LedgerLine& line);
  void CheckAge(int64_t line_number, const LedgerLine& line);
  void CheckResumedDigest(int64_t line_number, const LedgerLine& line, const Branch& parent);
  void CheckResumedSha256(int64_t line_number, const LedgerLine& line);
  std::map<int64_t, StepTally> TallySteps();
  void CheckSteps(const std::map<int64_t, StepTally>& steps, bool torn);
  void CheckEnded();

  // The lineage's branch; the first lineage of the ledger becomes the root. Null when the lineage
  // was never opened by a resume.
  Branch* FindBranch(int64_t lineage);
  // Highest version of `ancestor` that belongs to the history of `lineage`; null when it is none.
  std::optional<int64_t> VisibleVersion(int64_t lineage, int64_t ancestor) const;
  // Highest version of `ancestor` whose weights those of `lineage` come from; null as above.
  std::optional<int64_t> AncestorVersion(int64_t lineage, int64_t ancestor) const;
  bool Survives(int64_t lineage, int64_t train_version) const;

  Violations& violations_;
  Counts counts_;
  std::optional<LedgerLine> open_;
  std::optional<int64_t> last_seq_;
  std::optional<int64_t> last_epoch_;
  int64_t current_lineage_ = 0;
  std::optional<PendingRedo> pending_;
  std::map<int64_t, Branch> branches_;
  std::map<std::pair<int64_t, int64_t>, std::string> durable_;
  std::vector<TrainedRow> trained_;
  std::vector<EndedRow> ended_;
  std::optional<int64_t> incomplete_step_;
};

}  // namespace freshet

#endif  // FRESHET_RUNLOG_LEDGER_HISTORY_H_
