#ifndef FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_SCALER_H_
#define FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_SCALER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "controller/cluster/pool_scaler.h"
#include "controller/kubernetes/kubernetes_api.h"

namespace freshet {

// PoolScaler for workers that are pods: sets the scale of their workload. No worker is told to
// drain: Kubernetes chooses pods, those with the lowest deletion cost first, and sends SIGTERM,
// which drains them; a pod that exited by itself would be restarted. Numbers count workers, even if
// Kubernetes counts groups of them.
//
// Besides the errors of PoolScaler, SetWanted returns those of KubernetesApi, and INVALID_ARGUMENT
// for a pool that is not a target, for a number that is not a multiple of the group size, and for
// Surplus::kStays, because Kubernetes determines the number. Thread-safe.
class KubernetesScaler final : public PoolScaler {
 public:
  // `api` and `clock` must outlive the object.
  KubernetesScaler(KubernetesApi& api, std::map<std::string, ScaleTarget> targets,
                   const Clock& clock)
      : api_(api), targets_(std::move(targets)), clock_(clock) {}

  absl::StatusOr<int32_t> SetWanted(const std::string& role, const std::string& pool,
                                    int32_t replicas, Surplus surplus) override
      ABSL_LOCKS_EXCLUDED(mu_);
  // May be some seconds old. Omits targets that were never read successfully.
  std::map<std::string, int32_t> Wanted() override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  KubernetesApi& api_;
  const std::map<std::string, ScaleTarget> targets_;
  const Clock& clock_;
  Mutex mu_;
  bool asking_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time ask_again_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::map<std::string, int32_t> wanted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_SCALER_H_
