#include "trainer/service/trainer_metrics.h"

#include <utility>

namespace freshet {

TrainerMetrics::Job TrainerMetrics::MakeJob(const std::string& name,
                                            const job::v1::JobSpec& spec) const {
  const metrics::Labels labels = {{"job", name}};
  const auto gauge = [&](const char* metric, const char* help) {
    return metrics::GaugeSeries(metrics::GaugeFamily(registry_, metric, help), labels);
  };
  Job job;
  job.metrics = std::make_unique<TrainingMetrics>(registry_, name, spec);
  job.unsent = gauge("freshet_trainer_unsent_rows",
                     "Rows of steps and samples that wait for the datastore.");
  job.unsent_bound =
      gauge("freshet_trainer_unsent_bound_rows",
            "Limit of rows that wait for the datastore; beyond it, samples are dropped first.");
  job.rows_dropped = {
      metrics::CounterFamily(registry_, "freshet_trainer_rows_dropped_total",
                             "Rows of steps and samples that were dropped because too many waited "
                             "for the datastore or it refused them."),
      labels};
  auto& checkpoints =
      metrics::CounterFamily(registry_, "freshet_checkpoints_total",
                             "Checkpoints, by whether they were written and are durable.");
  job.checkpoints_ok = {checkpoints, {{"job", name}, {"result", "ok"}}};
  job.checkpoints_failed = {checkpoints, {{"job", name}, {"result", "error"}}};
  auto& hooks = metrics::CounterFamily(
      registry_, "freshet_checkpoint_hooks_total",
      "Checkpoints that were handed to the checkpoint hook, by result: ok, error (all tries "
      "failed), skipped (a newer checkpoint or the end of the work came first).");
  job.hooks_ok = {hooks, {{"job", name}, {"result", "ok"}}};
  job.hooks_failed = {hooks, {{"job", name}, {"result", "error"}}};
  job.hooks_skipped = {hooks, {{"job", name}, {"result", "skipped"}}};
  return job;
}

void TrainerMetrics::OnBegin(const std::string& name, const job::v1::JobSpec& spec,
                             std::function<absl::Duration()> waiting) {
  MutexLock lock(mu_);
  std::erase(ended_, name);
  Job& job = jobs_[name];
  if (job.metrics == nullptr) job = MakeJob(name, spec);
  job.dropped_before += std::exchange(job.dropped_now, 0);
  job.waiting = std::move(waiting);
}

void TrainerMetrics::OnStep(const std::string& name, const StepMetrics& step,
                            const FinishedStep& report) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  job.metrics->OnStep(step, report);
  if (peak_flops_ > 0 && step.train_seconds > 0) {
    if (!job.utilisation.has_value()) {
      job.utilisation.emplace(
          metrics::GaugeFamily(registry_, "freshet_mfu_ratio",
                               "Model FLOPs utilization of the last step: operations that the "
                               "model needed, over the peak of all ranks during training."),
          metrics::Labels{{"job", name}});
    }
    const double peak = peak_flops_ * static_cast<double>(report.result.ranks);
    (*job.utilisation)->Set(step.model_flops / step.train_seconds / peak);
  }
}

void TrainerMetrics::OnRows(const std::string& name, int64_t waiting, int64_t bound,
                            int64_t dropped) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  job.unsent->Set(static_cast<double>(waiting));
  job.unsent_bound->Set(static_cast<double>(bound));
  job.dropped_now = static_cast<double>(dropped);
  metrics::RaiseTo(*job.rows_dropped, job.dropped_before + job.dropped_now);
}

void TrainerMetrics::OnCheckpoint(const std::string& name, bool ok) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  (ok ? job.checkpoints_ok : job.checkpoints_failed)->Increment();
}

void TrainerMetrics::OnCheckpointHook(const std::string& name, const absl::Status& status) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  metrics::CounterSeries& ended = status.ok()               ? job.hooks_ok
                                  : absl::IsAborted(status) ? job.hooks_skipped
                                                            : job.hooks_failed;
  ended->Increment();
}

void TrainerMetrics::OnRedo(const std::string& name, int64_t version) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found != jobs_.end()) found->second.metrics->OnVersion(version);
}

void TrainerMetrics::OnStateLost(const std::string& name) {
  MutexLock lock(mu_);
  const auto found = jobs_.find(name);
  if (found != jobs_.end()) found->second.metrics->OnStateLost();
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
