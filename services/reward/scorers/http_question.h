#ifndef FRESHET_SERVICES_REWARD_SCORERS_HTTP_QUESTION_H_
#define FRESHET_SERVICES_REWARD_SCORERS_HTTP_QUESTION_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// What a scorer asks an HTTP server about a completion, and what it makes of the answer. Pure and
// thread-safe.
struct HttpQuestion {
  std::string path;  // of the POST request, with the leading slash
  // The request's body, JSON. FAILED_PRECONDITION: the row lacks something.
  std::function<absl::StatusOr<std::string>(const ScoreInput& input)> body;
  // The reward that an answer with status 200 gives. INTERNAL: it gives none.
  std::function<absl::StatusOr<ComponentScore>(std::string_view answer)> verdict;
};

// Creates the scorer that asks one server; a call takes at most `timeout`. INVALID_ARGUMENT: the
// process knows no such server.
using HttpScorerFactory = std::function<absl::StatusOr<std::unique_ptr<Scorer>>(
    HttpQuestion question, absl::Duration timeout)>;

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_HTTP_QUESTION_H_
