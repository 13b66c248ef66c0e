#ifndef FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_API_H_
#define FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_API_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/kubernetes/scale_target.h"
#include "services/http/http_client.h"

namespace freshet {

// The calls to the Kubernetes API server that the controller makes, in one namespace: `get` and
// `patch` of the scale of workloads, `patch` of pods. Every call has a deadline and a reply limit
// of 1 MiB. Thread-safe.
//
// Errors name the call and the server's message: NOT_FOUND; FAILED_PRECONDITION: the controller's
// account lacks permission, or its token was refused; RESOURCE_EXHAUSTED, UNAVAILABLE,
// DEADLINE_EXCEEDED: retry; DATA_LOSS: the reply cannot be parsed; INVALID_ARGUMENT: the server
// rejected the request.
class KubernetesApi {
 public:
  // `http` must outlive the object. `name_space` must satisfy IsObjectName.
  KubernetesApi(HttpClient& http, std::string name_space)
      : http_(http), namespace_(std::move(name_space)) {}

  // Requested replicas of the workload.
  absl::StatusOr<int32_t> GetReplicas(const ScaleTarget& target, absl::Duration deadline);
  absl::Status SetReplicas(const ScaleTarget& target, int32_t replicas, absl::Duration deadline);
  // Kubernetes deletes the pods with the lowest cost first. INVALID_ARGUMENT unless `pod` satisfies
  // IsObjectName.
  absl::Status SetDeletionCost(const std::string& pod, int32_t cost, absl::Duration deadline);

 private:
  // Returns the body of a successful reply.
  absl::StatusOr<std::string> Call(const char* method, const std::string& path,
                                   const std::string& body, absl::Duration deadline);
  std::string ScalePath(const ScaleTarget& target) const;

  HttpClient& http_;
  const std::string namespace_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_API_H_
