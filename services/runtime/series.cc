#include "services/runtime/series.h"

namespace freshet::metrics {

Gauges& GaugeFamily(prometheus::Registry& registry, const std::string& name,
                    const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

Counters& CounterFamily(prometheus::Registry& registry, const std::string& name,
                        const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Histograms& HistogramFamily(prometheus::Registry& registry, const std::string& name,
                            const std::string& help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

void RaiseTo(prometheus::Counter& counter, double total) {
  const double growth = total - counter.Value();
  if (growth > 0) counter.Increment(growth);
}

Buckets ShortSeconds() {
  return {0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
}

Buckets LongSeconds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,  1,
          2.5,   5,      10,    30,   60,    120,  300, 600,  1800, 3600};
}

}  // namespace freshet::metrics
