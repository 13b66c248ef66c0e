#ifndef FRESHET_SERVICES_RUNTIME_AUTHORIZATION_POLICY_H_
#define FRESHET_SERVICES_RUNTIME_AUTHORIZATION_POLICY_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet::runtime {

// A string matcher: exact, "prefix*", "*suffix", or "*" (any non-empty string).
struct StringPattern {
  enum class Kind { kExact, kPrefix, kSuffix, kPresent };
  Kind kind = Kind::kExact;
  std::string text;  // without the star
};
StringPattern ParsePattern(std::string_view text);
bool Matches(const StringPattern& pattern, std::string_view value);

// One rule: both lists must match; an empty list matches everything.
struct AuthorizationRule {
  std::string name;
  std::vector<StringPattern> principals;  // source.principals
  std::vector<StringPattern> paths;       // request.paths: "/pkg.Service/Method"
};

// Authorization policy: JSON of gRFC A43 {name, deny_rules, allow_rules}, restricted to
// source.principals and request.paths.
struct AuthorizationPolicy {
  std::string name;
  std::vector<AuthorizationRule> deny_rules;
  std::vector<AuthorizationRule> allow_rules;
};

// Parses a policy of at most 1 MiB. INVALID_ARGUMENT names the location: invalid JSON, an unknown
// key (including request.headers), no allow_rules, a rule without a name.
absl::StatusOr<AuthorizationPolicy> ParseAuthorizationPolicy(std::string_view json);

struct AuthorizationDecision {
  bool allowed = false;
  std::string reason;  // "deny rule X", "allow rule X" or "no allow rule"
};

// Evaluates deny rules first, then allow rules; the default is deny. `principals` are the peer's
// names: the URI SANs of its certificate, else the DNS SANs, else the subject. A caller without a
// certificate has none and matches only rules without source.principals. Pure. O(rules * patterns).
AuthorizationDecision DecideAuthorization(const AuthorizationPolicy& policy,
                                          const std::vector<std::string>& principals,
                                          std::string_view path);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_AUTHORIZATION_POLICY_H_
