#ifndef FRESHET_WEIGHTS_WEIGHT_SYNC_OBSERVER_H_
#define FRESHET_WEIGHTS_WEIGHT_SYNC_OBSERVER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace freshet {

// Phases of a publication. The trainer times wait (for the publication before it) and stage, during
// which it does not train, then transfer (until the last member answers) and activate (the longest
// call); each engine times verify.
enum class WeightPhase { kWait, kStage, kTransfer, kVerify, kActivate };
inline constexpr int kNumWeightPhases = 5;

// "wait", "stage", "transfer", "verify", "activate".
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
  // A piece of a version, `bytes` long, went to another site as `sent` bytes, which OnBytes also
  // counts. Equal if the difference is not smaller.
  virtual void OnDelta(int64_t bytes, int64_t sent) = 0;
  // A member was left out, or a pull has failed; or, with cause "group", a group of a broadcast.
  virtual void OnFailure(const char* cause) = 0;
  // A publication of `job` brought its version to members by one route: "shm",
  // "cuda_ipc", "grpc_relay", "nccl" or "gloo". `took` has one entry per member, at least one, in
  // any order: the time until it had activated the version. In a chain, members after a slow one
  // are as slow.
  virtual void OnMembers(const std::string& job, const char* route,
                         const std::vector<absl::Duration>& took) = 0;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_SYNC_OBSERVER_H_
