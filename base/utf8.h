#ifndef FRESHET_BASE_UTF8_H_
#define FRESHET_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace freshet {

// One decoded character. `size` is its length in bytes; 0 when the bytes are not valid UTF-8
// (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
struct Utf8Char {
  char32_t code = 0;
  size_t size = 0;
};

// The character that starts at `text[at]`; at < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t at);

// Offset of the first byte that is not part of valid UTF-8; npos when there is none.
size_t FindInvalidUtf8(std::string_view text);

// Whether `code` has Unicode's White_Space property (what \s matches).
bool IsUnicodeSpace(char32_t code);

// "'x' (U+0078)" for a message; "U+000A" for a character that is not printable ASCII.
std::string DescribeChar(char32_t code);

// `text` with '?' for every byte that is not part of valid UTF-8. A receiver refuses a whole
// message if one of its proto3 strings is not valid.
std::string ValidUtf8(std::string text);
// The first `max_bytes` of it at most, cut between two characters.
std::string ValidUtf8(std::string text, size_t max_bytes);

}  // namespace freshet

#endif  // FRESHET_BASE_UTF8_H_
