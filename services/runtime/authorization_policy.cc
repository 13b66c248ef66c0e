#include "services/runtime/authorization_policy.h"

#include <algorithm>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/runtime/json_keys.h"

namespace freshet::runtime {
namespace {

using nlohmann::json;

constexpr size_t kMaxPolicyBytes = 1 << 20;
constexpr int kMaxDepth = 16;

absl::StatusOr<std::string> ReadName(const json& object, const std::string& where) {
  const auto found = object.find("name");
  if (found == object.end() || !found->is_string() || found->get<std::string>().empty()) {
    return InvalidArgument(where, ".name: a text that is not empty is needed");
  }
  return found->get<std::string>();
}

// Reads `rule.outer.inner`, a list of patterns.
absl::StatusOr<std::vector<StringPattern>> ReadPatterns(const json& rule, const char* outer,
                                                        const char* inner,
                                                        const std::string& where) {
  std::vector<StringPattern> patterns;
  if (!rule.contains(outer)) return patterns;
  const json& object = rule.at(outer);
  FRESHET_RETURN_IF_ERROR(CheckKeys(object, StrCat(where, ".", outer), {inner}));
  if (!object.contains(inner)) return patterns;
  const json& list = object.at(inner);
  const std::string place = StrCat(where, ".", outer, ".", inner);
  if (!list.is_array()) return InvalidArgument(place, ": not a list");
  for (const json& item : list) {
    if (!item.is_string()) return InvalidArgument(place, ": every entry must be a text");
    patterns.push_back(ParsePattern(item.get<std::string>()));
  }
  return patterns;
}

absl::StatusOr<std::vector<AuthorizationRule>> ReadRules(const json& policy, const char* key) {
  std::vector<AuthorizationRule> rules;
  if (!policy.contains(key)) return rules;
  const json& list = policy.at(key);
  if (!list.is_array()) return InvalidArgument(key, ": not a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = StrCat(key, "[", i, "]");
    FRESHET_RETURN_IF_ERROR(CheckKeys(list[i], where, {"name", "source", "request"}));
    AuthorizationRule rule;
    FRESHET_ASSIGN_OR_RETURN(rule.name, ReadName(list[i], where));
    FRESHET_ASSIGN_OR_RETURN(rule.principals, ReadPatterns(list[i], "source", "principals", where));
    FRESHET_ASSIGN_OR_RETURN(rule.paths, ReadPatterns(list[i], "request", "paths", where));
    rules.push_back(std::move(rule));
  }
  return rules;
}

bool MatchesAny(const std::vector<StringPattern>& patterns, std::string_view value) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const StringPattern& pattern) { return Matches(pattern, value); });
}

bool RuleMatches(const AuthorizationRule& rule, const std::vector<std::string>& principals,
                 std::string_view path) {
  const bool source =
      rule.principals.empty() ||
      std::any_of(principals.begin(), principals.end(),
                  [&](const std::string& name) { return MatchesAny(rule.principals, name); });
  return source && (rule.paths.empty() || MatchesAny(rule.paths, path));
}

}  // namespace

StringPattern ParsePattern(std::string_view text) {
  using Kind = StringPattern::Kind;
  if (text == "*") return {Kind::kPresent, ""};
  if (!text.empty() && text.back() == '*') {
    return {Kind::kPrefix, std::string(text.substr(0, text.size() - 1))};
  }
  if (!text.empty() && text.front() == '*') return {Kind::kSuffix, std::string(text.substr(1))};
  return {Kind::kExact, std::string(text)};
}

bool Matches(const StringPattern& pattern, std::string_view value) {
  switch (pattern.kind) {
    case StringPattern::Kind::kExact:
      return value == pattern.text;
    case StringPattern::Kind::kPrefix:
      return value.starts_with(pattern.text);
    case StringPattern::Kind::kSuffix:
      return value.ends_with(pattern.text);
    case StringPattern::Kind::kPresent:
      return !value.empty();
  }
  return false;
}

absl::StatusOr<AuthorizationPolicy> ParseAuthorizationPolicy(std::string_view text) {
  if (text.size() > kMaxPolicyBytes) {
    return InvalidArgument("policy: ", text.size(), " bytes, more than the limit of ",
                           kMaxPolicyBytes);
  }
  if (NestsDeeper(text, kMaxDepth)) {
    return InvalidArgument("policy: nested deeper than ", kMaxDepth, " levels");
  }
  const json document = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return InvalidArgument("policy: not JSON");
  FRESHET_RETURN_IF_ERROR(CheckKeys(document, "policy", {"name", "deny_rules", "allow_rules"}));
  AuthorizationPolicy policy;
  FRESHET_ASSIGN_OR_RETURN(policy.name, ReadName(document, "policy"));
  FRESHET_ASSIGN_OR_RETURN(policy.deny_rules, ReadRules(document, "deny_rules"));
  FRESHET_ASSIGN_OR_RETURN(policy.allow_rules, ReadRules(document, "allow_rules"));
  if (policy.allow_rules.empty()) {
    return InvalidArgument("allow_rules: at least one rule is needed, or every call is denied");
  }
  return policy;
}

AuthorizationDecision DecideAuthorization(const AuthorizationPolicy& policy,
                                          const std::vector<std::string>& principals,
                                          std::string_view path) {
  for (const AuthorizationRule& rule : policy.deny_rules) {
    if (RuleMatches(rule, principals, path)) return {false, StrCat("deny rule ", rule.name)};
  }
  for (const AuthorizationRule& rule : policy.allow_rules) {
    if (RuleMatches(rule, principals, path)) return {true, StrCat("allow rule ", rule.name)};
  }
  return {false, "no allow rule"};
}

}  // namespace freshet::runtime
