#ifndef FRESHET_SERVICES_REWARD_SCORERS_HTTP_QUESTION_H_
#define FRESHET_SERVICES_REWARD_SCORERS_HTTP_QUESTION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// What a scorer asks an HTTP server about a completion, and what it makes of the answer. Pure and
// thread-safe.
struct HttpQuestion {
  std::string path;  // of the POST requests, with the leading slash
  // The requests' bodies, JSON. FAILED_PRECONDITION: the row lacks something.
  std::function<absl::StatusOr<std::vector<std::string>>(const ScoreInput& input)> bodies;
  // The reward from the replies (all with status 200), in the order of `bodies`. INTERNAL: a reply
  // gives none.
  std::function<absl::StatusOr<ComponentScore>(const std::vector<std::string>& answers)> verdict;
};

// Creates the scorer that asks one server; its requests take at most `timeout` together.
// INVALID_ARGUMENT: the process knows no such server.
using HttpScorerFactory = std::function<absl::StatusOr<std::unique_ptr<Scorer>>(
    HttpQuestion question, absl::Duration timeout)>;

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_HTTP_QUESTION_H_
