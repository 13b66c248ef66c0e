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

// Workers that are pods: asks Kubernetes for more or fewer of them by the scale of their workload.
// Nobody is told to drain: Kubernetes chooses pods, those with the least deletion cost first, and
// ends them with SIGTERM, which drains them; a pod that ended by itself would be started again.
// Numbers are of workers, also where Kubernetes counts groups of them.
//
// Beside those of PoolScaler, SetWanted has the errors of KubernetesApi, and INVALID_ARGUMENT for a
// pool that is no target, for a number that is no multiple of its groups' size, and for
// Surplus::kStays: Kubernetes says how many there are.
// Thread-safe.
class KubernetesScaler final : public PoolScaler {
 public:
  // `api` and `clock` must outlive the object.
  KubernetesScaler(KubernetesApi& api, std::map<std::string, ScaleTarget> targets,
                   const Clock& clock)
      : api_(api), targets_(std::move(targets)), clock_(clock) {}

  absl::StatusOr<int32_t> SetWanted(const std::string& role, const std::string& pool,
                                    int32_t replicas, Surplus surplus) override
      ABSL_LOCKS_EXCLUDED(mu_);
  // As of some seconds ago; without the targets that could never be asked for.
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
