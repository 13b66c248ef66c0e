#ifndef FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_API_H_
#define FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_API_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/kubernetes/http_client.h"
#include "controller/kubernetes/scale_target.h"

namespace freshet {

// The few calls to the API server of Kubernetes that the controller makes, in one namespace: `get`
// and `patch` of the scale of workloads, `patch` of pods. Every call has a deadline, and a reply
// of at most 1 MiB. Thread-safe.
//
// Errors name the call and what the server says: NOT_FOUND; FAILED_PRECONDITION: the controller's
// account may not do it, or its token was refused; RESOURCE_EXHAUSTED, UNAVAILABLE,
// DEADLINE_EXCEEDED: try again; DATA_LOSS: an answer that cannot be read; INVALID_ARGUMENT: the
// server takes the call for wrong.
class KubernetesApi {
 public:
  // `http` must outlive the object; `name_space` is one that IsObjectName holds for.
  KubernetesApi(HttpClient& http, std::string name_space)
      : http_(http), namespace_(std::move(name_space)) {}

  // Replicas that the workload is asked to have.
  absl::StatusOr<int32_t> GetReplicas(const ScaleTarget& target, absl::Duration deadline);
  absl::Status SetReplicas(const ScaleTarget& target, int32_t replicas, absl::Duration deadline);
  // Among the pods of a set those with the least cost go first. `pod` is one that IsObjectName
  // holds for; INVALID_ARGUMENT otherwise.
  absl::Status SetDeletionCost(const std::string& pod, int32_t cost, absl::Duration deadline);

 private:
  // The body of a reply of success.
  absl::StatusOr<std::string> Call(const char* method, const std::string& path,
                                   const std::string& body, absl::Duration deadline);
  std::string ScalePath(const ScaleTarget& target) const;

  HttpClient& http_;
  const std::string namespace_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_KUBERNETES_KUBERNETES_API_H_
