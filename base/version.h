#ifndef FRESHET_BASE_VERSION_H_
#define FRESHET_BASE_VERSION_H_

#include <string>
#include <string_view>

namespace freshet {

// The version that all programs of one build share: "0.1.0".
const char* Version();

// What `PROGRAM --version` prints: "PROGRAM 0.1.0".
std::string VersionLine(std::string_view program);

}  // namespace freshet

#endif  // FRESHET_BASE_VERSION_H_
