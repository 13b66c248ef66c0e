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
  // The weights of a remembered step were made anew.
  void SetContentHash(int64_t step, const std::string& content_hash);
  int64_t version() const { return version_; }
  // Digest of `version`; nothing for one that is not remembered.
  std::optional<std::string> Digest(int64_t version) const;
  // Steps after it can be redone.
  int64_t first_version() const { return digests_.begin()->first; }

  enum class Durability { kNone, kLoaded, kRecorded };
  Durability durability(int64_t version) const;
  // The newest version that ever was durable; the first version before any was.
  int64_t newest_durable() const { return newest_durable_; }
  void SetDurable(int64_t version, Durability durability);
  // Versions from this one on are not durable any more.
  void ForgetDurable(int64_t version) {
    durable_.erase(durable_.lower_bound(version), durable_.end());
  }
  // Forgets the steps that the second-newest durable version holds; returns them.
  std::vector<CommittedStep> Forget();

 private:
  int64_t version_;
  int64_t newest_durable_;
  std::map<int64_t, CommittedStep> steps_;
  std::map<int64_t, std::string> digests_;  // by version, from the oldest one remembered
  std::map<int64_t, Durability> durable_;   // by version
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_STEP_JOURNAL_H_
