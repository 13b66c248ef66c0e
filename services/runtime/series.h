#ifndef FRESHET_SERVICES_RUNTIME_SERIES_H_
#define FRESHET_SERVICES_RUNTIME_SERIES_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>
#include <utility>

namespace freshet::metrics {

using Gauges = prometheus::Family<prometheus::Gauge>;
using Counters = prometheus::Family<prometheus::Counter>;
using Histograms = prometheus::Family<prometheus::Histogram>;
using Buckets = prometheus::Histogram::BucketBoundaries;
using prometheus::Labels;

// Families by name; repeated calls return the same family.
Gauges& GaugeFamily(prometheus::Registry& registry, const std::string& name,
                    const std::string& help);
Counters& CounterFamily(prometheus::Registry& registry, const std::string& name,
                        const std::string& help);
Histograms& HistogramFamily(prometheus::Registry& registry, const std::string& name,
                            const std::string& help);

// One series of a family, removed from it on destruction. The family must outlive it.
template <typename T>
class Series {
 public:
  Series() = default;
  template <typename... Args>
  Series(prometheus::Family<T>& family, const Labels& labels, Args&&... args)
      : family_(&family), series_(&family.Add(labels, std::forward<Args>(args)...)) {}
  Series(Series&& other) noexcept
      : family_(std::exchange(other.family_, nullptr)),
        series_(std::exchange(other.series_, nullptr)) {}
  Series& operator=(Series&& other) noexcept {
    std::swap(family_, other.family_);
    std::swap(series_, other.series_);
    return *this;
  }
  ~Series() {
    if (series_ != nullptr) family_->Remove(series_);
  }

  T* operator->() const { return series_; }
  T& operator*() const { return *series_; }

 private:
  prometheus::Family<T>* family_ = nullptr;
  T* series_ = nullptr;
};
using GaugeSeries = Series<prometheus::Gauge>;
using CounterSeries = Series<prometheus::Counter>;
using HistogramSeries = Series<prometheus::Histogram>;

// Raises a counter to `total`; smaller values are ignored.
void RaiseTo(prometheus::Counter& counter, double total);

// Buckets for short work (calls, scores): 1 ms to 60 s.
Buckets ShortSeconds();
// Buckets for phases of a training step or a weight publication: 1 ms to 1 h.
Buckets LongSeconds();

// Number of ended jobs whose series a process keeps, so that their last stats are still scraped.
// Together with the active jobs, this bounds the label `job`.
constexpr size_t kKeptJobs = 4;

}  // namespace freshet::metrics

#endif  // FRESHET_SERVICES_RUNTIME_SERIES_H_
