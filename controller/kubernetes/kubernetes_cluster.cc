#include "controller/kubernetes/kubernetes_cluster.h"

#include <stop_token>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/transient.h"
#include "services/http/curl_http_client.h"

namespace freshet {
namespace {

constexpr char kAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";
constexpr absl::Duration kLook = absl::Seconds(1);
constexpr absl::Duration kDeadline = absl::Seconds(2);

std::set<std::string> PoolsIn(const std::map<std::string, ScaleTarget>& targets) {
  std::set<std::string> pools;
  const std::string prefix = "rollout/";
  for (const auto& [key, target] : targets) {
    if (target.resource != ScaleTarget::Resource::kDeployment) continue;
    if (key == "rollout") pools.insert("default");
    if (key.starts_with(prefix)) pools.insert(key.substr(prefix.size()));
  }
  return pools;
}

}  // namespace

absl::StatusOr<KubernetesOptions> KubernetesOfPod(
    const std::string& name_space, const std::function<std::string(const char* name)>& variable) {
  if (!IsObjectName(name_space)) {
    return InvalidArgument("\"", name_space.substr(0, 80), "\" is not a valid namespace");
  }
  const std::string host = variable("KUBERNETES_SERVICE_HOST");
  const std::string port = variable("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return InvalidArgument(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: not running in a pod");
  }
  const bool v6 = host.find(':') != std::string::npos;
  KubernetesOptions options;
  options.server = StrCat("https://", v6 ? "[" : "", host, v6 ? "]" : "", ":", port);
  options.ca_file = StrCat(kAccount, "ca.crt");
  options.token_file = StrCat(kAccount, "token");
  options.name_space = name_space;
  return options;
}

absl::StatusOr<std::unique_ptr<KubernetesCluster>> KubernetesCluster::Create(
    KubernetesOptions options, const Clock& clock) {
  FRESHET_ASSIGN_OR_RETURN(
      std::unique_ptr<HttpClient> http,
      CurlHttpClient::Create({options.server, options.ca_file, options.token_file}));
  return std::make_unique<KubernetesCluster>(std::move(http), options, clock);
}

KubernetesCluster::KubernetesCluster(std::unique_ptr<HttpClient> http,
                                     const KubernetesOptions& options, const Clock& clock)
    : http_(std::move(http)),
      api_(*http_, options.name_space),
      scaler_(api_, options.targets, clock),
      clock_(clock),
      pools_(PoolsIn(options.targets)) {}

KubernetesCluster::~KubernetesCluster() { Stop(); }

void KubernetesCluster::Start(Workers workers) {
  thread_ = std::jthread([this, workers = std::move(workers)](std::stop_token stop) {
    Notification stopped;
    const std::stop_callback wake(stop, [&stopped] { stopped.Notify(); });
    do {
      if (const auto members = workers()) {
        TellCosts(*members);
      } else {
        costs_.Forget();
      }
    } while (!stopped.WaitFor(kLook));
  });
}

void KubernetesCluster::Stop() { thread_ = {}; }

void KubernetesCluster::TellCosts(const std::vector<Member>& workers) {
  for (const PodCost& cost : costs_.Plan(workers, pools_, clock_.Now())) {
    const absl::Status told = api_.SetDeletionCost(cost.pod, cost.cost, kDeadline);
    if (told.ok()) {
      costs_.Told(cost, clock_.Now());
      continue;
    }
    costs_.Failed(cost, clock_.Now());
    FRESHET_LOG(Warning) << "event=deletion_cost_failed pod=" << cost.pod << " cost=" << cost.cost
                         << " error=" << LogQuoted(Message(told));
    // Where nobody answers, one time-out is enough.
    if (IsTransient(told)) return;
  }
}

}  // namespace freshet
