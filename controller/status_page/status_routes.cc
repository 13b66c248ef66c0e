#include "controller/status_page/status_routes.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/status_page/status_files.h"
#include "controller/status_page/status_json.h"
#include "job/job_yaml.h"
#include "runlog/page/page_files.h"
#include "services/runtime/endpoint_options.h"

namespace freshet {
namespace {

using runtime::HttpRequest;
using runtime::HttpResponse;

constexpr int kMaxJobs = 100;
constexpr int64_t kMaxEvents = 1000;
constexpr int64_t kMaxSamples = 100;
constexpr char kJsonType[] = "application/json; charset=utf-8";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return 503;
    default:
      return 500;
  }
}

HttpResponse File(std::string_view text, const char* type) {
  return {200, type, std::string(text)};
}

HttpResponse ErrorResponse(const absl::Status& status) {
  return {HttpCode(status), kJsonType, ErrorToJson(status)};
}

HttpResponse Json(absl::StatusOr<std::string> body) {
  if (!body.ok()) return ErrorResponse(body.status());
  return {200, kJsonType, *std::move(body)};
}

// Value of a key of a query "a=1&b=2"; the default if absent.
absl::StatusOr<int64_t> Number(std::string_view query, std::string_view key, int64_t otherwise,
                               int64_t min, int64_t max) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) != key) continue;
    const std::string_view text = equals == pair.npos ? "" : pair.substr(equals + 1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      return InvalidArgument(key, ": \"", text, "\" is no number from ", min, " to ", max);
    }
    return value;
  }
  return otherwise;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// URL-decodes a path segment; "" if malformed.
std::string Decode(std::string_view segment) {
  std::string text;
  for (size_t i = 0; i < segment.size(); ++i) {
    if (segment[i] != '%') {
      text += segment[i];
      continue;
    }
    if (i + 2 >= segment.size()) return "";
    const int high = HexDigit(segment[i + 1]);
    const int low = HexDigit(segment[i + 2]);
    if (high < 0 || low < 0) return "";
    text += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return text;
}

absl::StatusOr<std::string> ListJobs(StatusSource& source, absl::Time now) {
  FRESHET_ASSIGN_OR_RETURN(const StatusJobs jobs, source.List(kMaxJobs));
  return JobsToJson(source.Identity(), jobs, now);
}

absl::StatusOr<std::string> ShowJob(StatusSource& source, const std::string& id) {
  FRESHET_ASSIGN_OR_RETURN(const job::v1::Job job, source.Get(id));
  return JobToJson(job, WriteJobYaml(job.spec()));
}

absl::StatusOr<std::string> ShowMetrics(StatusSource& source, const std::string& id,
                                        std::string_view query) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t after, Number(query, "after", 0, 0, INT64_MAX));
  FRESHET_ASSIGN_OR_RETURN(const int64_t limit, Number(query, "limit", 500, 1, kMaxEvents));
  FRESHET_ASSIGN_OR_RETURN(const StatusRows rows, source.Metrics(id, after, limit));
  return MetricsToJson(rows);
}

absl::StatusOr<std::string> ShowSamples(StatusSource& source, const std::string& id,
                                        std::string_view query) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t limit, Number(query, "limit", 20, 1, kMaxSamples));
  FRESHET_ASSIGN_OR_RETURN(const std::vector<std::string> rows,
                           source.Samples(id, static_cast<int>(limit)));
  return SamplesToJson(rows);
}

absl::StatusOr<std::string> ShowWorkers(StatusSource& source) {
  FRESHET_ASSIGN_OR_RETURN(const job::v1::Cluster cluster, source.Cluster());
  return WorkersToJson(cluster);
}

// `path` without "/api/jobs/".
HttpResponse AnswerJob(StatusSource& source, std::string_view path, std::string_view query) {
  const size_t slash = path.find('/');
  const std::string id = Decode(path.substr(0, slash));
  const std::string_view part = slash == path.npos ? "" : path.substr(slash);
  if (id.empty()) return ErrorResponse(NotFound("there is no job without an id"));
  if (part.empty()) return Json(ShowJob(source, id));
  if (part == "/metrics") return Json(ShowMetrics(source, id, query));
  if (part == "/samples") return Json(ShowSamples(source, id, query));
  return ErrorResponse(NotFound("a job has /metrics and /samples, not ", part));
}

HttpResponse Route(StatusSource& source, const HttpRequest& request, absl::Time now) {
  constexpr std::string_view kJobs = "/api/jobs/";
  const std::string_view path = request.path;
  if (path == "/") return File(StatusHtml(), "text/html; charset=utf-8");
  if (path == "/status.js") return File(StatusJs(), "text/javascript; charset=utf-8");
  if (path == "/page.js") return File(PageJs(), "text/javascript; charset=utf-8");
  if (path == "/page.css") return File(PageCss(), "text/css; charset=utf-8");
  if (path == "/api/jobs") return Json(ListJobs(source, now));
  if (path == "/api/workers") return Json(ShowWorkers(source));
  if (path.starts_with(kJobs)) {
    return AnswerJob(source, path.substr(kJobs.size()), request.query);
  }
  return ErrorResponse(NotFound("there is nothing at ", path));
}

}  // namespace

HttpResponse AnswerStatusRequest(StatusSource& source, const HttpRequest& request, absl::Time now) {
  HttpResponse response;
  // Clients without the header are not browsers.
  if (!request.host.empty() && !runtime::IsLocalHost(request.host)) {
    response = {403, kJsonType,
                ErrorToJson(StatusOf(absl::StatusCode::kPermissionDenied,
                                     "the status page is for this machine: use 127.0.0.1 or "
                                     "localhost"))};
  } else {
    response = Route(source, request, now);
  }
  response.headers = {{"Content-Security-Policy", kPolicy}, {"Referrer-Policy", "no-referrer"}};
  return response;
}

absl::StatusOr<std::unique_ptr<runtime::HttpServer>> ServeStatusPage(const std::string& listen,
                                                                     StatusSource& source,
                                                                     const Clock& clock) {
  if (!runtime::IsLoopback(listen)) {
    return InvalidArgument("--status-listen ", listen,
                           " is not a loopback address: reach the page by a port-forward, or put "
                           "an authenticating proxy in front of it");
  }
  return runtime::HttpServer::Start(
      listen,
      [&source, &clock](const HttpRequest& request) {
        return AnswerStatusRequest(source, request, clock.Now());
      },
      runtime::HttpLimits{.flag = "--status-listen"});
}

}  // namespace freshet
