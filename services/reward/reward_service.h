#ifndef FRESHET_SERVICES_REWARD_REWARD_SERVICE_H_
#define FRESHET_SERVICES_REWARD_REWARD_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "freshet/reward/v1/reward_service.grpc.pb.h"
#include "services/base/mutex.h"
#include "services/reward/composite_scorer.h"
#include "services/reward/score_cache.h"
#include "services/runtime/executor.h"
#include "services/runtime/unary.h"

namespace freshet {

struct RewardServiceOptions {
  int threads = 2;         // calls that are scored at the same time
  size_t max_queued = 64;  // calls that wait; more are refused
  size_t cached_scores = 65'536;
  size_t cached_rules = 64;  // sets of scorers that are kept ready
  // Of one item, where the request's reward names none.
  absl::Duration item_timeout = absl::Seconds(1);
};

// Scores completions for callers outside of a job, with the scorers that the request names. Type
// grpc is refused: a caller could have this process connect to any address. Type environment fails,
// since an item has no episode. Thread-safe.
class RewardService final : public reward::v1::RewardService::CallbackService {
 public:
  static constexpr int kMaxItems = 1024;

  explicit RewardService(const RewardServiceOptions& options);
  // Runs what is queued. After the server's shutdown.
  ~RewardService() override = default;

  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const reward::v1::ScoreRequest* request,
                                  reward::v1::ScoreReply* reply) override;

  int64_t cache_hits() const { return scores_.hits(); }
  int64_t cache_misses() const { return scores_.misses(); }

 private:
  struct Rule {
    std::string key;
    absl::Duration timeout;
    std::shared_ptr<const CompositeScorer> scorer;
  };

  absl::StatusOr<reward::v1::ScoreReply> ScoreItems(const reward::v1::ScoreRequest& request,
                                                    const runtime::CallContext& call);
  absl::StatusOr<Rule> FindRule(const job::v1::Reward& reward);

  const RewardServiceOptions options_;
  ScoreCache scores_;
  Mutex mu_;
  std::list<Rule> rules_ ABSL_GUARDED_BY(mu_);  // most recently used first
  runtime::Executor executor_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_REWARD_SERVICE_H_
