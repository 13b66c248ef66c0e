#include "rollout/openai/json_response.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "rollout/openai/api_error.h"

namespace freshet::openai {

runtime::HttpResponse JsonResponse(int status, std::string body) {
  return {.status = status, .content_type = "application/json", .body = std::move(body)};
}

runtime::HttpResponse ErrorResponse(const absl::Status& status) {
  runtime::HttpResponse response = JsonResponse(HttpStatusOf(status), ErrorBody(status));
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (response.status == 429 || response.status == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  return response;
}

void AnswerExceptions(runtime::HttpReply& reply, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    FRESHET_LOG(Error) << "event=http_failed error=" << LogQuoted(error.what());
    reply.Send(ErrorResponse(absl::InternalError("the server could not handle the request")));
  }
}

}  // namespace freshet::openai
