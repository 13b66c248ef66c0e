#ifndef FRESHET_SERVICES_RUNTIME_PEER_NAME_H_
#define FRESHET_SERVICES_RUNTIME_PEER_NAME_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace freshet::runtime {

// The name that members of a role have in their certificates: `pattern` with `role` ("trainer") in
// the place of every "{role}".
std::string PeerName(const std::string& pattern, std::string_view role);

// INVALID_ARGUMENT, naming --tls-peer-name: `pattern` makes no DNS name.
absl::Status ValidatePeerName(const std::string& pattern);

// Whether a certificate with these DNS names is one of the host `name`: one of them is `name`, in
// letters of either case, or "*." and what follows the first label of `name`.
bool HasDnsName(const std::vector<std::string>& names, const std::string& name);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_PEER_NAME_H_
