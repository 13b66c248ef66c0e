#ifndef FRESHET_CONTROLLER_STATUS_PAGE_STATUS_FILES_H_
#define FRESHET_CONTROLLER_STATUS_PAGE_STATUS_FILES_H_

#include <string_view>

namespace freshet {

// status.html, status.js and status.css as of build time. Static storage.
std::string_view StatusHtml();
std::string_view StatusJs();
std::string_view StatusCss();

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_STATUS_PAGE_STATUS_FILES_H_
