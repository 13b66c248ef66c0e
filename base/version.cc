#include "base/version.h"

#include "base/str_cat.h"

namespace freshet {

const char* Version() { return FRESHET_VERSION; }

std::string VersionLine(std::string_view program) { return StrCat(program, " ", Version()); }

}  // namespace freshet
