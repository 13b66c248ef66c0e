#include "services/reward/service/reward_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace freshet {
namespace {

using reward::v1::ScoreReply;
using reward::v1::ScoreRequest;
using trajectory::v1::SCORE_OUTCOME_INFRA_ERROR;
using trajectory::v1::SCORE_OUTCOME_OK;

// Scores with a function and counts its calls.
class FunctionScorer final : public Scorer {
 public:
  using Function = std::function<absl::StatusOr<double>(const ScoreInput&)>;
  explicit FunctionScorer(Function function) : function_(std::move(function)) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
    const absl::StatusOr<double> value = function_(input);
    if (!value.ok()) return value.status();
    return ComponentScore{*value};
  }

 private:
  const Function function_;
};

class RewardServiceTest : public testing::Test {
 protected:
  RewardServiceTest() : service_(RewardServiceOptions{}, &jobs_) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = reward::v1::RewardService::NewStub(server_->InProcessChannel({}));
    AddComponent("exact", "exact_match");
  }
  ~RewardServiceTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  job::v1::RewardComponent& AddComponent(const std::string& name, const std::string& type) {
    job::v1::RewardComponent& component = (*request_.mutable_reward()->mutable_components())[name];
    component.set_type(type);
    return component;
  }
  reward::v1::ScoreItem& AddItem(const std::string& completion, const std::string& answer) {
    reward::v1::ScoreItem& item = *request_.add_items();
    item.set_prompt("2+2=");
    item.set_completion(completion);
    (*item.mutable_attributes())["answer"] = answer;
    item.set_completion_tokens(static_cast<int64_t>(completion.size()));
    return item;
  }
  grpc::Status Score() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    reply_.Clear();
    return stub_->Score(&context, request_, &reply_);
  }

  // Registers a job with one component until the returned registration is destroyed.
  std::unique_ptr<JobScorers::Registration> Work(const std::string& job,
                                                 std::unique_ptr<Scorer> scorer,
                                                 absl::Duration timeout = absl::Seconds(1)) {
    auto composite = std::make_unique<CompositeScorer>();
    composite->Add("mine", 2.0, std::move(scorer));
    request_.clear_reward();
    request_.set_job_id(job);
    return jobs_.Add(job, timeout, std::move(composite));
  }

  JobScorers jobs_;
  RewardService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<reward::v1::RewardService::Stub> stub_;
  ScoreRequest request_;
  ScoreReply reply_;
};

TEST_F(RewardServiceTest, ScoresEveryItemInOrder) {
  AddItem("4", "4");
  AddItem("5", "4");
  AddItem("6", "6");
  ASSERT_TRUE(Score().ok());
  ASSERT_EQ(reply_.scores_size(), 3);
  EXPECT_EQ(reply_.scores(0).reward(), 1.0);  // the default weight
  EXPECT_EQ(reply_.scores(1).reward(), 0.0);
  EXPECT_EQ(reply_.scores(2).reward(), 1.0);
  EXPECT_EQ(reply_.scores(1).outcome(), SCORE_OUTCOME_OK);
  EXPECT_EQ(reply_.scores(0).components().at("exact"), 1.0);
}

TEST_F(RewardServiceTest, AddsUpComponentsByWeight) {
  AddComponent("exact", "exact_match").set_weight(2.0);
  job::v1::RewardComponent& length = AddComponent("length", "length");
  length.set_weight(-0.5);
  length.set_max_tokens(3);
  AddItem("4", "4");
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(reply_.scores(0).reward(), 1.5);
}

TEST_F(RewardServiceTest, AnItemThatCannotBeScoredDoesNotFailTheCall) {
  AddItem("4", "4").clear_attributes();
  AddItem("4", "4");
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(reply_.scores(0).outcome(), SCORE_OUTCOME_INFRA_ERROR);
  EXPECT_NE(reply_.scores(0).error().find("answer"), std::string::npos);
  EXPECT_EQ(reply_.scores(1).reward(), 1.0);
}

TEST_F(RewardServiceTest, BoundsTheNumberOfItems) {
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  for (int i = 0; i < RewardService::kMaxItems; ++i) AddItem("4", "4");
  EXPECT_TRUE(Score().ok());
  AddItem("4", "4");
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RewardServiceTest, RefusesWhatIsNoReward) {
  AddItem("4", "4");
  request_.mutable_reward()->clear_components();
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  AddComponent("x", "magic");
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request_.mutable_reward()->clear_components();
  AddComponent("x", "exact_match");
  request_.mutable_reward()->set_timeout_ms(0);
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RewardServiceTest, ConnectsNowhereForACaller) {
  AddItem("4", "4");
  request_.mutable_reward()->clear_components();
  AddComponent("x", "grpc").set_address("169.254.169.254:80");
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RewardServiceTest, AnItemOfAnEpisodeBringsTheEnvironmentsReward) {
  request_.mutable_reward()->clear_components();
  AddComponent("env", "environment").set_weight(0.5);
  AddItem("4", "4").set_env_reward(-3);
  AddItem("4", "4");
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(reply_.scores(0).reward(), -1.5);
  EXPECT_EQ(reply_.scores(0).outcome(), SCORE_OUTCOME_OK);
  EXPECT_EQ(reply_.scores(1).outcome(), SCORE_OUTCOME_INFRA_ERROR);
}

