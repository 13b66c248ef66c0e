#include "services/reward/worker/reward_setup.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/str_cat.h"
#include "job/reward_types.h"

namespace freshet {
namespace {

// Used if the job's parser has not set the default.
constexpr int64_t kDefaultParallel = 16;

bool AsksService(const job::v1::JobSpec& spec) {
  return std::any_of(spec.reward().components().begin(), spec.reward().components().end(),
                     [](const auto& entry) { return IsRewardService(entry.second.type()); });
}

class UnconnectedScorer final : public Scorer {
 public:
  explicit UnconnectedScorer(std::string service) : service_(std::move(service)) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& /*input*/) const override {
    return StatusOf(absl::StatusCode::kUnavailable, service_, ": not connected in this process");
  }

 private:
  const std::string service_;
};

}  // namespace

ServiceScorers UnconnectedScorers() {
  ServiceScorers scorers;
  scorers.remote = [](const RemoteReward& reward) -> absl::StatusOr<std::unique_ptr<Scorer>> {
    return std::make_unique<UnconnectedScorer>(
        StrCat("reward service ", reward.address, reward.function));
  };
  const auto unconnected = [](const char* name) {
    return [name](const HttpQuestion&, absl::Duration) -> absl::StatusOr<std::unique_ptr<Scorer>> {
      return std::make_unique<UnconnectedScorer>(name);
    };
  };
  scorers.sandbox = unconnected("sandbox");
  scorers.judge = unconnected("judge");
  scorers.reward_model = unconnected("reward model");
  return scorers;
}

int64_t RewardParallel(const job::v1::JobSpec& spec, int64_t processors) {
  const int64_t parallel =
      spec.reward().has_parallel() ? spec.reward().parallel() : kDefaultParallel;
  return AsksService(spec) ? parallel : std::clamp<int64_t>(processors, 1, parallel);
}

RewardWorkerOptions MakeRewardOptions(const job::v1::JobSpec& spec) {
  RewardWorkerOptions options;
  options.score_timeout = absl::Milliseconds(spec.reward().timeout_ms());
  options.parallel = RewardParallel(spec);
  options.trace_ratio = spec.output().trace_ratio();
  // The duration of a call is unknown, so no row is leased before a thread is free for it.
  if (AsksService(spec)) options.batch_rows = 1;
  return options;
}

}  // namespace freshet
