#include "cli/client/call_fault.h"

#include <string_view>

#include "absl/strings/str_split.h"
#include "base/str_cat.h"
#include "cli/format/paint.h"
#include "runlog/display_format.h"
#include "services/runtime/error_details.h"

namespace freshet {
namespace {

constexpr size_t kMostLines = 20;

// Whether the text says what to do. Freshet's messages put that after a semicolon.
bool NamesFix(std::string_view text) { return text.find(';') != std::string_view::npos; }

std::string WithFix(std::string text, const std::string& fix) {
  if (fix.empty() || NamesFix(text)) return text;
  return text + "; " + fix;
}

std::string FixFor(const absl::Status& status, const runtime::ErrorDetails& details) {
  if (details.retry_after) {
    return StrCat("try again in ", HumanSeconds(absl::ToDoubleSeconds(*details.retry_after)));
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return "freshet list names the jobs";
    case absl::StatusCode::kAlreadyExists:
      return "choose another --id, or leave it out";
    case absl::StatusCode::kInvalidArgument:
      return "correct it and try again; freshet COMMAND --help";
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
      return "freshet describe JOB shows its state";
    case absl::StatusCode::kResourceExhausted:
      return "try again later";
    case absl::StatusCode::kPermissionDenied:
      return "request permission, or use another --token-file or --cert";
    case absl::StatusCode::kUnauthenticated:
      return "use another --token-file; ask an admin of the cluster for a token";
    case absl::StatusCode::kUnimplemented:
      return "the server is of another version; compare freshet --version with freshet top";
    case absl::StatusCode::kOutOfRange:
      return "start without a cursor";
    default:
      return "freshet logs --role controller may say more";
  }
}

// gRPC's text for a refused connection, without its repetitions.
std::string ConnectError(const std::string& message) {
  constexpr std::string_view kCause = "Failed to connect to remote host: ";
  const size_t at = message.rfind(kCause);
  return OneLine(at == std::string::npos ? message : message.substr(at + kCause.size()));
}

// Redis refused the controller or a worker, so nothing on the client's side would help.
std::string WithRedisFix(std::string text) {
  const bool password =
      text.find("NOAUTH") != std::string::npos || text.find("WRONGPASS") != std::string::npos ||
      text.find("a password is given but the server has none") != std::string::npos;
  if (!password) return text;
  constexpr std::string_view kRetry = "; try again";
  if (text.ends_with(kRetry)) text.resize(text.size() - kRetry.size());
  return text +
         "; start the controller and the workers with --redis-password-file FILE or the variable "
         "FRESHET_REDIS_PASSWORD, as Redis's requirepass says";
}

}  // namespace

ExitCode CallExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kUnavailable:
      return kExitNoConnection;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimeout;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return kExitInternal;
    default:
      return kExitRefused;
  }
}

std::vector<std::string> CallErrorLines(const absl::Status& status, const ServerTarget& target) {
  const runtime::ErrorDetails details = runtime::DetailsOf(status);
  const std::string where = StrCat(target.address, " (", target.source, ")");
  if (status.code() == absl::StatusCode::kUnavailable && details.reason.empty()) {
    return {StrCat("no connection to ", where, ": ", ConnectError(Message(status)),
                   "; start a cluster with freshet cluster up, or name another with --server")};
  }
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    return {StrCat("no answer from ", where,
                   " in time; freshet cluster status, or freshet doctor, "
                   "may say why")};
  }
  std::vector<std::string> lines;
  for (const runtime::FieldViolation& violation : details.violations) {
    const std::string text = OneLine(violation.description);
    // The description of a job file error starts with its place.
    const bool placed = violation.field.empty() || text.find(violation.field) != std::string::npos;
    lines.push_back(placed ? text : StrCat(OneLine(violation.field), ": ", text));
  }
  if (lines.empty()) {
    lines = absl::StrSplit(Printable(Message(status)), '\n', absl::SkipEmpty());
    if (lines.empty()) lines.push_back(absl::StatusCodeToString(status.code()));
    lines.back() = WithFix(WithRedisFix(lines.back()), FixFor(status, details));
  }
  if (lines.size() > kMostLines) {
    const size_t more = lines.size() - kMostLines;
    lines.resize(kMostLines);
    lines.push_back(StrCat("and ", more, " more"));
  }
  return lines;
}

}  // namespace freshet
