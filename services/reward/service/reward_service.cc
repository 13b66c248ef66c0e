#include "services/reward/service/reward_service.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "services/reward/scorers/scorer_factory.h"

namespace freshet {
namespace {

// How long a call is scored on a single thread.
constexpr absl::Duration kAlone = absl::Milliseconds(20);

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

RewardService::RewardService(const RewardServiceOptions& options, const JobScorers* jobs,
                             std::shared_ptr<ScoreObserver> observer)
    : options_(options),
      jobs_(jobs),
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

absl::StatusOr<JobScorer> RewardService::FindRule(const reward::v1::ScoreRequest& request) {
  if (request.job_id().empty()) return MakeRule(request.reward());
  if (request.has_reward()) {
    return InvalidArgument("job_id: give either reward or job_id, not both");
  }
  const std::optional<JobScorer> found =
      jobs_ == nullptr ? std::nullopt : jobs_->Find(request.job_id());
  if (!found.has_value()) {
    return FailedPrecondition("this worker does not work on job ", request.job_id());
  }
  return *found;
}

absl::StatusOr<JobScorer> RewardService::MakeRule(const job::v1::Reward& reward) {
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<CompositeScorer> scorer, MakeCompositeScorer(reward));
  scorer->SetObserver(observer_);
  JobScorer rule{CanonicalBytes(reward), options_.item_timeout, std::move(scorer)};
  if (reward.has_timeout_ms()) {
    if (reward.timeout_ms() < 1 || reward.timeout_ms() > 600'000) {
      return InvalidArgument("reward.timeout_ms is ", reward.timeout_ms(),
                             "; it must be 1 to 600000");
    }
    rule.timeout = absl::Milliseconds(reward.timeout_ms());
  }
  return rule;
}

absl::StatusOr<trajectory::v1::Score> RewardService::ScoreItem(const JobScorer& rule,
                                                               const reward::v1::ScoreItem& item,
                                                               absl::Time deadline) {
  std::map<std::string, std::string> attributes(item.attributes().begin(), item.attributes().end());
  if (!item.prompt().empty()) attributes["prompt"] = item.prompt();
  ScoreInput input{item.completion(), static_cast<int32_t>(item.completion_tokens()),
                   item.stopped(), attributes, std::min(rule.timeout, deadline - absl::Now())};
  if (item.has_env_reward()) input.env_reward = item.env_reward();
  const ScoreKey key = MakeScoreKey(rule.rule, input);
  if (const std::optional<freshet::Score> known = scores_.Get(key)) return ToProto(*known);
  const absl::StatusOr<freshet::Score> score = rule.scorer->Score(input);
  if (absl::IsUnavailable(score.status())) return score.status();
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
  FRESHET_ASSIGN_OR_RETURN(const JobScorer rule, FindRule(request));
  reward::v1::ScoreReply reply;
  for (int i = 0; i < items; ++i) reply.add_scores();
  std::atomic<int> next{0};
  Mutex mu;
  absl::Status away;  // UNAVAILABLE of a service; finished scores stay in the cache
  const auto score_next = [&] {
    const int i = next.fetch_add(1);
    if (i >= items || call.cancelled()) return false;
    absl::StatusOr<trajectory::v1::Score> score = ScoreItem(rule, request.items(i), call.deadline);
    if (score.ok()) {
      *reply.mutable_scores(i) = *std::move(score);
      return true;
    }
    next = items;
    MutexLock lock(mu);
    away.Update(score.status());
    return false;
  };
  int most = options_.parallel_items;
  if (rule.parallel > 0) most = static_cast<int>(std::min<int64_t>(rule.parallel, most));
  // Score sequentially while that is quick; add threads if scorers wait for a service.
  const absl::Time start = absl::Now();
  std::vector<std::jthread> helpers;
  while (score_next()) {
    if (!helpers.empty() || absl::Now() - start < kAlone) continue;
    const int more = std::min(most, items - next.load()) - 1;
    for (int i = 0; i < more; ++i) {
      helpers.emplace_back([&score_next] {
        while (score_next()) {
        }
      });
    }
  }
  helpers.clear();
  if (call.cancelled()) return absl::CancelledError("the caller is gone");
  FRESHET_RETURN_IF_ERROR(away);
  return reply;
}

}  // namespace freshet
