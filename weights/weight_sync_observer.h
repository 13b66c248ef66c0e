#ifndef FRESHET_WEIGHTS_WEIGHT_SYNC_OBSERVER_H_
#define FRESHET_WEIGHTS_WEIGHT_SYNC_OBSERVER_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace freshet {

// Phases of a publication. The trainer times stage, transfer (until the last member answers) and
// activate; each engine times verify.
enum class WeightPhase { kStage, kTransfer, kVerify, kActivate };
inline constexpr int kNumWeightPhases = 4;

// "stage", "transfer", "verify", "activate".
const char* WeightPhaseName(WeightPhase phase);

// Why a member was skipped, as a metric label: "refused" (fenced or older version), "corrupt",
// "timeout", "unavailable", "departed", "no_memory", "other".
const char* WeightFailureCause(const absl::Status& status);

// Receives weight plane events. Implementations are thread-safe.
class WeightSyncObserver {
 public:
  virtual ~WeightSyncObserver() = default;
  virtual void OnPhase(WeightPhase phase, absl::Duration took) = 0;
  virtual void OnBytes(int64_t bytes) = 0;  // sent by this process, excluding shared memory
  virtual void OnFailure(const char* cause) = 0;
  // A publication of `job` brought its version to members by one route ("shm" or "grpc_relay").
  // `took` has one entry per member, at least one, in any order. In a chain, members after a slow
  // one are as slow.
  virtual void OnMembers(const std::string& job, const char* route,
                         const std::vector<absl::Duration>& took) = 0;
};

// Totals. Thread-safe.
class WeightSyncCounters final : public WeightSyncObserver {
 public:
  struct Totals {
    std::array<double, kNumWeightPhases> seconds{};
    std::array<int64_t, kNumWeightPhases> count{};
    int64_t bytes = 0;
    std::map<std::string, int64_t> failures;  // by cause
    struct Members {
      int64_t publications = 0;
      int64_t members = 0;
      double slowest_seconds = 0;  // summed over publications
    };
    std::map<std::string, Members> members;  // by route
  };

  void OnPhase(WeightPhase phase, absl::Duration took) override;
  void OnBytes(int64_t bytes) override;
  void OnFailure(const char* cause) override;
  void OnMembers(const std::string& job, const char* route,
                 const std::vector<absl::Duration>& took) override;
  Totals totals() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  Totals totals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_SYNC_OBSERVER_H_
