#ifndef FRESHET_SERVICES_RUNTIME_STATS_BY_JOB_H_
#define FRESHET_SERVICES_RUNTIME_STATS_BY_JOB_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace freshet::metrics {

// Stats of a process's works, by job. A work's counters start at 0; those of the job continue
// across successive works. `Stats` has
//   void Add(const Stats& other);  // counters and gauges
//   void ClearGauges();            // after the work
// Thread-safe.
template <typename Stats>
class StatsByJob {
 public:
  using Read = std::function<Stats()>;

  // `kept`: number of jobs without a work whose stats are kept; the first to end are dropped first.
  explicit StatsByJob(size_t kept) : kept_(kept) {}

  // Registers a work on `job`. `read` is called until End, which reads a last time.
  int64_t Begin(const std::string& job, Read read) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::erase(ended_, job);
    works_[++last_id_] = {job, std::move(read)};
    past_[job];
    return last_id_;
  }

  void End(int64_t id) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const auto found = works_.find(id);
    if (found == works_.end()) return;
    const std::string job = found->second.job;
    Stats last = found->second.read();
    last.ClearGauges();
    past_[job].Add(last);
    works_.erase(found);
    for (const auto& [other, work] : works_) {
      if (work.job == job) return;
    }
    ended_.push_back(job);
    if (ended_.size() <= kept_) return;
    past_.erase(ended_.front());
    ended_.pop_front();
  }

  // Stats of every active job and of the last ended ones.
  std::map<std::string, Stats> Take() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::map<std::string, Stats> all = past_;
    for (const auto& [id, work] : works_) all[work.job].Add(work.read());
    return all;
  }

 private:
  struct Work {
    std::string job;
    Read read;
  };

  const size_t kept_;
  mutable Mutex mu_;
  int64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, Work> works_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Stats> past_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::metrics

#endif  // FRESHET_SERVICES_RUNTIME_STATS_BY_JOB_H_
