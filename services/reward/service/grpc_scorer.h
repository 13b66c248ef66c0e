#ifndef FRESHET_SERVICES_REWARD_SERVICE_GRPC_SCORER_H_
#define FRESHET_SERVICES_REWARD_SERVICE_GRPC_SCORER_H_

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "freshet/reward/v1/reward_service.grpc.pb.h"
#include "services/reward/scorers/score_cache.h"
#include "services/reward/scorers/scorer.h"
#include "services/reward/scorers/scorer_factory.h"

namespace freshet {

// Asks a user's reward service for the reward of one sample. The service gets the row's prompt, the
// completion, whether it finished by itself, the row's fields, and for an episode the environment's
// reward, which is also the field `env_reward`; the sample's trace is in the header `traceparent`.
// The components of its score, at most 64, become the parts. Blocks for at most the smaller of
// `timeout` and the input's, or until the input is cancelled.
//
// Errors besides those of Scorer: the status of the call; UNAVAILABLE also for a timeout without a
// connection; ABORTED instead of UNAVAILABLE if a connection broke while the service had the
// sample; INTERNAL for status ABORTED, for an item with outcome INFRA_ERROR, and for a reply that
// does not have exactly one finite score with an outcome, or whose parts are too many, have a name
// that is not 1 to 64 bytes, or are not finite. Thread-safe.
class GrpcScorer final : public Scorer {
 public:
  // `reward.address` is for messages.
  GrpcScorer(std::shared_ptr<grpc::Channel> channel, RemoteReward reward);
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  struct Ended {
    absl::Status status;
    bool broke = false;  // UNAVAILABLE because the connection broke after the request was sent
  };
  // Waits for a connection; returns false if none can be made now.
  bool Connect(absl::Time deadline, const std::stop_token& cancel) const;
  // `traceparent`: header value; "": none.
  Ended Call(const reward::v1::ScoreRequest& request, const std::string& traceparent,
             absl::Time deadline, const std::stop_token& cancel,
             reward::v1::ScoreReply& reply) const;
  bool Unconnected() const;

  const std::shared_ptr<grpc::Channel> channel_;
  const RemoteReward reward_;
  const std::unique_ptr<reward::v1::RewardService::Stub> stub_;
};

// Creates scorers over channels from `make_channel`; those of types math and python over plaintext
// to `python_rewards`, a loopback address ("": there are none). `cache` (may be null) caches the
// services' replies and bounds the memory of all scorers together.
RemoteScorerFactory GrpcScorers(
    std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& address)>
        make_channel,
    const std::string& python_rewards, std::shared_ptr<ScoreCache> cache);

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_GRPC_SCORER_H_
