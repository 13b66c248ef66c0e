#ifndef FRESHET_SERVICES_RUNTIME_PEER_NAME_H_
#define FRESHET_SERVICES_RUNTIME_PEER_NAME_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace freshet::runtime {

// The name in the certificates of members with `role`: `pattern` with every "{role}" replaced by
// `role` ("trainer").
std::string PeerName(const std::string& pattern, std::string_view role);

// INVALID_ARGUMENT, naming --tls-peer-name, if `pattern` does not give a DNS name.
absl::Status ValidatePeerName(const std::string& pattern);

// Whether a certificate with these DNS names is valid for host `name`: one of them equals `name`,
// ignoring case, or is "*." plus `name` without its first label.
bool HasDnsName(const std::vector<std::string>& names, const std::string& name);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_PEER_NAME_H_
