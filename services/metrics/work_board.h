#ifndef FRESHET_SERVICES_METRICS_WORK_BOARD_H_
#define FRESHET_SERVICES_METRICS_WORK_BOARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "services/base/mutex.h"

namespace freshet::metrics {

// Figures of the works of a process, by job. A work's counters begin at 0; those of the board go on
// when one work on a job follows another. `Figures` has
//   void Add(const Figures& other);  // counters and gauges
//   void Rest();                     // after the work: gauges become 0
// Thread-safe.
template <typename Figures>
class WorkBoard {
 public:
  using Read = std::function<Figures()>;

  // `kept`: jobs without a work whose figures are kept; those that ended first go first.
  explicit WorkBoard(size_t kept) : kept_(kept) {}

  // A work on `job` begins. `read` is called until End, which reads a last time.
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
    Figures last = found->second.read();
    last.Rest();
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

  // Of every job that is worked on, and of the last ones that were.
  std::map<std::string, Figures> Take() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::map<std::string, Figures> all = past_;
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
  std::map<std::string, Figures> past_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::metrics

#endif  // FRESHET_SERVICES_METRICS_WORK_BOARD_H_
