#include "services/reward/service/grpc_scorer.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "base/utf8.h"
#include "services/runtime/channel.h"
#include "services/runtime/status.h"

namespace freshet {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
// How often a wait for a connection checks for cancellation.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// How long after a broken connection the channel may take to report it.
constexpr absl::Duration kBreakShows = absl::Milliseconds(100);
// A sample that breaks the connection this often may be what kills the service.
constexpr int kMaxBreaks = 2;
// Each part becomes a separate time series.
constexpr int kMaxParts = 64;
constexpr size_t kMaxPartNameBytes = 64;

reward::v1::ScoreRequest RequestOf(const RemoteReward& reward, const ScoreInput& input) {
  reward::v1::ScoreRequest request;
  reward::v1::ScoreItem& item = *request.add_items();
  const auto prompt = input.attributes.find("prompt");
  if (prompt != input.attributes.end()) item.set_prompt(prompt->second);
  item.set_completion(std::string(input.completion));
  item.set_completion_tokens(input.completion_tokens);
  item.mutable_attributes()->insert(input.attributes.begin(), input.attributes.end());
  item.set_stopped(input.finished);
  if (input.env_reward.has_value()) {
    item.set_env_reward(*input.env_reward);
    (*item.mutable_attributes())["env_reward"] = StrCat(*input.env_reward);
  }
  if (reward.sees_group) {
    for (const std::string& completion : input.group) item.add_group(ValidUtf8(completion));
    item.set_index(input.index);
  }
  request.set_function(reward.function);
  return request;
}

absl::StatusOr<std::map<std::string, double>> PartsOf(const trajectory::v1::Score& score) {
  if (score.components_size() > kMaxParts) {
    return Internal(score.components_size(), " components; send at most ", kMaxParts);
  }
  std::map<std::string, double> parts;
  for (const auto& [name, value] : score.components()) {
    if (name.empty() || name.size() > kMaxPartNameBytes) {
      return Internal("the name of a component has ", name.size(), " bytes; send 1 to ",
                      kMaxPartNameBytes);
    }
    if (!std::isfinite(value)) return Internal("component ", name, " is not finite");
    parts[name] = value;
  }
  return parts;
}

absl::StatusOr<ComponentScore> ValueOf(const trajectory::v1::Score& score) {
  switch (score.outcome()) {
    case trajectory::v1::SCORE_OUTCOME_OK:
    case trajectory::v1::SCORE_OUTCOME_WRONG_FORMAT:
      break;
    case trajectory::v1::SCORE_OUTCOME_TIMEOUT:
      return StatusOf(absl::StatusCode::kDeadlineExceeded, "it ran out of time: ", score.error());
    case trajectory::v1::SCORE_OUTCOME_INFRA_ERROR:
      return Internal("it failed: ", score.error());
    default:
      return Internal("a score without an outcome; the service must set it, to OK for a reward");
  }
  if (!std::isfinite(score.reward())) return Internal("a reward that is not finite");
  const bool ok = score.outcome() == trajectory::v1::SCORE_OUTCOME_OK;
  ComponentScore result{score.reward(), ok ? ScoreOutcome::kOk : ScoreOutcome::kWrongFormat};
  FRESHET_ASSIGN_OR_RETURN(result.parts, PartsOf(score));
  return result;
}

}  // namespace

GrpcScorer::GrpcScorer(std::shared_ptr<grpc::Channel> channel, RemoteReward reward)
    : channel_(std::move(channel)),
      reward_(std::move(reward)),
      stub_(reward::v1::RewardService::NewStub(channel_)) {}

// An unreachable host does not refuse connections; the call waits until its deadline.
bool GrpcScorer::Unconnected() const {
  const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/false);
  return state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING ||
         state == GRPC_CHANNEL_TRANSIENT_FAILURE;
}

bool GrpcScorer::Connect(absl::Time deadline, const std::stop_token& cancel) const {
  grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
  while ((state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING) &&
         absl::Now() < deadline && !cancel.stop_requested()) {
    channel_->WaitForStateChange(state,
                                 absl::ToChronoTime(std::min(absl::Now() + kLook, deadline)));
    state = channel_->GetState(/*try_to_connect=*/true);
  }
  return state == GRPC_CHANNEL_READY;
}

