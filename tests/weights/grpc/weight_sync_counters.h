#ifndef FRESHET_TESTS_WEIGHTS_GRPC_WEIGHT_SYNC_COUNTERS_H_
#define FRESHET_TESTS_WEIGHTS_GRPC_WEIGHT_SYNC_COUNTERS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "weights/weight_sync_observer.h"

namespace freshet {

// Totals of the weight plane's events. Thread-safe.
class WeightSyncCounters final : public WeightSyncObserver {
 public:
  struct Totals {
    std::array<double, kNumWeightPhases> seconds{};
    std::array<int64_t, kNumWeightPhases> count{};
    int64_t bytes = 0;
    int64_t delta_bytes = 0;
    int64_t delta_sent = 0;
    std::map<std::string, int64_t> failures;  // by cause
    struct Members {
      int64_t publications = 0;
      int64_t members = 0;
      double slowest_seconds = 0;  // summed over publications
    };
    std::map<std::string, Members> members;  // by route
  };

  void OnPhase(WeightPhase phase, absl::Duration took) override {
    const auto i = static_cast<size_t>(phase);
    MutexLock lock(mu_);
    totals_.seconds[i] += absl::ToDoubleSeconds(took);
    ++totals_.count[i];
  }
  void OnBytes(int64_t bytes) override {
    MutexLock lock(mu_);
    totals_.bytes += bytes;
  }
  void OnDelta(int64_t bytes, int64_t sent) override {
    MutexLock lock(mu_);
    totals_.delta_bytes += bytes;
    totals_.delta_sent += sent;
  }
  void OnFailure(const char* cause) override {
    MutexLock lock(mu_);
    ++totals_.failures[cause];
  }
  void OnMembers(const std::string& /*job*/, const char* route,
                 const std::vector<absl::Duration>& took) override {
    MutexLock lock(mu_);
    Totals::Members& of_route = totals_.members[route];
    ++of_route.publications;
    of_route.members += static_cast<int64_t>(took.size());
    of_route.slowest_seconds += absl::ToDoubleSeconds(*std::max_element(took.begin(), took.end()));
  }
  Totals totals() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return totals_;
  }

 private:
  mutable Mutex mu_;
  Totals totals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TESTS_WEIGHTS_GRPC_WEIGHT_SYNC_COUNTERS_H_
