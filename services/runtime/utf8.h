#ifndef FRESHET_SERVICES_RUNTIME_UTF8_H_
#define FRESHET_SERVICES_RUNTIME_UTF8_H_

#include <cstddef>
#include <string>

namespace freshet::runtime {

// `text` with '?' for every byte that is not part of valid UTF-8: a proto3 string must be valid, or
// the receiver refuses the whole message. For text from outside, such as messages of errors.
std::string ValidUtf8(std::string text);
// The first `max_bytes` of it at most, cut between two characters.
std::string ValidUtf8(std::string text, size_t max_bytes);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_UTF8_H_
