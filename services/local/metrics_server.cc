#include "services/local/metrics_server.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <exception>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Gauge;

Gauge& MakeGauge(prometheus::Registry& registry, const char* name, const char* help,
                 const prometheus::Labels& labels = {}) {
  return BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}
Counter& MakeCounter(prometheus::Registry& registry, const char* name, const char* help,
                     const prometheus::Labels& labels = {}) {
  return BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

// A histogram takes single observations, and a step has thousands of tokens of few distinct ages:
// this observes each age once per `kTokensPerObservation` tokens, rounded up.
constexpr int64_t kTokensPerObservation = 16;

}  // namespace

struct MetricsServer::Handles {
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  prometheus::Registry& r = *registry;
  Gauge& bound = MakeGauge(r, "freshet_staleness_bound_versions",
                           "Staleness bound of the job, in policy versions.");
  prometheus::Histogram& staleness =
      BuildHistogram()
          .Name("freshet_trajectory_staleness_versions")
          .Help("Age of trained tokens in policy versions; one observation per 16 tokens.")
          .Register(r)
          .Add({}, prometheus::Histogram::BucketBoundaries{0, 1, 2, 3, 4, 6, 8, 12, 16});
  Counter& wait = MakeCounter(r, "freshet_trainer_wait_seconds_total",
                              "Seconds that the trainer waited for samples.");
  Counter& idle = MakeCounter(r, "freshet_rollout_idle_seconds_total",
                              "Seconds that rollout engines had nothing to generate.");
  Counter& swap = MakeCounter(r, "freshet_weight_swap_seconds_total",
                              "Seconds that engines spent loading new weights.");
  Counter& generated =
      MakeCounter(r, "freshet_tokens_total", "Tokens by phase.", {{"phase", "generated"}});
  Counter& trained =
      MakeCounter(r, "freshet_tokens_total", "Tokens by phase.", {{"phase", "trained"}});
  Counter& dropped = MakeCounter(r, "freshet_groups_ended_total", "Groups not trained, by end.",
                                 {{"end", "dropped"}});
  Counter& filtered = MakeCounter(r, "freshet_groups_ended_total", "Groups not trained, by end.",
                                  {{"end", "filtered"}});
  Counter& dead = MakeCounter(r, "freshet_groups_ended_total", "Groups not trained, by end.",
                              {{"end", "dead"}});
  Gauge& version =
      MakeGauge(r, "freshet_weight_version", "Committed policy version.", {{"role", "trainer"}});
  Gauge& reward = MakeGauge(r, "freshet_reward_mean", "Mean reward of the last step.");
  Gauge& entropy = MakeGauge(r, "freshet_policy_entropy_nats", "Entropy per token, last step.");
  Gauge& kl = MakeGauge(r, "freshet_policy_kl_nats", "KL estimate per token, last step.",
                        {{"kind", "behavior"}});
  Gauge& clip = MakeGauge(r, "freshet_clip_ratio", "Share of clipped tokens, last step.");
  Gauge& grad_norm = MakeGauge(r, "freshet_grad_norm", "Gradient norm before clipping.");
  Gauge& accuracy = MakeGauge(r, "freshet_eval_accuracy_ratio", "Last held-out evaluation.");
  Gauge& last_step =
      MakeGauge(r, "freshet_last_step_timestamp_seconds", "Unix time of the last committed step.");
  std::unique_ptr<prometheus::Exposer> exposer;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(int port,
                                                                    int64_t staleness_bound) {
  auto handles = std::make_unique<Handles>();
  handles->bound.Set(static_cast<double>(staleness_bound));
  try {
    handles->exposer = std::make_unique<prometheus::Exposer>(StrCat("127.0.0.1:", port));
    handles->exposer->RegisterCollectable(handles->registry);
  } catch (const std::exception& error) {
    return FailedPrecondition("--metrics-port ", port,
                              ": cannot listen on 127.0.0.1: ", error.what());
  }
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(handles)));
}

MetricsServer::MetricsServer(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}
MetricsServer::~MetricsServer() = default;

void MetricsServer::Observe(const StepMetrics& m) {
  Handles& h = *handles_;
  for (const auto& [age, tokens] : m.staleness_tokens) {
    const int64_t count = (tokens + kTokensPerObservation - 1) / kTokensPerObservation;
    for (int64_t i = 0; i < count; ++i) h.staleness.Observe(static_cast<double>(age));
  }
  h.wait.Increment(m.trainer_wait_seconds);
  h.idle.Increment(m.rollout_idle_seconds);
  h.swap.Increment(m.weight_swap_seconds);
  h.generated.Increment(static_cast<double>(m.tokens_generated));
  h.trained.Increment(static_cast<double>(m.tokens_trained));
  h.dropped.Increment(static_cast<double>(m.groups_dropped));
  h.filtered.Increment(static_cast<double>(m.groups_filtered));
  h.dead.Increment(static_cast<double>(m.groups_dead));
  h.version.Set(static_cast<double>(m.policy_version));
  h.reward.Set(m.reward_mean);
  h.entropy.Set(m.entropy);
  h.kl.Set(m.kl_behavior);
  h.clip.Set(m.ratio_clip_fraction);
  h.grad_norm.Set(m.grad_norm);
  h.last_step.Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
}

void MetricsServer::Observe(const EvalMetrics& m) { handles_->accuracy.Set(m.eval_accuracy); }

}  // namespace freshet
