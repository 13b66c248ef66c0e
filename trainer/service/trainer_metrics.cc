#include "trainer/service/trainer_metrics.h"

#include <utility>

#include "trainer/trainer_setup.h"

namespace freshet {

void TrainerMetrics::OnBegin(const std::string& name, const job::v1::JobSpec& spec,
                             std::function<absl::Duration()> waiting) {
  MutexLock lock(mu_);
  std::erase(ended_, name);
  Job& job = jobs_[name];
  if (job.metrics == nullptr) {
    job.metrics = std::make_unique<TrainingMetrics>(registry_, name, EnvironmentLabel(spec));
  }
  job.full_marks = FullMarks(spec.reward());
  job.waiting = std::move(waiting);
}

void TrainerMetrics::OnStep(const std::string& name, const StepMetrics& metrics,
                            const std::vector<TrainGroup>& groups) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  found->second.metrics->OnStep(metrics);
  found->second.metrics->OnBatch(SummarizeBatch(groups, found->second.full_marks));
}

void TrainerMetrics::OnRedo(const std::string& name, int64_t version) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found != jobs_.end()) found->second.metrics->OnVersion(version);
}

void TrainerMetrics::OnEnd(const std::string& name) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end() || !found->second.waiting) return;
  found->second.waiting = nullptr;
  ended_.push_back(name);
  if (ended_.size() <= metrics::kKeptJobs) return;
  jobs_.erase(ended_.front());
  ended_.pop_front();
}

void TrainerMetrics::Refresh() {
  MutexLock lock(mu_);
  for (const auto& [name, job] : jobs_) {
    if (job.waiting) job.metrics->OnWaiting(absl::ToDoubleSeconds(job.waiting()));
  }
}

}  // namespace freshet
