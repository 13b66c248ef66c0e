#include "services/reward/reward_service.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/time/clock.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"
#include "services/reward/reward_setup.h"

namespace freshet {
namespace {

// The same bytes for the same rule, whatever the order of its map's entries in memory.
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
  proto.set_error(Message(status));
  return proto;
}

}  // namespace

RewardService::RewardService(const RewardServiceOptions& options)
    : options_(options),
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

absl::StatusOr<RewardService::Rule> RewardService::FindRule(const job::v1::Reward& reward) {
  const std::string key = CanonicalBytes(reward);
  {
    MutexLock lock(mu_);
    const auto found = std::find_if(rules_.begin(), rules_.end(),
                                    [&key](const Rule& rule) { return rule.key == key; });
    if (found != rules_.end()) {
      rules_.splice(rules_.begin(), rules_, found);
      return rules_.front();
    }
  }
  job::v1::JobSpec spec;
  *spec.mutable_reward() = reward;
  // A job file's defaults are filled in by its parser; here only this one differs from absence.
  for (auto& [name, component] : *spec.mutable_reward()->mutable_components()) {
    if (!component.has_weight()) component.set_weight(1.0);
  }
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<const CompositeScorer> scorer,
                           MakeJobScorer(spec, /*remote=*/nullptr));
  Rule rule{key, options_.item_timeout, std::move(scorer)};
  if (reward.has_timeout_ms()) {
    if (reward.timeout_ms() < 1 || reward.timeout_ms() > 600'000) {
      return InvalidArgument("reward.timeout_ms is ", reward.timeout_ms(),
                             "; it must be 1 to 600000");
    }
    rule.timeout = absl::Milliseconds(reward.timeout_ms());
  }
  MutexLock lock(mu_);
  rules_.push_front(rule);
  if (rules_.size() > options_.cached_rules) rules_.pop_back();
  return rule;
}

absl::StatusOr<reward::v1::ScoreReply> RewardService::ScoreItems(
    const reward::v1::ScoreRequest& request, const runtime::CallContext& call) {
  if (request.items_size() < 1 || request.items_size() > kMaxItems) {
    return InvalidArgument("items: ", request.items_size(), "; give 1 to ", kMaxItems);
  }
  FRESHET_ASSIGN_OR_RETURN(const Rule rule, FindRule(request.reward()));
  reward::v1::ScoreReply reply;
  for (const reward::v1::ScoreItem& item : request.items()) {
    if (call.cancelled()) return absl::CancelledError("the caller has gone");
    std::map<std::string, std::string> attributes(item.attributes().begin(),
                                                  item.attributes().end());
    if (!item.prompt().empty()) attributes["prompt"] = item.prompt();
    const ScoreInput input{item.completion(), static_cast<int32_t>(item.completion_tokens()), true,
                           attributes, std::min(rule.timeout, call.deadline - absl::Now())};
    const ScoreKey key = MakeScoreKey(rule.key, input);
    if (const std::optional<freshet::Score> known = scores_.Get(key)) {
      *reply.add_scores() = ToProto(*known);
      continue;
    }
    const absl::StatusOr<freshet::Score> score = rule.scorer->Score(input);
    if (score.ok()) scores_.Put(key, *score);
    *reply.add_scores() = score.ok() ? ToProto(*score) : FailureOf(score.status());
  }
  return reply;
}

}  // namespace freshet
