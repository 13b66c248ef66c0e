#ifndef FRESHET_SERVICES_RUNTIME_USER_LIST_H_
#define FRESHET_SERVICES_RUNTIME_USER_LIST_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet::runtime {

// Who has a bearer token, and what for. The token itself is not known here.
struct User {
  std::string name;
  std::string role;          // "viewer", "submitter" or "admin"
  std::string token_sha256;  // 64 lower-case hex digits
};
struct UserList {
  std::vector<User> users;
};

// Parses {"users": [{"name", "role", "token_sha256"}]} of at most 1 MiB. A name may occur several
// times: that person has several tokens. INVALID_ARGUMENT names the place: no JSON, a key that is
// missing or not known, a bad name, role or hash, one hash twice.
absl::StatusOr<UserList> ParseUserList(std::string_view json);

// The user of that token, or null. All entries are compared, each in constant time.
const User* FindUser(const UserList& list, std::string_view token);

// How policies know a user: "user:NAME" and "role:ROLE".
std::vector<std::string> PrincipalsOf(const User& user);
// Whether it is such a name, which a certificate must not have.
bool IsUserPrincipal(std::string_view name);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_USER_LIST_H_
