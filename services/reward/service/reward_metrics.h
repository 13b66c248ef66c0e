#ifndef FRESHET_SERVICES_REWARD_SERVICE_REWARD_METRICS_H_
#define FRESHET_SERVICES_REWARD_SERVICE_REWARD_METRICS_H_

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "services/reward/scorers/score_cache.h"
#include "services/reward/scorers/score_observer.h"
#include "services/reward/service/reward_work.h"
#include "services/runtime/series.h"

namespace freshet {

// Prometheus metrics of a reward process: outcomes and latency by job, and by component of its
// reward, and samples in flight. Calls outside of a job are counted under job "-". Thread-safe.
class RewardMetrics final : public ScoreObservers {
 public:
  // `registry` must outlive this object and the observers.
  explicit RewardMetrics(prometheus::Registry& registry);
  ~RewardMetrics() override;

  std::shared_ptr<ScoreObserver> Of(const std::string& job) override ABSL_LOCKS_EXCLUDED(mu_);
  // `name` is fixed; the counters of `cache` are read at each Refresh.
  void WatchCache(const std::string& name, const ScoreCache& cache) ABSL_LOCKS_EXCLUDED(mu_);
  // Updates the metrics of caches and works.
  void Refresh(const std::map<std::string, RewardStats>& stats) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Job;
  struct Cache {
    metrics::CounterSeries hits;
    metrics::CounterSeries misses;
    const ScoreCache* cache;
  };
  struct Rows {
    metrics::CounterSeries lost;
    metrics::CounterSeries store_errors;
    metrics::GaugeSeries bound;
    metrics::GaugeSeries unsent;
    metrics::GaugeSeries unsent_bound;
  };

  prometheus::Registry& registry_;
  Mutex mu_;
  std::map<std::string, std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> order_ ABSL_GUARDED_BY(mu_);  // least recently requested first
  std::map<std::string, Rows> rows_ ABSL_GUARDED_BY(mu_);
  std::list<Cache> caches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_REWARD_METRICS_H_
