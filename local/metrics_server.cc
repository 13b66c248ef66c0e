#include "local/metrics_server.h"

#include <prometheus/registry.h>

#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/http_server.h"
#include "services/runtime/readiness.h"
#include "services/runtime/series.h"
#include "trainer/service/training_metrics.h"

namespace freshet {
namespace {

using metrics::CounterFamily;
using metrics::GaugeFamily;
using metrics::Labels;

metrics::GaugeSeries MakeGauge(prometheus::Registry& registry, const char* name, const char* help,
                               const Labels& labels) {
  return {GaugeFamily(registry, name, help), labels};
}
metrics::CounterSeries MakeCounter(prometheus::Registry& registry, const char* name,
                                   const char* help, const Labels& labels) {
  return {CounterFamily(registry, name, help), labels};
}

}  // namespace

struct MetricsServer::Handles {
  explicit Handles(const Job& of)
      : job(of),
        labels({{"job", of.name}}),
        training(r, of.name, of.environment, of.staleness_bound) {}
  metrics::CounterSeries Ended(const char* reason) {
    return MakeCounter(r, "freshet_groups_ended_total",
                       "Prompt groups that ended untrained, by reason.",
                       {{"job", job.name}, {"reason", reason}});
  }

  prometheus::Registry r;
  const Job job;
  const Labels labels;
  TrainingMetrics training;
  metrics::GaugeSeries bound = MakeGauge(r, "freshet_staleness_bound_versions",
                                         "Staleness bound of the job, in policy versions.", labels);
  metrics::CounterSeries idle =
      MakeCounter(r, "freshet_rollout_idle_seconds_total",
                  "Seconds that rollout engines had nothing to generate.", labels);
  metrics::CounterSeries swap =
      MakeCounter(r, "freshet_weight_swap_seconds_total",
                  "Seconds that engines spent loading new weights.", labels);
  metrics::CounterSeries generated = MakeCounter(r, "freshet_tokens_total", "Tokens by phase.",
                                                 {{"job", job.name}, {"phase", "generated"}});
  metrics::CounterSeries dropped = Ended("dropped");
  metrics::CounterSeries filtered = Ended("filtered");
  metrics::CounterSeries dead = Ended("dead");
  metrics::GaugeSeries accuracy =
      MakeGauge(r, "freshet_eval_accuracy_ratio", "Result of the newest evaluation.", labels);
  metrics::GaugeSeries last_step =
      MakeGauge(r, "freshet_last_step_timestamp_seconds",
                "Unix time at which the last committed step was seen; 0 before.", labels);
  runtime::Readiness readiness;
  std::unique_ptr<runtime::HttpServer> server;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(int port, const Job& job) {
  auto handles = std::make_unique<Handles>(job);
  handles->bound->Set(static_cast<double>(job.staleness_bound));
  FRESHET_ASSIGN_OR_RETURN(handles->server,
                           runtime::HttpServer::Start(StrCat("127.0.0.1:", port),
                                                      ProbeRoutes(handles->readiness, handles->r),
                                                      {.flag = "--metrics-port"}));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(handles)));
}

MetricsServer::MetricsServer(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}
MetricsServer::~MetricsServer() = default;

void MetricsServer::Observe(const StepMetrics& m, const FinishedStep& report) {
  Handles& h = *handles_;
  h.training.OnStep(m);
  h.training.OnBatch(SummarizeBatch(*report.groups, h.job.full_marks));
  h.training.OnRatios(report.result.importance_ratios);
  h.idle->Increment(m.rollout_idle_seconds);
  h.swap->Increment(m.weight_swap_seconds);
  h.generated->Increment(static_cast<double>(m.tokens_generated));
  h.dropped->Increment(static_cast<double>(m.groups_dropped));
  h.filtered->Increment(static_cast<double>(m.groups_filtered));
  h.dead->Increment(static_cast<double>(m.groups_dead));
  h.last_step->Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
}

void MetricsServer::Observe(const EvalMetrics& m) { handles_->accuracy->Set(m.eval_accuracy); }

}  // namespace freshet
