#ifndef FRESHET_RUNLOG_XML_TEXT_H_
#define FRESHET_RUNLOG_XML_TEXT_H_

#include <string>
#include <string_view>

namespace freshet {

// Escapes text for XML content and attribute values. Replaces invalid UTF-8 and control characters
// with U+FFFD.
std::string EscapeXml(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_XML_TEXT_H_
