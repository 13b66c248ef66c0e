#ifndef FRESHET_SERVICES_RUNTIME_AUTHORIZER_H_
#define FRESHET_SERVICES_RUNTIME_AUTHORIZER_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "services/runtime/authorization_policy.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/user_list.h"
#include "services/runtime/watched_file.h"

namespace freshet::runtime {

// DNS names of the peer's certificate; none without a certificate.
std::vector<std::string> DnsNamesOf(const grpc::AuthContext& context);

// Finds out who calls, by certificate and token, and lets the call through when the policy file
// allows it. A call with a token that is not known ends with UNAUTHENTICATED, one that is not
// allowed with PERMISSION_DENIED. Both files are read again when they change. Thread-safe.
class Authorizer final : public grpc::AuthMetadataProcessor {
 public:
  // Of `options` authz_policy, users and tls.refresh count. `registry` (may be null) gets
  // freshet_authz_denied_total and freshet_authz_reloads_total, with users also
  // freshet_authn_failures_total. Returns what reading and parsing say about a file, naming it.
  static absl::StatusOr<std::shared_ptr<Authorizer>> Create(
      const EndpointOptions& options, prometheus::Registry* registry,
      const Clock& clock = SystemClock::Get());

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

  // The principals of a call: `names`, of the caller's certificate, and those of the user whose
  // token is in `authorization`, the values of that header. UNAUTHENTICATED: it is no bearer token,
  // or not known. Without users the header is not looked at.
  absl::StatusOr<std::vector<std::string>> Identify(
      std::vector<std::string> names, const std::vector<std::string_view>& authorization);
  // The decision in force now for those principals.
  AuthorizationDecision Decide(const std::vector<std::string>& principals, const std::string& path);

 private:
  // Why a call is not authenticated; missing: it is denied, and has no token.
  enum Failure { kMissing, kMalformed, kUnknown, kFailures };
  Authorizer() = default;
  void Register(prometheus::Registry& registry, bool users);
  void Count(Failure failure);

  std::unique_ptr<WatchedFile<AuthorizationPolicy>> policy_;
  std::unique_ptr<WatchedFile<UserList>> users_;  // null: tokens are not looked at
  prometheus::Counter* denied_ = nullptr;
  prometheus::Counter* reloads_ok_ = nullptr;
  prometheus::Counter* reloads_failed_ = nullptr;
  std::array<prometheus::Counter*, kFailures> failures_{};
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_AUTHORIZER_H_
