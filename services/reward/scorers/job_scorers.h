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

// The scorers of one job and the time limit per sample.
struct JobScorer {
  // Identifies the scorers in a cache. Every registration has its own name, even for the same job,
  // so that a user's service is asked again after a re-registration.
  std::string rule;
  absl::Duration timeout;
  std::shared_ptr<const CompositeScorer> scorer;
  int64_t parallel = 0;  // samples of one call that may be scored at once; 0: no limit of its own
};

// The scorers of the jobs that this process serves, for calls that name a job. Thread-safe.
class JobScorers {
 public:
  // Keeps the scorers registered while it lives. Must not outlive the JobScorers.
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
  // The scorers registered last for `job`, if still registered.
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
