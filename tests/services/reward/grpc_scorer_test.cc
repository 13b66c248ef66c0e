#include "services/reward/grpc_scorer.h"

#include <grpcpp/grpcpp.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "services/base/mutex.h"
#include "services/base/trace.h"
#include "tests/services/reward/scorer_case.h"

namespace freshet {
namespace {

using reward::v1::ScoreReply;
using reward::v1::ScoreRequest;

// A reward service of a user's own.
class UserService final : public reward::v1::RewardService::Service {
 public:
  std::function<grpc::Status(const ScoreRequest&, ScoreReply&)> answer;
  int calls = 0;
  std::string traceparent;  // of the last call
  grpc::Status Score(grpc::ServerContext* context, const ScoreRequest* request,
                     ScoreReply* reply) override {
    ++calls;
    const auto header = context->client_metadata().find("traceparent");
    traceparent = header == context->client_metadata().end()
                      ? ""
                      : std::string(header->second.data(), header->second.size());
    return answer(*request, *reply);
  }
};

class GrpcScorerTest : public testing::Test {
 protected:
  GrpcScorerTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    channel_ = server_->InProcessChannel({});
    Answer(trajectory::v1::SCORE_OUTCOME_OK, 0.5);
  }
  ~GrpcScorerTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  void Answer(trajectory::v1::ScoreOutcome outcome, double reward, const std::string& error = "") {
    service_.answer = [=](const ScoreRequest&, ScoreReply& reply) {
      trajectory::v1::Score& score = *reply.add_scores();
      score.set_outcome(outcome);
      score.set_reward(reward);
      score.set_error(error);
      return grpc::Status::OK;
    };
  }
  absl::StatusOr<ComponentScore> Ask() {
    return ScoreText(GrpcScorer(channel_, "user:1", absl::Seconds(10)), "four",
                     {{"prompt", "2+2="}, {"answer", "4"}});
  }

  UserService service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcScorerTest, SendsTheSampleAndTakesTheReward) {
  ScoreRequest seen;
  service_.answer = [&seen](const ScoreRequest& request, ScoreReply& reply) {
    seen = request;
    reply.add_scores()->set_reward(0.75);
    reply.mutable_scores(0)->set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    return grpc::Status::OK;
  };
  const Attributes attributes = {{"prompt", "2+2="}, {"answer", "4"}};
  ScoreInput input{"four", 5, true, attributes, absl::Seconds(10)};
  input.env_reward = 0.5;
  const auto score = GrpcScorer(channel_, "user:1", absl::Seconds(10)).Score(input);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 0.75);
  EXPECT_EQ(score->outcome, ScoreOutcome::kOk);
  ASSERT_EQ(seen.items_size(), 1);
  EXPECT_EQ(seen.items(0).prompt(), "2+2=");
  EXPECT_EQ(seen.items(0).completion(), "four");
  EXPECT_EQ(seen.items(0).completion_tokens(), 5);
  EXPECT_EQ(seen.items(0).attributes().at("answer"), "4");
  EXPECT_EQ(seen.items(0).attributes().at("env_reward"), "0.5");
  EXPECT_EQ(seen.items(0).env_reward(), 0.5);
  EXPECT_TRUE(seen.items(0).stopped());
  EXPECT_FALSE(seen.has_reward());
}

TEST_F(GrpcScorerTest, SendsTheTraceOfTheSample) {
  ASSERT_TRUE(Ask().ok());
  EXPECT_EQ(service_.traceparent, "");  // of a sample that is not known
  const Attributes none;
  ScoreInput input{"four", 5, true, none, absl::Seconds(10)};
  input.uid = "j/1/0/2";
  const GrpcScorer scorer(channel_, "user:1", absl::Seconds(10));
  ASSERT_TRUE(scorer.Score(input).ok());
  std::optional<TraceContext> trace = ParseTraceparent(service_.traceparent);
  ASSERT_TRUE(trace.has_value()) << service_.traceparent;
  EXPECT_EQ(trace->trace_id, TraceIdOf("j/1/0/2"));
  EXPECT_FALSE(trace->sampled);
  input.trace_ratio = 1;
  ASSERT_TRUE(scorer.Score(input).ok());
  trace = ParseTraceparent(service_.traceparent);
  EXPECT_TRUE(trace.has_value() && trace->sampled) << service_.traceparent;
}

TEST_F(GrpcScorerTest, AServiceThatIsBeingRestartedIsWaitedFor) {
  int calls = 0;
  service_.answer = [&calls](const ScoreRequest&, ScoreReply& reply) {
    if (++calls < 3) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
    reply.add_scores()->set_reward(1);
    reply.mutable_scores(0)->set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    return grpc::Status::OK;
  };
  const auto score = Ask();
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 1);
  EXPECT_EQ(calls, 3);
}

TEST_F(GrpcScorerTest, ACallThatNobodyWantsAnyMoreIsGivenUp) {
  Notification called, over;
  service_.answer = [&](const ScoreRequest&, ScoreReply&) {
    called.Notify();
    over.WaitFor(absl::Seconds(20));
    return grpc::Status::OK;
  };
  std::stop_source cancel;
  std::jthread canceller([&] {
    called.WaitFor(absl::Seconds(20));
    cancel.request_stop();
  });
  const Attributes attributes;
  ScoreInput input{"four", 5, true, attributes, absl::Minutes(10)};
  input.cancel = cancel.get_token();
  const auto score = GrpcScorer(channel_, "user:1", absl::Minutes(10)).Score(input);
  EXPECT_EQ(score.status().code(), absl::StatusCode::kCancelled);
  over.Notify();
}

