#include "services/reward/service/reward_service.h"

#include <grpcpp/grpcpp.h>

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

class RewardServiceTest : public testing::Test {
 protected:
  RewardServiceTest() : service_(RewardServiceOptions{}) {
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

TEST_F(RewardServiceTest, RemembersScores) {
  AddItem("4", "4");
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(service_.cache().hits(), 0);
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(service_.cache().hits(), 1);
  EXPECT_EQ(reply_.scores(0).reward(), 1.0);
  EXPECT_EQ(reply_.scores(0).components().at("exact"), 1.0);
  // Different scorers are a different cache key.
  AddComponent("exact", "exact_match").set_weight(3.0);
  ASSERT_TRUE(Score().ok());
  EXPECT_EQ(reply_.scores(0).reward(), 3.0);
  EXPECT_EQ(service_.cache().hits(), 1);
}

}  // namespace
}  // namespace freshet
