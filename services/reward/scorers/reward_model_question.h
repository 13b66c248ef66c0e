#ifndef FRESHET_SERVICES_REWARD_SCORERS_REWARD_MODEL_QUESTION_H_
#define FRESHET_SERVICES_REWARD_SCORERS_REWARD_MODEL_QUESTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "services/reward/scorers/http_question.h"

namespace freshet {

// A model with a scalar head that scores a completion.
struct RewardModel {
  std::string model;  // as its server names it
  // Template of the scored text; "": a conversation of the prompt and the completion, which the
  // server renders with the model's chat template.
  std::string text;
};

// Asks a server for the model's output, as vLLM's POST /pooling with task `classify` and without
// activation gives it. An answer without exactly one finite number is INTERNAL.
//
// INVALID_ARGUMENT: the text cannot be parsed, or does not contain the response.
absl::StatusOr<HttpQuestion> RewardModelQuestion(RewardModel reward);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_REWARD_MODEL_QUESTION_H_
