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
  std::vector<int64_t> ordinals;  // sorted; this is the training order
  std::vector<std::string> uids;  // by ordinal, then sample
  std::string content_hash;
  std::string digest;  // over all surviving trained uids, including this step
};

// The remembered committed steps, and which versions are durable. Confined to one thread at a time.
class StepJournal {
 public:
  // Starts at `version`; `digest` covers what was trained before.
  StepJournal(int64_t version, std::string digest);

  void Append(CommittedStep step);  // requires step == version() + 1
  const CommittedStep* Find(int64_t step) const;
  // Replaces the weights hash of a remembered step.
  void SetContentHash(int64_t step, const std::string& content_hash);
  int64_t version() const { return version_; }
  // Digest of `version`; nullopt if not remembered.
  std::optional<std::string> Digest(int64_t version) const;
  // Oldest version after which steps can be redone.
  int64_t first_version() const { return digests_.begin()->first; }

  enum class Durability { kNone, kLoaded, kRecorded };
  Durability durability(int64_t version) const;
  // The newest version that was ever durable, initially the first version.
  int64_t newest_durable() const { return newest_durable_; }
  void SetDurable(int64_t version, Durability durability);
  // Versions from this one on are no longer durable.
  void ForgetDurable(int64_t version) {
    durable_.erase(durable_.lower_bound(version), durable_.end());
  }
  // Removes and returns the steps contained in the second-newest durable version.
  std::vector<CommittedStep> Forget();

 private:
  int64_t version_;
  int64_t newest_durable_;
  std::map<int64_t, CommittedStep> steps_;
  std::map<int64_t, std::string> digests_;  // by version, from the oldest remembered one
  std::map<int64_t, Durability> durable_;   // by version
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_STEP_JOURNAL_H_