TEST_F(GrpcScorerTest, AServiceThatIsAwayIsNotWaitedForOnceTheCallIsGivenUp) {
  std::stop_source cancel;
  service_.answer = [&cancel](const ScoreRequest&, ScoreReply&) {
    cancel.request_stop();
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
  };
  const Attributes attributes;
  ScoreInput input{"four", 5, true, attributes, absl::Minutes(10)};
  input.cancel = cancel.get_token();
  const auto score = GrpcScorer(channel_, "user:1", absl::Minutes(10)).Score(input);
  EXPECT_EQ(score.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(service_.calls, 1);
}

TEST_F(GrpcScorerTest, ACallThatTheServiceCancelsIsNotOurs) {
  service_.answer = [](const ScoreRequest&, ScoreReply&) {
    return grpc::Status(grpc::StatusCode::CANCELLED, "not now");
  };
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcScorerTest, ComponentsOfTheAnswerAreParts) {
  service_.answer = [](const ScoreRequest&, ScoreReply& reply) {
    trajectory::v1::Score& score = *reply.add_scores();
    score.set_reward(0.75);
    score.set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    (*score.mutable_components())["digits"] = 1;
    (*score.mutable_components())["length"] = -0.25;
    return grpc::Status::OK;
  };
  const auto score = Ask();
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 0.75);
  EXPECT_EQ(score->parts, (std::map<std::string, double>{{"digits", 1}, {"length", -0.25}}));
}

TEST_F(GrpcScorerTest, PartsAreBounded) {
  std::map<std::string, double> parts;
  service_.answer = [&parts](const ScoreRequest&, ScoreReply& reply) {
    trajectory::v1::Score& score = *reply.add_scores();
    score.set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    score.mutable_components()->insert(parts.begin(), parts.end());
    return grpc::Status::OK;
  };
  for (int i = 0; i < 64; ++i) parts[std::to_string(i)] = i;
  EXPECT_TRUE(Ask().ok());
  parts["one more"] = 0;
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  parts = {{std::string(65, 'x'), 0}};
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  parts = {{"", 0}};
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  parts = {{"a", std::nan("")}};
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
}

TEST_F(GrpcScorerTest, AWrongFormatIsAValue) {
  Answer(trajectory::v1::SCORE_OUTCOME_WRONG_FORMAT, 0);
  const auto score = Ask();
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->outcome, ScoreOutcome::kWrongFormat);
}

TEST_F(GrpcScorerTest, WhatTheServiceCouldNotScoreIsNoReward) {
  Answer(trajectory::v1::SCORE_OUTCOME_TIMEOUT, 1, "the judge is slow");
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kDeadlineExceeded);
  Answer(trajectory::v1::SCORE_OUTCOME_INFRA_ERROR, 1, "no GPU");
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask().status().message(), "reward service user:1: it failed: no GPU");
}

TEST_F(GrpcScorerTest, AReplyThatBreaksTheContractIsNoReward) {
  Answer(trajectory::v1::SCORE_OUTCOME_UNSPECIFIED, 1);
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  Answer(trajectory::v1::SCORE_OUTCOME_OK, std::nan(""));
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  service_.answer = [](const ScoreRequest&, ScoreReply&) { return grpc::Status::OK; };
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
}

TEST_F(GrpcScorerTest, TheCallsStatusIsTheScorers) {
  service_.answer = [](const ScoreRequest&, ScoreReply&) {
    return grpc::Status(grpc::StatusCode::UNKNOWN, "ZeroDivisionError");
  };
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(Ask().status().message(), "reward service user:1: ZeroDivisionError");
}

TEST_F(GrpcScorerTest, DoesNotWaitLongerThanItMay) {
  Notification release;
  service_.answer = [&release](const ScoreRequest&, ScoreReply&) {
    release.WaitFor(absl::Seconds(10));
    return grpc::Status::OK;
  };
  const GrpcScorer scorer(channel_, "user:1", absl::Seconds(10));
  const Attributes none;
  const ScoreInput input{"x", 1, true, none, absl::Milliseconds(30)};
  EXPECT_EQ(scorer.Score(input).status().code(), absl::StatusCode::kDeadlineExceeded);
  release.Notify();
}

TEST_F(GrpcScorerTest, TheFactoryCachesAndPassesChannelErrorsOn) {
  const auto cache = std::make_shared<ScoreCache>(10);
  const RemoteScorerFactory factory = GrpcScorers(
      [this](const std::string& address) -> absl::StatusOr<std::shared_ptr<grpc::Channel>> {
        if (address != "user:1") return absl::InvalidArgumentError("address 'x'");
        return channel_;
      },
      cache);
  const auto scorer = factory("user:1", absl::Seconds(10));
  ASSERT_TRUE(scorer.ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ScoreText(**scorer, "a")->value, 0.5);
  EXPECT_EQ(service_.calls, 1);
  EXPECT_EQ(cache->hits(), 2);
  EXPECT_FALSE(factory("x", absl::Seconds(1)).ok());
}

}  // namespace
}  // namespace freshet
