#include "services/runtime/authorizer.h"

#include <grpc/grpc_security_constants.h>
#include <sys/stat.h>

#include <utility>

#include "services/base/file.h"
#include "services/base/log.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet::runtime {
namespace {

constexpr uint64_t kMaxPolicyFileBytes = 1 << 20;

// URI SANs of the peer's certificate, else its DNS SANs, else its subject.
std::vector<std::string> PrincipalsOf(const grpc::AuthContext& context) {
  for (const char* property : {GRPC_PEER_URI_PROPERTY_NAME, GRPC_PEER_DNS_PROPERTY_NAME,
                               GRPC_X509_SUBJECT_PROPERTY_NAME}) {
    std::vector<std::string> names;
    for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
      names.emplace_back(value.data(), value.size());
    }
    if (!names.empty()) return names;
  }
  return {};
}

}  // namespace

absl::StatusOr<std::shared_ptr<Authorizer>> Authorizer::Create(const std::string& path,
                                                               absl::Duration refresh,
                                                               prometheus::Registry* registry,
                                                               const Clock& clock) {
  const Stamp stamp = StampOf(path);
  FRESHET_ASSIGN_OR_RETURN(AuthorizationPolicy policy, Load(path));
  std::shared_ptr<Authorizer> authorizer(new Authorizer(path, refresh, clock));
  if (registry != nullptr) {
    authorizer->denied_ = &prometheus::BuildCounter()
                               .Name("freshet_authz_denied_total")
                               .Help("Calls that the authorization policy denied.")
                               .Register(*registry)
                               .Add({});
    auto& reloads = prometheus::BuildCounter()
                        .Name("freshet_authz_reloads_total")
                        .Help("Changed policy files, by whether they could be used.")
                        .Register(*registry);
    authorizer->reloads_ok_ = &reloads.Add({{"result", "ok"}});
    authorizer->reloads_failed_ = &reloads.Add({{"result", "error"}});
  }
  MutexLock lock(authorizer->mu_);
  authorizer->policy_ = std::make_shared<const AuthorizationPolicy>(std::move(policy));
  authorizer->stamp_ = stamp;
  authorizer->next_look_ = clock.Now() + refresh;
  return authorizer;
}

Authorizer::Stamp Authorizer::StampOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec, info.st_size, info.st_ino};
}

absl::StatusOr<AuthorizationPolicy> Authorizer::Load(const std::string& path) {
  FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxPolicyFileBytes));
  absl::StatusOr<AuthorizationPolicy> policy = ParseAuthorizationPolicy(text);
  if (!policy.ok()) return InvalidArgument(path, ": ", Message(policy.status()));
  return policy;
}

std::shared_ptr<const AuthorizationPolicy> Authorizer::Current() {
  MutexLock lock(mu_);
  const absl::Time now = clock_.Now();
  if (now < next_look_) return policy_;
  next_look_ = now + refresh_;
  const Stamp stamp = StampOf(path_);
  if (stamp == stamp_) return policy_;
  stamp_ = stamp;
  // One small local file, once per change: short enough to hold the lock, which keeps its order.
  absl::StatusOr<AuthorizationPolicy> policy = Load(path_);
  if (policy.ok()) {
    FRESHET_LOG(Info) << "event=policy_reloaded name=" << policy->name;
    policy_ = std::make_shared<const AuthorizationPolicy>(*std::move(policy));
    if (reloads_ok_ != nullptr) reloads_ok_->Increment();
  } else {
    FRESHET_LOG(Error) << "event=policy_kept error=" << Message(policy.status());
    if (reloads_failed_ != nullptr) reloads_failed_->Increment();
  }
  return policy_;
}

AuthorizationDecision Authorizer::Decide(const std::vector<std::string>& principals,
                                         const std::string& path) {
  return DecideAuthorization(*Current(), principals, path);
}

grpc::Status Authorizer::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                 OutputMetadata*, OutputMetadata*) {
  std::string path;
  if (const auto found = metadata.find(":path"); found != metadata.end()) {
    path.assign(found->second.data(), found->second.size());
  }
  const AuthorizationDecision decision = Decide(PrincipalsOf(*context), path);
  if (decision.allowed) return grpc::Status::OK;
  if (denied_ != nullptr) denied_->Increment();
  // Which rule it was is for the operator's eyes only.
  FRESHET_LOG(Warning) << "event=call_denied path=" << path << " reason=\"" << decision.reason
                       << "\"";
  return {grpc::StatusCode::PERMISSION_DENIED, "the policy does not allow this call"};
}

}  // namespace freshet::runtime
