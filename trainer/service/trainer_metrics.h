#ifndef FRESHET_TRAINER_SERVICE_TRAINER_METRICS_H_
#define FRESHET_TRAINER_SERVICE_TRAINER_METRICS_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "services/base/mutex.h"
#include "trainer/adapters/training_metrics.h"
#include "trainer/service/training_work.h"

namespace freshet {

// The jobs of a trainer process, for Prometheus: the one that it trains, and the last few that it
// has trained. Thread-safe.
class TrainerMetrics final : public TrainingListener {
 public:
  // `registry` must outlive this object.
  explicit TrainerMetrics(prometheus::Registry& registry) : registry_(registry) {}

  void OnBegin(const std::string& job, const job::v1::JobSpec& spec,
               std::function<absl::Duration()> waiting) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnStep(const std::string& job, const StepMetrics& metrics,
              const std::vector<TrainGroup>& groups) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnRedo(const std::string& job, int64_t version) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnEnd(const std::string& job) override ABSL_LOCKS_EXCLUDED(mu_);

  // Brings the time that the trainer has been waiting up to date.
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    std::unique_ptr<TrainingMetrics> metrics;
    double full_marks = 1;
    std::function<absl::Duration()> waiting;  // empty when the work has ended
  };

  prometheus::Registry& registry_;
  Mutex mu_;
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINER_METRICS_H_
