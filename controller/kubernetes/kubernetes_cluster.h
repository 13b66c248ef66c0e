#ifndef FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_CLUSTER_H_
#define FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "controller/kubernetes/deletion_costs.h"
#include "controller/kubernetes/kubernetes_scaler.h"
#include "services/http/http_client.h"

namespace freshet {

struct KubernetesOptions {
  std::string server;      // "https://HOST:PORT" of the API server
  std::string ca_file;     // PEM roots
  std::string token_file;  // of the pod's service account
  std::string name_space;
  std::map<std::string, ScaleTarget> targets;  // by PoolKey
};

// Locates the API server from within a pod: environment variables KUBERNETES_SERVICE_HOST and
// _PORT, and the files of the service account. `variable` returns the value of a variable, "" if
// unset. INVALID_ARGUMENT: not in a pod, or an invalid namespace.
absl::StatusOr<KubernetesOptions> KubernetesOfPod(
    const std::string& name_space, const std::function<std::string(const char* name)>& variable);

// The controller's integration with Kubernetes: scales workloads and sets pods' deletion costs.
// Thread-safe.
class KubernetesCluster {
 public:
  // Returns the workers while this controller leads, otherwise nothing. Called on another thread.
  using Workers = std::function<std::optional<std::vector<Member>>()>;

  // Opens no connection. INVALID_ARGUMENT for bad options.
  static absl::StatusOr<std::unique_ptr<KubernetesCluster>> Create(KubernetesOptions options,
                                                                   const Clock& clock);
  KubernetesCluster(std::unique_ptr<HttpClient> http, const KubernetesOptions& options,
                    const Clock& clock);
  // Calls Stop().
  ~KubernetesCluster();

  PoolScaler& scaler() { return scaler_; }
  // Updates deletion costs every second from `workers`.
  void Start(Workers workers);
  void Stop();
  void TellCosts(const std::vector<Member>& workers);

 private:
  const std::unique_ptr<HttpClient> http_;
  KubernetesApi api_;
  KubernetesScaler scaler_;
  const Clock& clock_;
  std::set<std::string> pools_;  // rollout pools that are Deployments
  DeletionCosts costs_;          // used by the thread only
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_CLUSTER_H_
