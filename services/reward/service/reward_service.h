#ifndef FRESHET_SERVICES_REWARD_SERVICE_REWARD_SERVICE_H_
#define FRESHET_SERVICES_REWARD_SERVICE_REWARD_SERVICE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "freshet/reward/v1/reward_service.grpc.pb.h"
#include "services/reward/scorers/composite_scorer.h"
#include "services/reward/scorers/score_cache.h"
#include "services/reward/scorers/score_observer.h"
#include "services/runtime/executor.h"
#include "services/runtime/unary.h"

namespace freshet {

struct RewardServiceOptions {
  int threads = 2;         // calls scored concurrently
  size_t max_queued = 64;  // waiting calls; more are refused
  size_t cached_scores = 65'536;
  // Per item, if the request's reward does not set a timeout.
  absl::Duration item_timeout = absl::Seconds(1);
};

// Scores completions for callers outside of a job's loop, with scorers that the request specifies.
// Type grpc is refused, because a caller could make this process connect to any address. Type
// environment uses the item's env_reward and fails without one. Thread-safe.
class RewardService final : public reward::v1::RewardService::CallbackService {
 public:
  static constexpr int kMaxItems = 1024;

  // `observer` is notified of scores, except cached ones; may be null.
  explicit RewardService(const RewardServiceOptions& options,
                         std::shared_ptr<ScoreObserver> observer = nullptr);
  // Runs what is queued. The server must be shut down first.
  ~RewardService() override = default;

  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const reward::v1::ScoreRequest* request,
                                  reward::v1::ScoreReply* reply) override;

  const ScoreCache& cache() const { return scores_; }
  // Calls that wait for a thread, at most options.max_queued.
  size_t queued() const { return executor_.queued(); }

 private:
  absl::StatusOr<reward::v1::ScoreReply> ScoreItems(const reward::v1::ScoreRequest& request,
                                                    const runtime::CallContext& call);
  // The scorers of a request.
  struct Rule {
    std::string bytes;  // identifies it in the cache
    absl::Duration timeout;
    std::unique_ptr<CompositeScorer> scorer;
  };
  absl::StatusOr<Rule> MakeRule(const job::v1::Reward& reward);
  trajectory::v1::Score ScoreItem(const Rule& rule, const reward::v1::ScoreItem& item,
                                  absl::Time deadline);

  const RewardServiceOptions options_;
  const std::shared_ptr<ScoreObserver> observer_;
  ScoreCache scores_;
  runtime::Executor executor_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_REWARD_SERVICE_H_
