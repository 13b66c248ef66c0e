#ifndef FRESHET_TRAINER_SERVICE_TRAINER_METRICS_H_
#define FRESHET_TRAINER_SERVICE_TRAINER_METRICS_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "trainer/service/training_listener.h"
#include "trainer/service/training_metrics.h"

namespace freshet {

// Prometheus metrics of a trainer process: the current job and the last few. Thread-safe.
class TrainerMetrics final : public TrainingListener {
 public:
  // `registry` must outlive this object. `peak_flops`: the peak operations per second of a rank,
  // for the utilization; 0: unknown, no utilization is exported.
  explicit TrainerMetrics(prometheus::Registry& registry, double peak_flops = 0)
      : registry_(registry), peak_flops_(peak_flops) {}

  void OnBegin(const std::string& name, const job::v1::JobSpec& spec,
               std::function<absl::Duration()> waiting) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnStep(const std::string& name, const StepMetrics& step, const FinishedStep& report) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnRows(const std::string& name, int64_t waiting, int64_t bound, int64_t dropped) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnRedo(const std::string& name, int64_t version) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnStateLost(const std::string& name) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnCheckpoint(const std::string& name, bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnCheckpointHook(const std::string& name, const absl::Status& status) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnEnd(const std::string& name) override ABSL_LOCKS_EXCLUDED(mu_);

  // Updates how long the trainer has been waiting.
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    std::unique_ptr<TrainingMetrics> metrics;
    metrics::GaugeSeries unsent, unsent_bound;
    std::optional<metrics::GaugeSeries> utilisation;  // set at the first step
    metrics::CounterSeries rows_dropped, checkpoints_ok, checkpoints_failed;
    metrics::CounterSeries hooks_ok, hooks_failed, hooks_skipped;
    double dropped_before = 0;                // by the job's earlier works
    double dropped_now = 0;                   // by the current work
    std::function<absl::Duration()> waiting;  // empty once the work has ended
  };

  Job MakeJob(const std::string& name, const job::v1::JobSpec& spec) const;

  prometheus::Registry& registry_;
  const double peak_flops_;
  Mutex mu_;
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINER_METRICS_H_
