#ifndef FRESHET_CLI_FORMAT_PAINT_H_
#define FRESHET_CLI_FORMAT_PAINT_H_

#include <string>
#include <string_view>

namespace freshet {

inline constexpr const char* kPaintBold = "1";
inline constexpr const char* kPaintDim = "2";
inline constexpr const char* kPaintRed = "31";
inline constexpr const char* kPaintGreen = "32";
inline constexpr const char* kPaintYellow = "33";
inline constexpr const char* kPaintCyan = "36";

// `text` in an ANSI style if `color`, else unchanged.
std::string Paint(std::string_view text, const char* code, bool color);

// Makes external text safe to print: control characters except newline and tab become U+FFFD, so
// that it cannot move the cursor or change colors.
std::string Printable(std::string_view text);
// The same on one line: line breaks and tabs become spaces.
std::string OneLine(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_PAINT_H_