TEST_F(RewardServiceTest, UsesTheScorersOfAJobThatItWorksOn) {
  const auto work = Work("job-1", std::make_unique<FunctionScorer>([](const ScoreInput& input) {
                           return input.finished ? input.env_reward.value_or(0) : -1.0;
                         }));
  AddItem("4", "4").set_env_reward(7);
  request_.mutable_items(0)->set_stopped(true);
  AddItem("4", "4").set_env_reward(7);
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(reply_.scores(0).reward(), 14);
  EXPECT_EQ(reply_.scores(0).components().at("mine"), 7);
  EXPECT_EQ(reply_.scores(1).reward(), -2);  // truncated
}

TEST_F(RewardServiceTest, AServiceOfTheJobThatIsAwayFailsTheCallAndNoItem) {
  bool away = true;
  int scored = 0;
  const auto work = Work("job-1", std::make_unique<FunctionScorer>([&](const ScoreInput& input) {
                           if (away && input.completion == "b") {
                             return absl::StatusOr<double>(absl::UnavailableError("no route"));
                           }
                           ++scored;
                           return absl::StatusOr<double>(1.0);
                         }));
  AddItem("a", "4");
  AddItem("b", "4");
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::UNAVAILABLE);
  away = false;
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(reply_.scores(1).outcome(), SCORE_OUTCOME_OK);
  EXPECT_EQ(scored, 2) << "the first one's score is kept";
}

TEST_F(RewardServiceTest, RefusesAJobThatItDoesNotWorkOn) {
  AddItem("4", "4");
  auto work =
      Work("job-1", std::make_unique<FunctionScorer>([](const ScoreInput&) { return 1.0; }));
  request_.set_job_id("job-2");
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  request_.set_job_id("job-1");
  EXPECT_TRUE(Score().ok());
  work.reset();
  const grpc::Status gone = Score();
  EXPECT_EQ(gone.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(gone.error_message(), "this worker does not work on job job-1");
}

TEST_F(RewardServiceTest, TakesEitherRewardOrJob) {
  AddItem("4", "4");
  request_.set_job_id("job-1");
  EXPECT_EQ(Score().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RewardServiceTest, WhatAJobsServiceAnsweredIsNotTakenForTheNextOnes) {
  std::atomic<int> calls{0};
  const auto count = [&calls](const ScoreInput&) { return static_cast<double>(++calls); };
  AddItem("4", "4");
  auto work = Work("job-1", std::make_unique<FunctionScorer>(count));
  ASSERT_TRUE(Score().ok());
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(calls, 1);
  work = Work("job-1", std::make_unique<FunctionScorer>(count));
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(calls, 2);
}

TEST_F(RewardServiceTest, SlowScorersWorkOnSeveralItemsAtATime) {
  // The first item is slow. The others wait for each other at a gate that opens for three.
  Notification go;
  std::atomic<int> inside{0};
  const auto work = Work("job-1", std::make_unique<FunctionScorer>([&](const ScoreInput& input) {
                           if (input.completion == "0") {
                             Notification never;
                             never.WaitFor(absl::Milliseconds(30));
                             return 1.0;
                           }
                           if (++inside == 3) go.Notify();
                           return go.WaitFor(absl::Seconds(10)) ? 1.0 : 0.0;
                         }),
                         absl::Seconds(20));
  for (int i = 0; i < 7; ++i) AddItem(std::to_string(i), "");
  ASSERT_TRUE(Score().ok());
  for (int i = 0; i < 7; ++i) EXPECT_EQ(reply_.scores(i).reward(), 2.0) << i;
}

TEST_F(RewardServiceTest, RemembersScores) {
  AddItem("4", "4");
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(service_.cache_hits(), 0);
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(service_.cache_hits(), 1);
  EXPECT_EQ(reply_.scores(0).reward(), 1.0);
  EXPECT_EQ(reply_.scores(0).components().at("exact"), 1.0);
  // Different scorers are a different cache key.
  AddComponent("exact", "exact_match").set_weight(3.0);
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(reply_.scores(0).reward(), 3.0);
  EXPECT_EQ(service_.cache_hits(), 1);
}

}  // namespace
}  // namespace freshet
