#ifndef FRESHET_ROLLOUT_OPENAI_API_ERROR_H_
#define FRESHET_ROLLOUT_OPENAI_API_ERROR_H_

#include <string>

#include "absl/status/status.h"

namespace freshet::openai {

// INVALID_ARGUMENT about the member `param` of a request's body.
absl::Status ParameterError(const std::string& param, const std::string& message);

// The HTTP status that answers `status`, which is not OK. RESOURCE_EXHAUSTED is 429, UNAVAILABLE
// 503, UNIMPLEMENTED (a method that the path does not have) 405.
int HttpStatusOf(const absl::Status& status);

// OpenAI's error object: {"error": {"message", "type", "param", "code"}}, with the types of vLLM.
std::string ErrorBody(const absl::Status& status);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_API_ERROR_H_
