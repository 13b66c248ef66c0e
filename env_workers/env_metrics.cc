#include "env_workers/env_metrics.h"

namespace freshet {
namespace {

constexpr const char* kOutcomes[] = {"terminated", "truncated", "abandoned", "failed"};

}  // namespace

const char* Name(EpisodeOutcome outcome) { return kOutcomes[static_cast<size_t>(outcome)]; }

EnvMetrics::EnvMetrics(prometheus::Registry& registry, const EnvironmentRegistry& environments) {
  auto& episodes = prometheus::BuildCounter()
                       .Name("freshet_episodes_total")
                       .Help("Episodes that ended, by environment and how.")
                       .Register(registry);
  auto& turns = prometheus::BuildHistogram()
                    .Name("freshet_episode_turns")
                    .Help("Turns of the policy in episodes that ended.")
                    .Register(registry);
  auto& seconds = prometheus::BuildHistogram()
                      .Name("freshet_environment_step_seconds")
                      .Help("Time that an environment took for one reset or step.")
                      .Register(registry);
  open_ = &prometheus::BuildGauge()
               .Name("freshet_episodes_open")
               .Help("Open episodes, without those that wait for a slot.")
               .Register(registry)
               .Add({});
  for (const auto& [name, type] : environments.types()) {
    Handles& handles = handles_[name];
    for (int i = 0; i < 4; ++i) {
      handles.by_outcome[i] = &episodes.Add({{"environment", name}, {"outcome", kOutcomes[i]}});
    }
    handles.turns = &turns.Add({{"environment", name}}, prometheus::Histogram::BucketBoundaries{
                                                            1, 2, 3, 4, 6, 8, 12, 16, 32});
    handles.step_seconds =
        &seconds.Add({{"environment", name}},
                     prometheus::Histogram::BucketBoundaries{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10});
  }
}

void EnvMetrics::CountStep(const std::string& environment, absl::Duration took) {
  const auto found = handles_.find(environment);
  if (found != handles_.end()) {
    found->second.step_seconds->Observe(absl::ToDoubleSeconds(took));
  }
}

void EnvMetrics::CountEpisode(const std::string& environment, EpisodeOutcome outcome,
                              int64_t turns) {
  const auto found = handles_.find(environment);
  if (found == handles_.end()) return;
  found->second.by_outcome[static_cast<int>(outcome)]->Increment();
  found->second.turns->Observe(static_cast<double>(turns));
}

}  // namespace freshet
