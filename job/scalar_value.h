#ifndef FRESHET_JOB_SCALAR_VALUE_H_
#define FRESHET_JOB_SCALAR_VALUE_H_

#include <string>
#include <string_view>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace freshet {

// "an integer", "a number", "true or false", "text".
const char* ScalarTypeName(google::protobuf::FieldDescriptor::CppType type);

// Parses `text` as the type of `field` (int64, double, bool, string) and stores it in `message`;
// appends if the field is repeated. Returns false and stores nothing if the text has another type.
// Integers are decimal and fit in 64 bits, numbers are finite, booleans are `true` and `false`.
bool StoreScalar(std::string_view text, const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message& message);

// `text` as a YAML scalar: plain if unambiguous, otherwise double-quoted.
std::string QuoteText(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_JOB_SCALAR_VALUE_H_
