#include "controller/api/api_errors.h"

#include "base/str_cat.h"
#include "controller/jobs/record/deposed.h"
#include "services/runtime/error_details.h"

namespace freshet {

using runtime::ErrorDetails;
using runtime::WithDetails;

absl::Status InvalidJob(const std::vector<ConfigError>& errors) {
  ErrorDetails details;
  details.reason = "INVALID_JOB";
  for (const ConfigError& error : errors) {
    details.violations.push_back(
        {error.path.empty() ? "job" : error.path, FormatConfigError(error)});
  }
  std::string text = FormatConfigErrors(errors);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return WithDetails(InvalidArgument(text), details);
}

absl::Status BadField(const std::string& field, const std::string& text) {
  ErrorDetails details;
  details.reason = "INVALID_FIELD";
  details.violations.push_back({field, text});
  return WithDetails(InvalidArgument(field, ": ", text), details);
}

absl::Status NotLeading(const Leadership::View& leader) {
  ErrorDetails details;
  details.reason = runtime::kNotLeaderReason;
  details.retry_after = absl::Milliseconds(500);
  if (!leader.address.empty() && !leader.leading) {
    details.metadata[runtime::kLeaderMetadata] = leader.address;
  }
  return WithDetails(
      StatusOf(absl::StatusCode::kUnavailable,
               leader.address.empty() || leader.leading
                   ? StrCat("no controller leads at the moment", leader.trouble.empty() ? "" : ": ",
                            leader.trouble, "; try again")
                   : StrCat("this controller stands by; ", leader.address, " leads")),
      details);
}

absl::Status Explained(const absl::Status& status, const std::string& job) {
  if (status.ok() || !runtime::DetailsOf(status).reason.empty()) return status;
  ErrorDetails details;
  if (!job.empty()) details.metadata["job"] = job.substr(0, 128);
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      details.reason = "NOT_FOUND";
      break;
    case absl::StatusCode::kAlreadyExists:
      details.reason = "ALREADY_EXISTS";
      break;
    case absl::StatusCode::kFailedPrecondition:
      details.reason = "WRONG_STATE";
      break;
    case absl::StatusCode::kOutOfRange:
      details.reason = "OUT_OF_RANGE";
      break;
    case absl::StatusCode::kInvalidArgument: {
      details.reason = "INVALID_FIELD";
      const std::string text = Message(status);
      const size_t colon = text.find(": ");
      if (colon != std::string::npos) {
        details.violations.push_back({text.substr(0, colon), text.substr(colon + 2)});
      }
      break;
    }
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
      details.reason = "TRY_AGAIN";
      details.retry_after = absl::Seconds(1);
      break;
    case absl::StatusCode::kResourceExhausted:
      details.reason = "FULL";
      details.retry_after = absl::Seconds(5);
      break;
    default:
      details.reason = "ERROR";
  }
  return WithDetails(status, details);
}

absl::Status Led(const absl::Status& status, const std::string& job,
                 const Leadership::View& leader) {
  return IsDeposed(status) ? NotLeading(leader) : Explained(status, job);
}

}  // namespace freshet
