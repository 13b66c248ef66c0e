#ifndef FRESHET_RUNLOG_PAGE_PAGE_FILES_H_
#define FRESHET_RUNLOG_PAGE_PAGE_FILES_H_

#include <string_view>

namespace freshet {

// The files of this folder as they were at build time. Static storage.
std::string_view PageCss();
std::string_view PageJs();
std::string_view ReportHtml();
std::string_view ReportJs();

}  // namespace freshet

#endif  // FRESHET_RUNLOG_PAGE_PAGE_FILES_H_
