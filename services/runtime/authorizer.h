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

// DNS names of the peer's certificate; empty without a certificate.
std::vector<std::string> DnsNamesOf(const grpc::AuthContext& context);

// Identifies callers by certificate and token, and authorizes calls by the policy file. Calls with
// an unknown token fail with UNAUTHENTICATED, denied calls with PERMISSION_DENIED. Both files are
// reloaded when they change. Thread-safe.
class Authorizer final : public grpc::AuthMetadataProcessor {
 public:
  // Uses authz_policy, users and tls.refresh of `options`. `registry` (may be null) gets
  // freshet_authz_denied_total, freshet_authz_reloads_total and, with users,
  // freshet_authn_failures_total. Errors of reading and parsing name the file.
  static absl::StatusOr<std::shared_ptr<Authorizer>> Create(
      const EndpointOptions& options, prometheus::Registry* registry,
      const Clock& clock = SystemClock::Get());

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

  // The principals of a call: `names`, from the caller's certificate, and those of the user whose
  // token is in `authorization`, the values of that header. UNAUTHENTICATED: not a bearer token, or
  // unknown. Without users the header is ignored.
  absl::StatusOr<std::vector<std::string>> Identify(
      std::vector<std::string> names, const std::vector<std::string_view>& authorization);
  // The current policy's decision for those principals.
  AuthorizationDecision Decide(const std::vector<std::string>& principals, const std::string& path);

 private:
  // Why a call is not authenticated. kMissing: it is denied and has no token.
  enum Failure { kMissing, kMalformed, kUnknown, kFailures };
  Authorizer() = default;
  void Register(prometheus::Registry& registry, bool users);
  void Count(Failure failure);

  std::unique_ptr<WatchedFile<AuthorizationPolicy>> policy_;
  std::unique_ptr<WatchedFile<UserList>> users_;  // null: tokens are ignored
  prometheus::Counter* denied_ = nullptr;
  prometheus::Counter* reloads_ok_ = nullptr;
  prometheus::Counter* reloads_failed_ = nullptr;
  std::array<prometheus::Counter*, kFailures> failures_{};
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_AUTHORIZER_H_
