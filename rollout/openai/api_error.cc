#include "rollout/openai/api_error.h"

#include "absl/strings/cord.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet::openai {
namespace {

constexpr char kParamPayload[] = "freshet/param";

const char* TypeOf(int http_status) {
  switch (http_status) {
    case 400:
      return "BadRequestError";
    case 401:
      return "AuthenticationError";
    case 403:
      return "PermissionDeniedError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 409:
      return "ConflictError";
    case 429:
      return "RateLimitError";
    case 503:
      return "ServiceUnavailableError";
    case 504:
      return "TimeoutError";
    default:
      return "InternalServerError";
  }
}

}  // namespace

absl::Status ParameterError(const std::string& param, const std::string& message) {
  absl::Status status = InvalidArgument(param, ": ", message);
  status.SetPayload(kParamPayload, absl::Cord(param));
  return status;
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kUnimplemented:
      return 405;
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorBody(const absl::Status& status) {
  const int code = HttpStatusOf(status);
  const auto param = status.GetPayload(kParamPayload);
  const nlohmann::ordered_json error = {
      {"message", Message(status)},
      {"type", TypeOf(code)},
      {"param", param.has_value() ? nlohmann::ordered_json(std::string(*param)) : nullptr},
      {"code", code}};
  // A message may quote broken UTF-8 of the request.
  return nlohmann::ordered_json{{"error", error}}.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace freshet::openai