GrpcScorer::Ended GrpcScorer::Call(const reward::v1::ScoreRequest& request,
                                   const std::string& traceparent, absl::Time deadline,
                                   const std::stop_token& cancel,
                                   reward::v1::ScoreReply& reply) const {
  const bool connected = Connect(deadline, cancel);
  grpc::ClientContext context;
  if (!traceparent.empty()) context.AddMetadata(kTraceparentKey, traceparent);
  context.set_deadline(absl::ToChronoTime(deadline));
  const std::stop_callback on_cancel(cancel, [&context] { context.TryCancel(); });
  Ended ended{runtime::GrpcToStatus(stub_->Score(&context, request, &reply))};
  // If the service itself answered UNAVAILABLE, the connection stays up.
  ended.broke = connected && absl::IsUnavailable(ended.status) &&
                channel_->WaitForStateChange(GRPC_CHANNEL_READY,
                                             absl::ToChronoTime(absl::Now() + kBreakShows));
  return ended;
}

absl::StatusOr<ComponentScore> GrpcScorer::Score(const ScoreInput& input) const {
  const absl::Time deadline = absl::Now() + std::min(reward_.timeout, input.timeout);
  Notification cancelled;
  const std::stop_callback on_cancel(input.cancel, [&cancelled] { cancelled.Notify(); });
  const reward::v1::ScoreRequest request = RequestOf(reward_, input);
  const std::string traceparent =
      input.uid.empty() ? ""
                        : Traceparent(MakeTraceContext(input.uid, "reward", input.trace_ratio));
  reward::v1::ScoreReply reply;
  absl::Status status;
  int breaks = 0;
  // A service that is being restarted is waited for, as long as a call may take.
  for (int64_t tries = 1;; ++tries) {
    const absl::Duration pause = BackoffDelay(tries, kFirstPause, kLongestPause);
    const Ended ended = Call(request, traceparent, deadline, input.cancel, reply);
    status = ended.status;
    if (ended.broke) ++breaks;
    if (!absl::IsUnavailable(status) || breaks == kMaxBreaks || absl::Now() + pause >= deadline ||
        cancelled.WaitFor(pause)) {
      break;
    }
  }
  if (!status.ok() && input.cancel.stop_requested()) {
    return StatusOf(absl::StatusCode::kCancelled, "reward service ", reward_.address,
                    ": the call was cancelled");
  }
  if (absl::IsUnavailable(status) && breaks > 0) {
    return StatusOf(absl::StatusCode::kAborted, "reward service ", reward_.address,
                    ": the connection broke while it had the sample: ", Message(status));
  }
  if (!status.ok()) {
    // Not cancelled by this process: the service or a proxy ended the call.
    const bool theirs = status.code() == absl::StatusCode::kCancelled;
    absl::StatusCode code = status.code();
    if (theirs || (absl::IsDeadlineExceeded(status) && Unconnected())) {
      code = absl::StatusCode::kUnavailable;
    } else if (code == absl::StatusCode::kAborted) {
      code = absl::StatusCode::kInternal;  // answered by the service; not a broken connection
    }
    return StatusOf(code, "reward service ", reward_.address, ": ", Message(status));
  }
  if (reply.scores_size() != 1) {
    return Internal("reward service ", reward_.address, ": ", reply.scores_size(),
                    " scores for 1 item; it must give one per item");
  }
  absl::StatusOr<ComponentScore> score = ValueOf(reply.scores(0));
  if (score.ok()) return score;
  return StatusOf(score.status().code(), "reward service ", reward_.address, ": ",
                  Message(score.status()));
}

RemoteScorerFactory GrpcScorers(
    std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& address)>
        make_channel,
    const std::string& python_rewards, std::shared_ptr<ScoreCache> cache) {
  // Each scorer has its own cache entries, because a service may answer differently for another
  // job.
  const auto scorers = std::make_shared<std::atomic<int64_t>>(0);
  return [make_channel = std::move(make_channel), python_rewards, cache = std::move(cache),
          scorers](RemoteReward reward) -> absl::StatusOr<std::unique_ptr<Scorer>> {
    std::shared_ptr<grpc::Channel> channel;
    if (!reward.address.empty()) {
      FRESHET_ASSIGN_OR_RETURN(channel, make_channel(reward.address));
    } else if (!python_rewards.empty()) {
      reward.address = python_rewards;
      FRESHET_ASSIGN_OR_RETURN(channel, runtime::MakeChannel(python_rewards, {}));
    } else {
      return InvalidArgument(
          "type: no Python rewards are offered here; the operator starts `python3 -m "
          "freshet.reward_server` and gives its address as --python-rewards");
    }
    const std::string name = StrCat("grpc ", ++*scorers, " ", reward.address, " ", reward.function);
    auto scorer = std::make_unique<GrpcScorer>(std::move(channel), std::move(reward));
    if (cache == nullptr) return scorer;
    return std::make_unique<CachingScorer>(name, std::move(scorer), cache);
  };
}

}  // namespace freshet
