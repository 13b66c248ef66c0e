#include "rollout/openai/endpoint_metrics.h"

namespace freshet {

EndpointMetrics::EndpointMetrics(prometheus::Registry& registry)
    : serving_(metrics::GaugeFamily(registry, "freshet_openai_serving",
                                    "1 while a model is served, 0 otherwise."),
               {}),
      waiting_(metrics::GaugeFamily(registry, "freshet_openai_waiting_requests",
                                    "Requests that wait for room in the engine."),
               {}),
      open_(metrics::GaugeFamily(registry, "freshet_openai_open_requests",
                                 "Requests that wait for room in the engine or are in it."),
            {}),
      sessions_(metrics::GaugeFamily(registry, "freshet_openai_sessions",
                                     "Open sessions: episodes that agents play."),
                {}) {
  metrics::Counters& requests = metrics::CounterFamily(
      registry, "freshet_openai_requests_total", "Requests for completions by how they ended.");
  for (size_t i = 0; i < requests_.size(); ++i) {
    requests_[i] = {requests, {{"outcome", openai::kOutcomeNames[i]}}};
  }
}

void EndpointMetrics::Show(const openai::RequestCounts& counts,
                           const openai::EndpointPortStats& stats) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    metrics::RaiseTo(*requests_[i], static_cast<double>(counts.of(i)));
  }
  serving_->Set(stats.serving ? 1 : 0);
  waiting_->Set(static_cast<double>(stats.waiting));
  open_->Set(static_cast<double>(stats.open));
  sessions_->Set(static_cast<double>(stats.sessions));
}

}  // namespace freshet
