#include "controller/kubernetes/kubernetes_scaler.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/transient.h"

namespace freshet {
namespace {

constexpr absl::Duration kScaleDeadline = absl::Seconds(5);
constexpr absl::Duration kReadDeadline = absl::Seconds(1);
// How long a reply is cached, and how long requests pause after a failure.
constexpr absl::Duration kFresh = absl::Seconds(2);
constexpr absl::Duration kAfterFailure = absl::Seconds(10);

int32_t WorkersOf(const ScaleTarget& target, int32_t replicas) {
  const int64_t workers = int64_t{replicas} * target.size;
  return static_cast<int32_t>(std::min<int64_t>(workers, std::numeric_limits<int32_t>::max()));
}

}  // namespace

absl::StatusOr<int32_t> KubernetesScaler::SetWanted(const std::string& role,
                                                    const std::string& pool, int32_t replicas,
                                                    Surplus surplus) {
  FRESHET_RETURN_IF_ERROR(CheckScale(role, pool, replicas));
  if (surplus == Surplus::kStays) {
    return InvalidArgument("keep_workers: Kubernetes determines the number of workers");
  }
  const std::string key = PoolKey(role, pool);
  const auto target = targets_.find(key);
  if (target == targets_.end()) {
    return InvalidArgument(role == "rollout" ? "pool: " : "role: ", key,
                           " is not a workload that the controller may scale; see --scale-target");
  }
  const int32_t size = target->second.size;
  if (replicas % size != 0) {
    const int32_t fewer = replicas - replicas % size;
    return InvalidArgument("replicas: ", key, " has groups of ", size, " workers: ", replicas,
                           " is no multiple; take ", fewer, " or ", fewer + size);
  }
  FRESHET_ASSIGN_OR_RETURN(const int32_t before, api_.GetReplicas(target->second, kScaleDeadline));
  FRESHET_RETURN_IF_ERROR(api_.SetReplicas(target->second, replicas / size, kScaleDeadline));
  FRESHET_LOG(Info) << "event=scaled target=" << key << " replicas=" << replicas
                    << " before=" << WorkersOf(target->second, before);
  MutexLock lock(mu_);
  wanted_[key] = replicas;
  return WorkersOf(target->second, before);
}

std::map<std::string, int32_t> KubernetesScaler::Wanted() {
  {
    MutexLock lock(mu_);
    if (asking_ || clock_.Now() < ask_again_) return wanted_;
    asking_ = true;
  }
  std::map<std::string, int32_t> read;
  absl::Status status;
  for (const auto& [key, target] : targets_) {
    const absl::StatusOr<int32_t> replicas = api_.GetReplicas(target, kReadDeadline);
    if (replicas.ok()) {
      read[key] = WorkersOf(target, *replicas);
    } else if (status.ok()) {
      status = replicas.status();
    }
    // Where nobody answers, one time-out is enough.
    if (IsTransient(status)) break;
  }
  if (!status.ok()) {
    FRESHET_LOG(Warning) << "event=scale_not_read error=" << LogQuoted(Message(status));
  }
  MutexLock lock(mu_);
  asking_ = false;
  ask_again_ = clock_.Now() + (status.ok() ? kFresh : kAfterFailure);
  for (const auto& [key, replicas] : read) wanted_[key] = replicas;
  return wanted_;
}

}  // namespace freshet
