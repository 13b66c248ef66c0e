#ifndef FRESHET_TRAINER_SERVICE_TRAINING_METRICS_H_
#define FRESHET_TRAINER_SERVICE_TRAINING_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "runlog/step_metrics.h"
#include "services/runtime/series.h"
#include "trainer/loop/batch_stats.h"
#include "trainer/loop/trainer_loop.h"

namespace freshet {

// Prometheus metrics of one job's training: staleness of the trained tokens, waiting, phases of a
// step, policy health, rewards and lengths. Series have the label `job` and are removed with this
// object. Thread-safe.
class TrainingMetrics {
 public:
  TrainingMetrics(prometheus::Registry& registry, const std::string& job,
                  const job::v1::JobSpec& spec);

  // A step trained for the first time; redone steps are not reported.
  void OnStep(const StepMetrics& metrics, const FinishedStep& report);
  // A rank was lost and ended the work.
  void OnStateLost() { lost_ranks_->Increment(); }
  // The parts of OnStep.
  void OnStep(const StepMetrics& metrics) ABSL_LOCKS_EXCLUDED(mu_);
  void OnBatch(const BatchStats& stats);
  // The version that the trainer has committed, including redone ones.
  void OnVersion(int64_t version) { version_->Set(static_cast<double>(version)); }
  // How long the trainer has been waiting for samples; 0 while it trains.
  void OnWaiting(double seconds) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // `kind`: value of the label `name`, omitted if empty.
  void SetLast(metrics::Gauges& family, const std::string& kind, double value,
               const char* name = "kind") ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const metrics::Buckets age_edges_;
  metrics::HistogramSeries staleness_;
  metrics::CounterSeries replayed_;
  metrics::CounterSeries at_bound_;
  metrics::HistogramSeries version_spans_;
  metrics::HistogramSeries completion_tokens_;
  metrics::HistogramSeries reward_;
  metrics::HistogramSeries ratios_;
  std::map<std::string, metrics::HistogramSeries> phases_;
  std::map<std::string, metrics::CounterSeries> solved_;
  metrics::CounterSeries wait_;
  metrics::CounterSeries steps_;
  metrics::CounterSeries lost_ranks_;
  metrics::GaugeSeries ranks_, wanted_ranks_;
  metrics::CounterSeries masked_turns_, masked_samples_, masked_tokens_, weighted_tokens_;
  metrics::CounterSeries dropped_samples_, duplicated_samples_;  // not asked
  metrics::CounterSeries trained_;
  metrics::CounterSeries flops_;
  metrics::GaugeSeries version_;
  metrics::Gauges &kl_, &reward_mean_, &loss_, &entropy_, &sampled_entropy_, &clip_, &grad_norm_,
      &importance_, &logprob_diff_, &learning_rate_, &task_reward_;
  const std::string job_;
  const int64_t staleness_bound_;
  // Reward of a sample that satisfies every component, by task.
  const std::map<std::string, double> success_rewards_;
  std::map<std::string, metrics::CounterSeries> task_samples_;
  Mutex mu_;
  // Values of the last step. A series is created with its first value, so that no curve starts at
  // 0.
  std::map<std::pair<metrics::Gauges*, std::string>, metrics::GaugeSeries> last_
      ABSL_GUARDED_BY(mu_);
  double waited_ ABSL_GUARDED_BY(mu_) = 0;  // in finished steps
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINING_METRICS_H_
