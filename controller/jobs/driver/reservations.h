#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_RESERVATIONS_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_RESERVATIONS_H_

#include <map>
#include <set>
#include <string>

#include "base/mutex.h"

namespace freshet {

// Which job holds which trainer and rollout pool; one job each. Thread-safe.
class Reservations {
 public:
  static std::string Trainer(const std::string& name) { return "trainer/" + name; }
  static std::string Pool(const std::string& name) { return "pool/" + name; }

  // Returns false if another job holds it. Idempotent.
  bool Reserve(const std::string& what, const std::string& job) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return holders_.emplace(what, job).first->second == job;
  }
  // "" if it is free.
  std::string HolderOf(const std::string& what) const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const auto found = holders_.find(what);
    return found == holders_.end() ? "" : found->second;
  }
  // Frees the trainers that `job` holds, except `name`.
  void ReleaseOtherTrainers(const std::string& job, const std::string& name)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::erase_if(holders_, [&job, kept = Trainer(name)](const auto& entry) {
      return entry.second == job && entry.first.starts_with(Trainer("")) && entry.first != kept;
    });
  }
  // Frees everything held by jobs that are not in `jobs`.
  void ReleaseAllBut(const std::set<std::string>& jobs) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::erase_if(holders_, [&jobs](const auto& entry) { return !jobs.contains(entry.second); });
  }
  void Release(const std::string& job) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::erase_if(holders_, [&job](const auto& entry) { return entry.second == job; });
  }

 private:
  mutable Mutex mu_;
  std::map<std::string, std::string> holders_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_RESERVATIONS_H_
