#ifndef FRESHET_SERVICES_REWARD_SERVICE_HTTP_SCORER_H_
#define FRESHET_SERVICES_REWARD_SERVICE_HTTP_SCORER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/http/http_client.h"
#include "services/reward/scorers/http_question.h"
#include "services/reward/scorers/score_cache.h"
#include "services/reward/scorers/scorer.h"
#include "services/runtime/reward_flags.h"

namespace freshet {

// Asks an HTTP server about each completion: a sandbox, a judge or a reward model. Sends the
// question's requests one after another; all of them, with waits for a server that is away or busy,
// take at most the call's timeout. Each request that is sent counts against ScoreInput::calls,
// unless its answer is 401, 403, 408, 429, 502, 503 or 529: the next request takes its place.
//
// Errors besides those of Scorer and of the question: UNAVAILABLE: the server is away or busy
// (408, 429, 502, 503, 529), the operator's files or token are wrong (401, 403), or no call is left
// or can be counted; ABORTED: it failed on one request twice (other 5xx); INTERNAL: any other
// status. Thread-safe.
class HttpScorer final : public Scorer {
 public:
  // `name`: of the server, in messages.
  HttpScorer(std::string name, std::shared_ptr<HttpClient> server, HttpQuestion question,
             absl::Duration timeout)
      : name_(std::move(name)),
        server_(std::move(server)),
        question_(std::move(question)),
        timeout_(timeout) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  // Sends `call`, again while the server is away or busy, until `deadline` (sets call.deadline).
  // Returns the body of the reply with status 200; errors as of Score.
  absl::StatusOr<std::string> Ask(HttpCall& call, const CallLimit& limit, absl::Time deadline,
                                  Notification& cancelled) const;
  // Counts a call that is sent next; `limit` has max_calls. UNAVAILABLE: none is left, or it cannot
  // be counted.
  absl::Status CountCall(const CallLimit& limit) const;

  const std::string name_;
  const std::shared_ptr<HttpClient> server_;
  const HttpQuestion question_;
  const absl::Duration timeout_;
  // Counted calls that no server got, or that one refused: it was away or busy, or the token wrong.
  mutable std::atomic<int64_t> unused_{0};
};

// Create scorers that ask the operator's sandbox, judge, or reward models. They open no connection.
// `cache` may be null. INVALID_ARGUMENT naming the flag.
absl::StatusOr<HttpScorerFactory> SandboxScorers(const runtime::HttpServerFlags& flags,
                                                 std::shared_ptr<ScoreCache> cache);
absl::StatusOr<HttpScorerFactory> JudgeScorers(runtime::HttpServerFlags flags,
                                               std::shared_ptr<ScoreCache> cache);
absl::StatusOr<HttpScorerFactory> RewardModelScorers(runtime::HttpServerFlags flags,
                                                     std::shared_ptr<ScoreCache> cache);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_HTTP_SCORER_H_
