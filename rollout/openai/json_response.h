#ifndef FRESHET_ROLLOUT_OPENAI_JSON_RESPONSE_H_
#define FRESHET_ROLLOUT_OPENAI_JSON_RESPONSE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "services/runtime/http_server.h"

namespace freshet::openai {

runtime::HttpResponse JsonResponse(int status, std::string body);

// The error object for `status`, which is not OK, with the headers that belong to it.
runtime::HttpResponse ErrorResponse(const absl::Status& status);

// Calls `work`. If it throws, the answer is status 500, unless an answer has started.
void AnswerExceptions(runtime::HttpReply& reply, const std::function<void()>& work);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_JSON_RESPONSE_H_
