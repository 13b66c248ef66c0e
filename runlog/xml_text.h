#ifndef FRESHET_RUNLOG_XML_TEXT_H_
#define FRESHET_RUNLOG_XML_TEXT_H_

#include <string>
#include <string_view>

namespace freshet {

// Text for XML content and attribute values: markup escaped; bytes that are not UTF-8 and control
// characters replaced by U+FFFD.
std::string EscapeXml(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_XML_TEXT_H_
