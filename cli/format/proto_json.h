#ifndef FRESHET_CLI_FORMAT_PROTO_JSON_H_
#define FRESHET_CLI_FORMAT_PROTO_JSON_H_

#include <string>

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace freshet {

// A message as scripts want it, unlike protobuf's own JSON: names as in the proto, 64-bit integers
// as numbers, enums without their prefix ("RUNNING"), timestamps as RFC 3339 in UTC, texts named
// `..._json` parsed in place (under the name without the suffix), maps that a job file writes
// inline written inline. Fields whose absence has a meaning are left out when absent. Keys stand in
// the order of the proto, those of maps by name.
nlohmann::ordered_json ProtoToJson(const google::protobuf::Message& message);

// `value` as block-style YAML; a YAML reader gives the same value back. Ends with a newline.
std::string JsonToYaml(const nlohmann::ordered_json& value);

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_PROTO_JSON_H_
