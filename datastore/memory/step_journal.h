#ifndef FRESHET_DATASTORE_MEMORY_STEP_JOURNAL_H_
#define FRESHET_DATASTORE_MEMORY_STEP_JOURNAL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace freshet {

struct CommittedStep {
  int64_t step = 0;
  std::vector<int64_t> ordinals;  // sorted: the training order
  std::vector<std::string> uids;  // by ordinal, then sample
  std::string content_hash;
  std::string digest;  // over all surviving trained uids, this step included
};

// The committed steps that are not forgotten, and which versions are durable.
// Confined to one thread at a time.
class StepJournal {
 public:
  // A history that begins at `version` with `digest` over what was trained before.
  StepJournal(int64_t version, std::string digest);

  void Append(CommittedStep step);  // step must be version() + 1
  const CommittedStep* Find(int64_t step) const;
  int64_t version() const { return version_; }
  // Digest of `version`; nothing for one that is not remembered.
  std::optional<std::string> Digest(int64_t version) const;
  // Steps after it can be redone.
  int64_t first_version() const { return digests_.begin()->first; }

  enum class Durability { kNone, kLoaded, kRecorded };
  Durability durability(int64_t version) const;
  // Newest durable version; the first version before any is.
  int64_t newest_durable() const;
  void SetDurable(int64_t version, Durability durability);
  // Forgets the steps that the second-newest durable version holds; returns them.
  std::vector<CommittedStep> Forget();

 private:
  int64_t version_;
  const int64_t origin_;
  std::map<int64_t, CommittedStep> steps_;
  std::map<int64_t, std::string> digests_;  // by version, from the oldest one remembered
  std::map<int64_t, Durability> durable_;   // by version
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_STEP_JOURNAL_H_
