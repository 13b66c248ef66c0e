#ifndef FRESHET_SERVICES_REWARD_SERVICE_SANDBOX_SCORER_H_
#define FRESHET_SERVICES_REWARD_SERVICE_SANDBOX_SCORER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/text_template.h"
#include "services/http/http_client.h"
#include "services/reward/scorers/code_tests.h"
#include "services/reward/scorers/score_cache.h"
#include "services/reward/scorers/scorer.h"
#include "services/reward/scorers/scorer_factory.h"
#include "services/runtime/reward_flags.h"

namespace freshet {

// Has a sandbox run the completion's code against the row's tests. Waits for a sandbox that is away
// or busy, as long as a call may take.
//
// Errors besides those of Scorer: FAILED_PRECONDITION: the row's tests are malformed; UNAVAILABLE:
// the sandbox is away, or answers 429, 502 or 503; ABORTED: it lost the program twice (504);
// INTERNAL: it gives no verdict. Thread-safe.
class SandboxScorer final : public Scorer {
 public:
  // INVALID_ARGUMENT: the template of the tests cannot be parsed.
  static absl::StatusOr<std::unique_ptr<SandboxScorer>> Create(std::shared_ptr<HttpClient> sandbox,
                                                               CodeReward reward);
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  SandboxScorer(std::shared_ptr<HttpClient> sandbox, CodeReward reward, TextTemplate tests)
      : sandbox_(std::move(sandbox)), reward_(std::move(reward)), tests_(std::move(tests)) {}

  const std::shared_ptr<HttpClient> sandbox_;
  const CodeReward reward_;
  const TextTemplate tests_;
};

// Creates scorers of type code that ask the operator's sandbox. Opens no connection. `cache` may be
// null. INVALID_ARGUMENT naming the flag.
absl::StatusOr<CodeScorerFactory> SandboxScorers(const runtime::SandboxFlags& flags,
                                                 std::shared_ptr<ScoreCache> cache);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_SANDBOX_SCORER_H_
