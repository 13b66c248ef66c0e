#ifndef FRESHET_JOB_PROTO_JSON_H_
#define FRESHET_JOB_PROTO_JSON_H_

#include <initializer_list>
#include <string>

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace freshet {

// Converts a message to JSON for scripts. Differs from protobuf's own JSON: proto names, 64-bit
// integers as numbers, enums without prefix ("RUNNING"), timestamps as RFC 3339 in UTC, texts named
// `..._json` parsed in place (without the suffix), maps inlined as in job files. Fields whose
// absence has a meaning are omitted if absent. Keys are in proto order, map keys sorted by name.
nlohmann::ordered_json ProtoToJson(const google::protobuf::Message& message);
// Only these fields; null for an absent one.
nlohmann::ordered_json ProtoToJson(const google::protobuf::Message& message,
                                   std::initializer_list<const char*> fields);

// `value` as block-style YAML that round-trips. Ends with a newline.
std::string JsonToYaml(const nlohmann::ordered_json& value);

}  // namespace freshet

#endif  // FRESHET_JOB_PROTO_JSON_H_
