#include "services/metrics/weight_sync_metrics.h"

namespace freshet::metrics {
namespace {

// All that WeightFailureCause gives.
constexpr const char* kCauses[] = {"refused",  "corrupt",   "timeout", "unavailable",
                                   "departed", "no_memory", "other"};

}  // namespace

WeightSyncMetrics::WeightSyncMetrics(prometheus::Registry& registry)
    : bytes_(CounterFamily(registry, "freshet_weight_sync_bytes_total",
                           "Bytes of weights that this process sent; shared memory not counted.")
                 .Add({})),
      failures_(CounterFamily(registry, "freshet_weight_sync_failures_total",
                              "Members that a publication left out, or pulls that failed, by "
                              "cause.")) {
  Histograms& seconds = HistogramFamily(
      registry, "freshet_weight_sync_seconds",
      "Seconds of the phases of a weight publication: the trainer times stage, transfer and "
      "activate, an engine verify.");
  for (int i = 0; i < kNumWeightPhases; ++i) {
    const char* phase = WeightPhaseName(static_cast<WeightPhase>(i));
    phases_[static_cast<size_t>(i)] = &seconds.Add({{"phase", phase}}, LongSeconds());
  }
  for (const char* cause : kCauses) by_cause_[cause] = &failures_.Add({{"cause", cause}});
}

void WeightSyncMetrics::OnPhase(WeightPhase phase, absl::Duration took) {
  phases_[static_cast<size_t>(phase)]->Observe(absl::ToDoubleSeconds(took));
}

void WeightSyncMetrics::OnBytes(int64_t bytes) { bytes_.Increment(static_cast<double>(bytes)); }

void WeightSyncMetrics::OnFailure(const char* cause) {
  MutexLock lock(mu_);
  const auto found = by_cause_.find(cause);
  (found == by_cause_.end() ? by_cause_.at("other") : found->second)->Increment();
}

}  // namespace freshet::metrics
