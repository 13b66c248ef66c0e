#ifndef FRESHET_BASE_VERSION_H_
#define FRESHET_BASE_VERSION_H_

#include <string>
#include <string_view>

namespace freshet {

// Version of this build, shared by all programs: "0.1.0".
const char* Version();

// Output of `PROGRAM --version`: "PROGRAM 0.1.0".
std::string VersionLine(std::string_view program);

}  // namespace freshet

#endif  // FRESHET_BASE_VERSION_H_
