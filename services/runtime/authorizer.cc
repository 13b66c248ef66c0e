#include "services/runtime/authorizer.h"

#include <grpc/grpc_security_constants.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/series.h"

namespace freshet::runtime {
namespace {

constexpr std::array<const char*, 3> kFailureNames = {"missing", "malformed", "unknown"};

std::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

std::vector<std::string> ValuesOf(const grpc::AuthContext& context, const char* property) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
    values.emplace_back(View(value));
  }
  return values;
}

// URI SANs of the peer's certificate, else its DNS SANs, else its subject. Excludes user
// principals.
std::vector<std::string> PrincipalsOf(const grpc::AuthContext& context) {
  for (const char* property : {GRPC_PEER_URI_PROPERTY_NAME, GRPC_PEER_DNS_PROPERTY_NAME,
                               GRPC_X509_SUBJECT_PROPERTY_NAME}) {
    std::vector<std::string> names = ValuesOf(context, property);
    if (names.empty()) continue;
    std::erase_if(names, [](const std::string& name) { return IsUserPrincipal(name); });
    return names;
  }
  return {};
}

// The token after "Bearer " (RFC 6750); nullopt for other schemes.
std::optional<std::string_view> BearerToken(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view scheme = header.substr(0, kScheme.size());
  if (!absl::EqualsIgnoreCase({scheme.data(), scheme.size()}, {kScheme.data(), kScheme.size()})) {
    return std::nullopt;
  }
  header.remove_prefix(std::min(header.find_first_not_of(' ', kScheme.size()), header.size()));
  if (header.empty()) return std::nullopt;
  return header;
}

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += StrCat(text.empty() ? "" : ",", name);
  return text;
}

}  // namespace

std::vector<std::string> DnsNamesOf(const grpc::AuthContext& context) {
  return ValuesOf(context, GRPC_PEER_DNS_PROPERTY_NAME);
}

absl::StatusOr<std::shared_ptr<Authorizer>> Authorizer::Create(const EndpointOptions& options,
                                                               prometheus::Registry* registry,
                                                               const Clock& clock) {
  std::shared_ptr<Authorizer> authorizer(new Authorizer());
  // The authorizer owns the files, so the raw pointer stays valid.
  const auto on_change = [one = authorizer.get()](bool taken) {
    prometheus::Counter* const counter = taken ? one->reloads_ok_ : one->reloads_failed_;
    if (counter != nullptr) counter->Increment();
  };
  WatchedFile<AuthorizationPolicy>::Options policy;
  policy.path = options.authz_policy;
  policy.what = "policy";
  policy.refresh = options.tls.refresh;
  policy.on_change = on_change;
  FRESHET_ASSIGN_OR_RETURN(
      authorizer->policy_,
      WatchedFile<AuthorizationPolicy>::Open(std::move(policy), ParseAuthorizationPolicy, clock));
  if (!options.users.empty()) {
    WatchedFile<UserList>::Options users;
    users.path = options.users;
    users.what = "users";
    users.refresh = options.tls.refresh;
    users.on_change = on_change;
    FRESHET_ASSIGN_OR_RETURN(authorizer->users_,
                             WatchedFile<UserList>::Open(std::move(users), ParseUserList, clock));
  }
  if (registry != nullptr) authorizer->Register(*registry, !options.users.empty());
  return authorizer;
}

void Authorizer::Register(prometheus::Registry& registry, bool users) {
  denied_ = &metrics::CounterFamily(registry, "freshet_authz_denied_total",
                                    "Calls that the authorization policy denied.")
                 .Add({});
  auto& reloads = metrics::CounterFamily(registry, "freshet_authz_reloads_total",
                                         "Reloads of the policy and users files, by result.");
  reloads_ok_ = &reloads.Add({{"result", "ok"}});
  reloads_failed_ = &reloads.Add({{"result", "error"}});
  if (!users) return;
  auto& failures = metrics::CounterFamily(
      registry, "freshet_authn_failures_total",
      "Calls whose token is unknown or malformed, and denied ones that have none (missing).");
  for (size_t i = 0; i < failures_.size(); ++i) {
    failures_[i] = &failures.Add({{"reason", kFailureNames[i]}});
  }
}

void Authorizer::Count(Failure failure) {
  if (failures_[failure] != nullptr) failures_[failure]->Increment();
}

absl::StatusOr<std::vector<std::string>> Authorizer::Identify(
    std::vector<std::string> names, const std::vector<std::string_view>& authorization) {
  if (users_ == nullptr || authorization.empty()) return names;
  const std::optional<std::string_view> token =
      authorization.size() == 1 ? BearerToken(authorization.front()) : std::nullopt;
  if (!token.has_value()) {
    Count(kMalformed);
    return absl::UnauthenticatedError("the authorization header must be a single \"Bearer TOKEN\"");
  }
  const std::shared_ptr<const UserList> users = users_->Current();
  const User* const user = FindUser(*users, *token);
  if (user == nullptr) {
    Count(kUnknown);
    return absl::UnauthenticatedError("the token is not known");
  }
  for (std::string& name : PrincipalsOf(*user)) names.push_back(std::move(name));
  return names;
}

AuthorizationDecision Authorizer::Decide(const std::vector<std::string>& principals,
                                         const std::string& path) {
  return DecideAuthorization(*policy_->Current(), principals, path);
}

grpc::Status Authorizer::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                 OutputMetadata*, OutputMetadata*) {
  std::string path;
  if (const auto found = metadata.find(":path"); found != metadata.end()) {
    path = std::string(View(found->second));
  }
  std::vector<std::string_view> authorization;
  const auto [begin, end] = metadata.equal_range("authorization");
  for (auto header = begin; header != end; ++header) authorization.push_back(View(header->second));
  const std::vector<std::string> names = PrincipalsOf(*context);
  const absl::StatusOr<std::vector<std::string>> caller = Identify(names, authorization);
  if (!caller.ok()) {
    FRESHET_LOG(Warning) << "event=token_refused path=" << LogQuoted(path)
                         << " caller=" << LogQuoted(Joined(names))
                         << " reason=" << LogQuoted(Message(caller.status()));
    return {grpc::StatusCode::UNAUTHENTICATED, Message(caller.status())};
  }
  const AuthorizationDecision decision = Decide(*caller, path);
  if (decision.allowed) return grpc::Status::OK;
  if (denied_ != nullptr) denied_->Increment();
  // The rule is logged for the operator but not sent to the caller.
  FRESHET_LOG(Warning) << "event=call_denied path=" << LogQuoted(path)
                       << " caller=" << LogQuoted(Joined(*caller))
                       << " reason=" << LogQuoted(decision.reason);
  if (users_ == nullptr || !authorization.empty()) {
    return {grpc::StatusCode::PERMISSION_DENIED, "the policy does not allow this call"};
  }
  Count(kMissing);
  return {grpc::StatusCode::PERMISSION_DENIED,
          "the policy does not allow this call without a token"};
}

}  // namespace freshet::runtime
