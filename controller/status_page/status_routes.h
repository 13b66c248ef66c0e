#ifndef FRESHET_CONTROLLER_STATUS_PAGE_STATUS_ROUTES_H_
#define FRESHET_CONTROLLER_STATUS_PAGE_STATUS_ROUTES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "controller/status_page/status_source.h"
#include "services/runtime/http_server.h"

namespace freshet {

// Answers one request for the page or its API: / and its three files, /api/jobs, /api/jobs/ID,
// /api/jobs/ID/metrics?after=&limit=, /api/jobs/ID/samples?limit=, /api/workers. Everything else is
// 404. A request whose Host is not a loopback name is refused with 403, to prevent DNS rebinding.
// Replies carry a content security policy that blocks all external resources.
runtime::HttpResponse AnswerStatusRequest(StatusSource& source, const runtime::HttpRequest& request,
                                          absl::Time now);

// Serves the page on `listen`, a loopback HOST:PORT; port 0 selects a free one. `source` and
// `clock` must outlive the server. INVALID_ARGUMENT: not a loopback address, which would expose
// jobs; FAILED_PRECONDITION: cannot listen on it.
absl::StatusOr<std::unique_ptr<runtime::HttpServer>> ServeStatusPage(
    const std::string& listen, StatusSource& source, const Clock& clock = SystemClock::Get());

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_STATUS_PAGE_STATUS_ROUTES_H_
