#ifndef FRESHET_SERVICES_RUNTIME_USER_LIST_H_
#define FRESHET_SERVICES_RUNTIME_USER_LIST_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet::runtime {

// The owner of a bearer token and its role. Only the token's hash is stored.
struct User {
  std::string name;
  std::string role;          // "viewer", "submitter" or "admin"
  std::string token_sha256;  // 64 lower-case hex digits
};
struct UserList {
  std::vector<User> users;
};

// Parses {"users": [{"name", "role", "token_sha256"}]} of at most 1 MiB. A name may occur several
// times, for several tokens. INVALID_ARGUMENT names the location: invalid JSON, a missing or
// unknown key, a bad name, role or hash, a duplicate hash.
absl::StatusOr<UserList> ParseUserList(std::string_view json);

// The user of that token, or null. Compares all entries, each in constant time.
const User* FindUser(const UserList& list, std::string_view token);

// A user's principals in policies: "user:NAME" and "role:ROLE".
std::vector<std::string> PrincipalsOf(const User& user);
// Whether `name` is such a principal, which certificates must not contain.
bool IsUserPrincipal(std::string_view name);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_USER_LIST_H_
