#ifndef FRESHET_BASE_UTF8_H_
#define FRESHET_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace freshet {

// One decoded character. `size` is its length in bytes, or 0 if the bytes are not valid UTF-8 (RFC
// 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
struct Utf8Char {
  char32_t code = 0;
  size_t size = 0;
};

// Decodes the character at `text[at]`. Requires at < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t at);

// Splits `text` into characters. Invalid UTF-8 gives unspecified pieces.
std::vector<std::string> Utf8Characters(std::string_view text);

// "'x' (U+0078)" for printable ASCII, otherwise "U+000A".
std::string DescribeChar(char32_t code);

// Replaces every byte that is not valid UTF-8 with '?'. Protobuf rejects a message that has an
// invalid proto3 string.
std::string ValidUtf8(std::string text);
// Also truncates to `max_bytes`, at a character boundary.
std::string ValidUtf8(std::string text, size_t max_bytes);

}  // namespace freshet

#endif  // FRESHET_BASE_UTF8_H_
