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
#include "controller/kubernetes/http_client.h"
#include "controller/kubernetes/kubernetes_scaler.h"

namespace freshet {

struct KubernetesOptions {
  std::string server;      // "https://HOST:PORT" of the API server
  std::string ca_file;     // roots in PEM
  std::string token_file;  // of the pod's service account
  std::string name_space;
  std::map<std::string, ScaleTarget> targets;  // by PoolKey
};

// The API server as a pod finds it: the environment variables KUBERNETES_SERVICE_HOST and _PORT,
// and the files of its service account. `variable` gives the value of a variable, "" without one.
// INVALID_ARGUMENT: not in a pod, or a name that no namespace can have.
absl::StatusOr<KubernetesOptions> KubernetesOfPod(
    const std::string& name_space, const std::function<std::string(const char* name)>& variable);

// What a controller does with the Kubernetes that it runs in: scales, and tells pods what their
// deletion costs. Thread-safe.
class KubernetesCluster {
 public:
  // The workers, while this controller leads; nothing else. Called on another thread.
  using Workers = std::function<std::optional<std::vector<Member>>()>;

  // Opens no connection. INVALID_ARGUMENT for bad options.
  static absl::StatusOr<std::unique_ptr<KubernetesCluster>> Create(KubernetesOptions options,
                                                                   const Clock& clock);
  KubernetesCluster(std::unique_ptr<HttpClient> http, const KubernetesOptions& options,
                    const Clock& clock);
  // Stop().
  ~KubernetesCluster();

  PoolScaler& scaler() { return scaler_; }
  // Tells pods what they cost, looking every second at `workers`.
  void Start(Workers workers);
  void Stop();
  // One look.
  void TellCosts(const std::vector<Member>& workers);

 private:
  const std::unique_ptr<HttpClient> http_;
  KubernetesApi api_;
  KubernetesScaler scaler_;
  const Clock& clock_;
  std::set<std::string> pools_;  // of rollouts in Deployments
  DeletionCosts costs_;          // of the thread
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_CLUSTER_H_
