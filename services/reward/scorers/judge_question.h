#ifndef FRESHET_SERVICES_REWARD_SCORERS_JUDGE_QUESTION_H_
#define FRESHET_SERVICES_REWARD_SCORERS_JUDGE_QUESTION_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "services/reward/scorers/http_question.h"

namespace freshet {

// A language model that judges a completion.
struct JudgeReward {
  std::string model;  // as its server names it
  std::string text;   // template of the user's message
  // Name -> what a completion must do to meet it. Empty: the judge gives one score instead.
  std::map<std::string, std::string> criteria;
  int64_t max_score = 10;     // of that score; the least is 0
  int64_t max_tokens = 1024;  // of the judge's answer
  // Asks the server to hold the answer to the verdict's JSON schema (`response_format`).
  bool structured = true;
  // The judge compares the completion with each other one of its group instead.
  bool pairwise = false;
};

// Asks an OpenAI-compatible server's chat completions, at temperature 0. The value is the fraction
// of the criteria that are met, with each one's 0 or 1 as a part; or score / max_score. A pairwise
// judge is asked once for each other completion of the group: the value is the fraction of
// comparisons won, ties count half, and without others it is 0.5. The response is always the first
// of the two, so that a judge's preference for a place is the same for all samples. A verdict that
// is cut, unreadable or out of range is INTERNAL.
//
// INVALID_ARGUMENT: the text cannot be parsed, or does not contain the response and, if pairwise,
// the other one; a criterion named "reason", or any with pairwise.
absl::StatusOr<HttpQuestion> JudgeQuestion(JudgeReward reward);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_JUDGE_QUESTION_H_
