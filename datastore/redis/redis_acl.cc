#include "datastore/redis/redis_acl.h"

#include <sstream>

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet {

const std::map<std::string, std::string>& RedisRoles() {
  static const auto* const roles = [] {
    auto* const parsed = new std::map<std::string, std::string>;
    std::istringstream file{std::string(RedisRolesFile())};
    for (std::string line; std::getline(file, line);) {
      const size_t space = line.find(' ');
      if (!line.starts_with('#')) (*parsed)[line.substr(0, space)] = line.substr(space + 1);
    }
    return parsed;
  }();
  return *roles;
}

std::string RedisAclText(const std::map<std::string, std::string>& passwords) {
  const auto user = [&passwords](const std::string& name, const std::string& rules) {
    return StrCat("user ", name, " reset on #", Sha256Hex(passwords.at(name)), " ", rules, "\n");
  };
  std::string text = user("default", "~* &* +@all");
  for (const auto& [role, rules] : RedisRoles()) text += user(role, rules);
  return text;
}

}  // namespace freshet
