#ifndef FRESHET_JOB_SCALAR_VALUE_H_
#define FRESHET_JOB_SCALAR_VALUE_H_

#include <string>
#include <string_view>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace freshet {

// "an integer", "a number", "true or false", "text".
const char* ScalarTypeName(google::protobuf::FieldDescriptor::CppType type);

// Reads `text` as the type of `field` (int64, double, bool, string) into `message`; appends when
// the field is repeated. False, and nothing is stored, when the text is not of that type: integers
// are decimal and fit 64 bits, numbers are finite, truth values are `true` and `false`.
bool StoreScalar(std::string_view text, const google::protobuf::FieldDescriptor& field,
                 google::protobuf::Message& message);

// The value as YAML that StoreScalar's caller reads back: numbers exactly, text quoted where
// needed. `index` selects an item of a repeated field.
std::string ScalarText(const google::protobuf::Message& message,
                       const google::protobuf::FieldDescriptor& field, int index = 0);

// `text` as a YAML scalar: plain when it is a harmless word, else in double quotes.
std::string QuoteText(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_JOB_SCALAR_VALUE_H_
