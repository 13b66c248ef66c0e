#include "services/runtime/user_list.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <set>

#include "base/digest.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/json_keys.h"

namespace freshet::runtime {
namespace {

using nlohmann::json;

constexpr size_t kMaxListBytes = 1 << 20;
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kHashDigits = 64;
constexpr std::string_view kUserPrefix = "user:";
constexpr std::string_view kRolePrefix = "role:";
constexpr char kNameLetters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+";

absl::StatusOr<std::string> TextAt(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return InvalidArgument(where, ".", key, ": a text is needed");
  }
  return found->get<std::string>();
}

absl::StatusOr<User> ReadUser(const json& object, const std::string& where) {
  FRESHET_RETURN_IF_ERROR(CheckKeys(object, where, {"name", "role", "token_sha256"}));
  User user;
  FRESHET_ASSIGN_OR_RETURN(user.name, TextAt(object, "name", where));
  FRESHET_ASSIGN_OR_RETURN(user.role, TextAt(object, "role", where));
  FRESHET_ASSIGN_OR_RETURN(user.token_sha256, TextAt(object, "token_sha256", where));
  if (user.name.empty() || user.name.size() > kMaxNameBytes ||
      user.name.find_first_not_of(kNameLetters) != std::string::npos) {
    return InvalidArgument(where, ".name: 1 to ", kMaxNameBytes,
                           " letters, digits and -_.@+ are needed");
  }
  if (user.role != "viewer" && user.role != "submitter" && user.role != "admin") {
    return InvalidArgument(where, ".role: viewer, submitter or admin is needed");
  }
  std::transform(
      user.token_sha256.begin(), user.token_sha256.end(), user.token_sha256.begin(),
      [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (user.token_sha256.size() != kHashDigits ||
      user.token_sha256.find_first_not_of("0123456789abcdef") != std::string::npos) {
    // The value is not quoted, because it may be the token itself.
    return InvalidArgument(where, ".token_sha256: the SHA-256 of the token is needed, ",
                           kHashDigits, " hex digits");
  }
  return user;
}

}  // namespace

absl::StatusOr<UserList> ParseUserList(std::string_view text) {
  if (text.size() > kMaxListBytes) {
    return InvalidArgument("users: ", text.size(), " bytes, more than the limit of ",
                           kMaxListBytes);
  }
  FRESHET_ASSIGN_OR_RETURN(const json document, ParseJson(text, "users", {.max_depth = 8}));
  FRESHET_RETURN_IF_ERROR(CheckKeys(document, "top level", {"users"}));
  const auto entries = document.find("users");
  if (entries == document.end() || !entries->is_array()) {
    return InvalidArgument("users: a list of {name, role, token_sha256} is needed");
  }
  UserList list;
  std::set<std::string> hashes;
  for (size_t i = 0; i < entries->size(); ++i) {
    const std::string where = StrCat("users[", i, "]");
    FRESHET_ASSIGN_OR_RETURN(User user, ReadUser((*entries)[i], where));
    if (!hashes.insert(user.token_sha256).second) {
      return InvalidArgument(where, ".token_sha256: another entry has the same token");
    }
    list.users.push_back(std::move(user));
  }
  return list;
}

const User* FindUser(const UserList& list, std::string_view token) {
  const std::string hash = Sha256Hex(token);
  const User* found = nullptr;
  for (const User& user : list.users) {
    if (CRYPTO_memcmp(user.token_sha256.data(), hash.data(), kHashDigits) == 0) found = &user;
  }
  return found;
}

std::vector<std::string> PrincipalsOf(const User& user) {
  return {StrCat(kUserPrefix, user.name), StrCat(kRolePrefix, user.role)};
}

bool IsUserPrincipal(std::string_view name) {
  return name.starts_with(kUserPrefix) || name.starts_with(kRolePrefix);
}

}  // namespace freshet::runtime
