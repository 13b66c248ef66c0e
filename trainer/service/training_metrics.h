#ifndef FRESHET_TRAINER_SERVICE_TRAINING_METRICS_H_
#define FRESHET_TRAINER_SERVICE_TRAINING_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "runlog/step_metrics.h"
#include "services/runtime/series.h"
#include "trainer/loop/batch_stats.h"
#include "trainer/loss/importance_ratio.h"

namespace freshet {

// The training of one job, for Prometheus: staleness of the trained tokens, waiting, phases of a
// step, policy health, rewards and lengths. Series have the label `job` and go with this object.
// Thread-safe.
class TrainingMetrics {
 public:
  // `environment`: of the job, for the label of the reward; "none" without one. `staleness_bound`:
  // of the job, in versions.
  TrainingMetrics(prometheus::Registry& registry, const std::string& job,
                  const std::string& environment, int64_t staleness_bound);

  // A step that was trained for the first time; one that is redone after a crash is not told.
  void OnStep(const StepMetrics& metrics) ABSL_LOCKS_EXCLUDED(mu_);
  void OnBatch(const BatchStats& stats);
  // Of the tokens of a step that was trained for the first time.
  void OnRatios(const ImportanceRatios& ratios);
  // The version that the trainer has committed, also by redoing.
  void OnVersion(int64_t version) { version_->Set(static_cast<double>(version)); }
  // For how long the trainer has been waiting for samples now; 0 while it trains.
  void OnWaiting(double seconds) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // `kind`: the label of that name, where it is not empty.
  void SetLast(metrics::Gauges& family, const std::string& kind, double value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const metrics::Buckets age_edges_;
  metrics::HistogramSeries staleness_;
  metrics::CounterSeries at_bound_;
  metrics::HistogramSeries version_spans_;
  metrics::HistogramSeries completion_tokens_;
  metrics::HistogramSeries reward_;
  metrics::HistogramSeries ratios_;
  std::map<std::string, metrics::HistogramSeries> phases_;
  std::map<std::string, metrics::CounterSeries> solved_;
  metrics::CounterSeries wait_;
  metrics::CounterSeries steps_;
  metrics::CounterSeries trained_;
  metrics::CounterSeries flops_;
  metrics::GaugeSeries version_;
  metrics::Gauges &kl_, &reward_mean_, &loss_, &entropy_, &clip_, &grad_norm_, &importance_,
      &logprob_diff_, &learning_rate_;
  const std::string job_;
  const int64_t staleness_bound_;
  Mutex mu_;
  // Of the last step: made with the first one that has a value, so that no curve begins at 0.
  std::map<std::pair<metrics::Gauges*, std::string>, metrics::GaugeSeries> last_
      ABSL_GUARDED_BY(mu_);
  double waited_ ABSL_GUARDED_BY(mu_) = 0;  // in steps that are finished
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINING_METRICS_H_
