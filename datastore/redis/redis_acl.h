#ifndef FRESHET_DATASTORE_REDIS_REDIS_ACL_H_
#define FRESHET_DATASTORE_REDIS_REDIS_ACL_H_

#include <map>
#include <string>
#include <string_view>

namespace freshet {

// Roles with a Redis user of their own, and what each may do: a rule list of ACL SETUSER without
// passwords. From helm/freshet/redis-roles.acl.
const std::map<std::string, std::string>& RedisRoles();

// Lines of redis.conf, or of an ACL file, that define a user per role. `passwords` has an entry for
// each of RedisRoles() and for "default", which may do everything. Only hashes are written.
std::string RedisAclText(const std::map<std::string, std::string>& passwords);

// The text of helm/freshet/redis-roles.acl.
std::string_view RedisRolesFile();

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_ACL_H_
