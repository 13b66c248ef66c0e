#ifndef FRESHET_ROLLOUT_OPENAI_ENDPOINT_METRICS_H_
#define FRESHET_ROLLOUT_OPENAI_ENDPOINT_METRICS_H_

#include <array>

#include "rollout/openai/endpoint_port.h"
#include "services/runtime/series.h"

namespace freshet {

// Prometheus metrics of a server of the OpenAI API. Not thread-safe.
class EndpointMetrics {
 public:
  // `registry` must outlive this object.
  explicit EndpointMetrics(prometheus::Registry& registry);
  void Show(const openai::RequestCounts& counts, const openai::EndpointPortStats& stats);

 private:
  std::array<metrics::CounterSeries, openai::kOutcomeNames.size()> requests_;
  metrics::GaugeSeries serving_;
  metrics::GaugeSeries waiting_;
  metrics::GaugeSeries open_;
  metrics::GaugeSeries sessions_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_OPENAI_ENDPOINT_METRICS_H_
