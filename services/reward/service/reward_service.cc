#include "services/reward/service/reward_service.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "services/reward/scorers/scorer_factory.h"

namespace freshet {
namespace {

// Deterministic bytes of a rule, independent of the map's order in memory.
std::string CanonicalBytes(const job::v1::Reward& reward) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  reward.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

trajectory::v1::Score ToProto(const Score& score) {
  trajectory::v1::Score proto;
  proto.set_reward(score.reward);
  proto.mutable_components()->insert(score.components.begin(), score.components.end());
  proto.set_outcome(score.outcome == ScoreOutcome::kWrongFormat
                        ? trajectory::v1::SCORE_OUTCOME_WRONG_FORMAT
                        : trajectory::v1::SCORE_OUTCOME_OK);
  return proto;
}

trajectory::v1::Score FailureOf(const absl::Status& status) {
  trajectory::v1::Score proto;
  const bool timeout = status.code() == absl::StatusCode::kDeadlineExceeded;
  proto.set_outcome(timeout ? trajectory::v1::SCORE_OUTCOME_TIMEOUT
                            : trajectory::v1::SCORE_OUTCOME_INFRA_ERROR);
  proto.set_error(ValidUtf8(Message(status)));
  return proto;
}

}  // namespace

RewardService::RewardService(const RewardServiceOptions& options,
                             std::shared_ptr<ScoreObserver> observer)
    : options_(options),
      observer_(std::move(observer)),
      scores_(options.cached_scores),
      executor_(options.threads, options.max_queued) {}

grpc::ServerUnaryReactor* RewardService::Score(grpc::CallbackServerContext* context,
                                               const reward::v1::ScoreRequest* request,
                                               reward::v1::ScoreReply* reply) {
  return runtime::RunUnary(
      executor_, context, request, reply,
      [this](const reward::v1::ScoreRequest& asked, const runtime::CallContext& call) {
        return ScoreItems(asked, call);
      });
}

absl::StatusOr<RewardService::Rule> RewardService::MakeRule(const job::v1::Reward& reward) {
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<CompositeScorer> scorer, MakeCompositeScorer(reward));
  scorer->SetObserver(observer_);
  Rule rule{CanonicalBytes(reward), options_.item_timeout, std::move(scorer)};
  if (reward.has_timeout_ms()) {
    if (reward.timeout_ms() < 1 || reward.timeout_ms() > 600'000) {
      return InvalidArgument("reward.timeout_ms is ", reward.timeout_ms(),
                             "; it must be 1 to 600000");
    }
    rule.timeout = absl::Milliseconds(reward.timeout_ms());
  }
  return rule;
}

trajectory::v1::Score RewardService::ScoreItem(const Rule& rule, const reward::v1::ScoreItem& item,
                                               absl::Time deadline) {
  std::map<std::string, std::string> attributes(item.attributes().begin(), item.attributes().end());
  if (!item.prompt().empty()) attributes["prompt"] = item.prompt();
  ScoreInput input{item.completion(), static_cast<int32_t>(item.completion_tokens()),
                   item.stopped(), attributes, std::min(rule.timeout, deadline - absl::Now())};
  if (item.has_env_reward()) input.env_reward = item.env_reward();
  const ScoreKey key = MakeScoreKey(rule.bytes, input);
  if (const std::optional<freshet::Score> known = scores_.Get(key)) return ToProto(*known);
  const absl::StatusOr<freshet::Score> score = rule.scorer->Score(input);
  if (!score.ok()) return FailureOf(score.status());
  scores_.Put(key, *score);
  return ToProto(*score);
}

absl::StatusOr<reward::v1::ScoreReply> RewardService::ScoreItems(
    const reward::v1::ScoreRequest& request, const runtime::CallContext& call) {
  const int items = request.items_size();
  if (items < 1 || items > kMaxItems) {
    return InvalidArgument("items: ", items, "; give 1 to ", kMaxItems);
  }
  FRESHET_ASSIGN_OR_RETURN(const Rule rule, MakeRule(request.reward()));
  reward::v1::ScoreReply reply;
  for (const reward::v1::ScoreItem& item : request.items()) {
    if (call.cancelled()) return absl::CancelledError("the caller is gone");
    *reply.add_scores() = ScoreItem(rule, item, call.deadline);
  }
  return reply;
}

}  // namespace freshet
