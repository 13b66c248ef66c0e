#include "local/metrics_server.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "job/eval_sets.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(int port, const JobSpec& spec,
                                                                    GpuMemoryReader read_gpus) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(spec, std::move(read_gpus)));
  FRESHET_ASSIGN_OR_RETURN(
      server->server_,
      runtime::HttpServer::Start(StrCat("127.0.0.1:", port),
                                 ProbeRoutes(server->readiness_, server->registry_,
                                             [raw = server.get()] { raw->gpus_.Refresh(); }),
                                 {.flag = "--metrics-port"}));
  return server;
}

MetricsServer::MetricsServer(const JobSpec& spec, GpuMemoryReader read_gpus)
    : training_(registry_, spec.name(), spec), gpus_(registry_, std::move(read_gpus)) {
  const auto gauge = [&](const char* name, const char* help, metrics::Labels labels = {}) {
    labels["job"] = spec.name();
    return metrics::GaugeSeries(metrics::GaugeFamily(registry_, name, help), labels);
  };
  const auto counter = [&](const char* name, const char* help, metrics::Labels labels = {}) {
    labels["job"] = spec.name();
    return metrics::CounterSeries(metrics::CounterFamily(registry_, name, help), labels);
  };
  const auto ended = [&](const char* reason) {
    return counter("freshet_groups_ended_total", "Prompt groups that ended untrained, by reason.",
                   {{"reason", reason}});
  };
  bound_ =
      gauge("freshet_staleness_bound_versions", "Staleness bound of the job, in policy versions.");
  bound_->Set(static_cast<double>(spec.staleness().max()));
  for (const job::v1::EvalSet& set : EvalSets(spec)) {
    accuracy_[set.name()] =
        gauge("freshet_eval_accuracy_ratio", "Result of the newest evaluation of a set.",
              {{"eval_name", set.name()}});
  }
  last_step_ = gauge("freshet_last_step_timestamp_seconds",
                     "Unix time at which the last committed step was seen; 0 before.");
  idle_ = counter("freshet_rollout_idle_seconds_total",
                  "Seconds that rollout engines had nothing to generate.");
  swap_ = counter("freshet_weight_swap_seconds_total",
                  "Seconds that engines spent loading new weights.");
  generated_ = counter("freshet_tokens_total", "Tokens by phase.", {{"phase", "generated"}});
  dropped_ = ended("dropped");
  filtered_ = ended("filtered");
  dead_ = ended("dead");
}

void MetricsServer::Observe(const StepMetrics& m, const FinishedStep& report) {
  training_.OnStep(m, report);
  idle_->Increment(m.rollout_idle_seconds);
  swap_->Increment(m.weight_swap_seconds);
  generated_->Increment(static_cast<double>(m.tokens_generated));
  dropped_->Increment(static_cast<double>(m.groups_dropped));
  filtered_->Increment(static_cast<double>(m.groups_filtered));
  dead_->Increment(static_cast<double>(m.groups_dead));
  last_step_->Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
}

void MetricsServer::Observe(const EvalMetrics& metrics) {
  const auto series = accuracy_.find(metrics.eval_name);
  if (series != accuracy_.end()) series->second->Set(metrics.eval_accuracy);
}

}  // namespace freshet
