#ifndef FRESHET_CLI_FORMAT_PAINT_H_
#define FRESHET_CLI_FORMAT_PAINT_H_

#include <string>
#include <string_view>

namespace freshet {

// Makes external text safe to print: control characters except newline and tab become U+FFFD, so
// that it cannot move the cursor or change colors.
std::string Printable(std::string_view text);
// The same on one line: line breaks and tabs become spaces.
std::string OneLine(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_CLI_FORMAT_PAINT_H_
