#include "services/runtime/peer_name.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "base/str_cat.h"

namespace freshet::runtime {
namespace {

constexpr std::string_view kRole = "{role}";
constexpr size_t kMaxNameBytes = 253;

}  // namespace

std::string PeerName(const std::string& pattern, std::string_view role) {
  std::string name = pattern;
  for (size_t at = name.find(kRole); at != std::string::npos; at = name.find(kRole, at)) {
    name.replace(at, kRole.size(), role);
    at += role.size();
  }
  return name;
}

absl::Status ValidatePeerName(const std::string& pattern) {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const std::string name = PeerName(pattern, "controller");
  if (!name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
      name.find("..") == std::string::npos &&
      name.find_first_not_of(kLetters) == std::string::npos) {
    return absl::OkStatus();
  }
  return InvalidArgument("--tls-peer-name ", pattern,
                         " does not give a DNS name; use a form like freshet-{role}.rl.svc");
}

bool HasDnsName(const std::vector<std::string>& names, const std::string& name) {
  const size_t dot = name.find('.');
  const std::string wildcard = dot == std::string::npos ? "" : StrCat("*", name.substr(dot));
  return std::any_of(names.begin(), names.end(), [&](const std::string& one) {
    return !one.empty() &&
           (absl::EqualsIgnoreCase(one, name) || absl::EqualsIgnoreCase(one, wildcard));
  });
}

}  // namespace freshet::runtime
