#include "controller/kubernetes/kubernetes_api.h"

#include <limits>
#include <utility>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr size_t kMaxText = 300;

// The reply as an object; discarded if it is none or nested too deeply.
Json ParseObject(const std::string& text) {
  absl::StatusOr<Json> parsed = ParseJson(text, "reply", {.max_depth = kMaxDepth});
  return parsed.ok() && parsed->is_object() ? *std::move(parsed) : Json(Json::value_t::discarded);
}

// The server's error message: `message` of a Status, on one line.
std::string SaidBy(const std::string& body) {
  const Json reply = ParseObject(body);
  std::string text;
  if (!reply.is_discarded()) {
    const auto message = reply.find("message");
    if (message != reply.end() && message->is_string()) text = message->get<std::string>();
  }
  text = text.substr(0, kMaxText);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = ' ';
  }
  return text;
}

absl::StatusCode CodeOf(int status) {
  switch (status) {
    case 401:
    case 403:
      return absl::StatusCode::kFailedPrecondition;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return absl::StatusCode::kAborted;
    case 400:
    case 405:
    case 415:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    default:
      return status >= 500 ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal;
  }
}

std::string FixFor(int status) {
  if (status == 401) return "; the controller's service account has no valid token";
  if (status == 403) {
    return "; the controller's service account needs get and patch of this scale, and patch of "
           "pods";
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> KubernetesApi::Call(const char* method, const std::string& path,
                                                const std::string& body, absl::Duration deadline) {
  HttpCall call;
  call.method = method;
  call.path = path;
  call.body = body;
  if (!body.empty()) call.content_type = "application/merge-patch+json";
  call.deadline = deadline;
  absl::StatusOr<HttpReply> reply = http_.Send(call);
  if (!reply.ok()) {
    return StatusOf(reply.status().code(), "kubernetes: ", method, " ", path, ": ",
                    Message(reply.status()));
  }
  if (reply->status >= 200 && reply->status < 300) return std::move(reply->body);
  const std::string said = SaidBy(reply->body);
  return StatusOf(CodeOf(reply->status), "kubernetes: ", method, " ", path, ": HTTP ",
                  reply->status, said.empty() ? "" : ": ", said, FixFor(reply->status));
}

std::string KubernetesApi::ScalePath(const ScaleTarget& target) const {
  const bool deployment = target.resource == ScaleTarget::Resource::kDeployment;
  return StrCat("/apis/", deployment ? "apps/v1" : "leaderworkerset.x-k8s.io/v1", "/namespaces/",
                namespace_, deployment ? "/deployments/" : "/leaderworkersets/", target.name,
                "/scale");
}

absl::StatusOr<int32_t> KubernetesApi::GetReplicas(const ScaleTarget& target,
                                                   absl::Duration deadline) {
  const std::string path = ScalePath(target);
  FRESHET_ASSIGN_OR_RETURN(const std::string body, Call("GET", path, "", deadline));
  const Json scale = ParseObject(body);
  const absl::Status bad = DataLoss("kubernetes: GET ", path, ": the reply is not a Scale");
  if (scale.is_discarded()) return bad;
  const auto spec = scale.find("spec");
  if (spec == scale.end() || !spec->is_object()) return bad;
  const auto replicas = spec->find("replicas");
  if (replicas == spec->end()) return 0;  // Kubernetes omits 0
  if (!replicas->is_number_unsigned()) return bad;
  const auto value = replicas->get<uint64_t>();
  if (value > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) return bad;
  return static_cast<int32_t>(value);
}

absl::Status KubernetesApi::SetReplicas(const ScaleTarget& target, int32_t replicas,
                                        absl::Duration deadline) {
  Json patch;
  patch["spec"]["replicas"] = replicas;
  return Call("PATCH", ScalePath(target), patch.dump(), deadline).status();
}

absl::Status KubernetesApi::SetDeletionCost(const std::string& pod, int32_t cost,
                                            absl::Duration deadline) {
  if (!IsObjectName(pod)) {
    return InvalidArgument("pod: \"", pod.substr(0, 80), "\" is not a valid pod name");
  }
  Json patch;
  patch["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = StrCat(cost);
  return Call("PATCH", StrCat("/api/v1/namespaces/", namespace_, "/pods/", pod), patch.dump(),
              deadline)
      .status();
}

}  // namespace freshet
