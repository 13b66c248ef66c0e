#ifndef FRESHET_DATASTORE_MEMORY_SUCCESS_POOL_H_
#define FRESHET_DATASTORE_MEMORY_SUCCESS_POOL_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "datastore/curation_policy.h"
#include "datastore/curation_state.h"

namespace freshet {

// The job's pool of rare successes, one per prompt (TrajectoryStore). Confined to one thread at a
// time.
class SuccessPool {
 public:
  // Null if the prompt has none. Valid until the next Add.
  const PooledSuccess* Find(const std::string& prompt) const;
  // Adds a success, unless the prompt has one with a newer oldest version. Then removes those
  // beyond the age limit at the committed `version`, and the oldest ones beyond the capacity.
  void Add(const std::string& prompt, PooledSuccess success, const ReplayOptions& options,
           int64_t version);
  int64_t size() const { return static_cast<int64_t>(by_prompt_.size()); }
  // The newest successes, by prompt, whose tokens and log-probs take at most `max_bytes`. One that
  // takes more than is left is skipped.
  std::map<std::string, PooledSuccess> Newest(int64_t max_bytes) const;

 private:
  std::map<std::string, PooledSuccess> by_prompt_;
  std::set<std::pair<int64_t, std::string>> oldest_;  // (oldest version, prompt)
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_SUCCESS_POOL_H_
