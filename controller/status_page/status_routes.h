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
// 404. A request whose Host is no loopback name is refused with 403: a page of a foreign name that
// resolves to this machine must not read it. Answers carry a policy by which a browser loads
// nothing from elsewhere.
runtime::HttpResponse AnswerStatusRequest(StatusSource& source, const runtime::HttpRequest& request,
                                          absl::Time now);

// Serves the page on `listen`, a loopback HOST:PORT; port 0 is any free one. `source` and `clock`
// must outlive the server. INVALID_ARGUMENT: another address, which would show jobs to everybody;
// FAILED_PRECONDITION: it cannot be listened on.
absl::StatusOr<std::unique_ptr<runtime::HttpServer>> ServeStatusPage(
    const std::string& listen, StatusSource& source, const Clock& clock = SystemClock::Get());

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_STATUS_PAGE_STATUS_ROUTES_H_
