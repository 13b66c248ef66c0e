#ifndef FRESHET_SERVICES_REWARD_SCORERS_JOB_SCORERS_H_
#define FRESHET_SERVICES_REWARD_SCORERS_JOB_SCORERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/reward/scorers/composite_scorer.h"

namespace freshet {

// The scorers of one job and how long one sample may take.
struct JobScorer {
  // Names the scorers in a cache. Another registration has another name, even of the same job: what
  // a service of the user's own answered in one is not taken for its answer in the next.
  std::string rule;
  absl::Duration timeout;
  std::shared_ptr<const CompositeScorer> scorer;
  int64_t parallel = 0;  // samples of one call that may be scored at once; 0: as many as ever
};

// The scorers of the jobs that this process works on, for calls that name a job. Thread-safe.
class JobScorers {
 public:
  // The scorers are found for as long as it lives. It must not outlive the JobScorers.
  class Registration {
   public:
    ~Registration() { scorers_.Remove(id_); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    friend class JobScorers;
    Registration(JobScorers& scorers, int64_t id) : scorers_(scorers), id_(id) {}
    JobScorers& scorers_;
    const int64_t id_;
  };

  std::unique_ptr<Registration> Add(const std::string& job, absl::Duration timeout,
                                    std::shared_ptr<const CompositeScorer> scorer,
                                    int64_t parallel = 0) ABSL_LOCKS_EXCLUDED(mu_);
  // Those that were added last for `job`, if they are still there.
  std::optional<JobScorer> Find(const std::string& job) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    std::string job;
    JobScorer scorer;
  };
  void Remove(int64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  mutable Mutex mu_;
  int64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, Entry> entries_ ABSL_GUARDED_BY(mu_);  // by registration
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_JOB_SCORERS_H_
