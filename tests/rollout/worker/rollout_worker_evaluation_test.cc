#include <algorithm>
#include <optional>

#include "tests/rollout/worker/rollout_worker_fixture.h"

namespace freshet {
namespace {

using testing::Contains;

class RolloutWorkerEvaluationTest : public RolloutWorkerFixture {
 protected:
  // An evaluation of `n` prompts at version 3; stores its result in result_.
  EvaluationRun Evaluation(size_t n) {
    const VersionForTest made = MakeVersion({0, 3}, 1, 100, 64);
    EvaluationRun run;
    run.weights = {made.manifest, made.bytes};
    for (size_t i = 0; i < n; ++i) run.prompts.push_back({2, static_cast<int32_t>(i)});
    run.sampling.max_new_tokens = 7;
    run.seed = 5;
    run.done = [this](absl::StatusOr<EvaluationAnswers> result) {
      EXPECT_FALSE(result_.has_value()) << "done twice";
      result_ = std::move(result);
    };
    return run;
  }
  std::optional<absl::StatusOr<EvaluationAnswers>> result_;
};

TEST_F(RolloutWorkerEvaluationTest, RunsBesideRolloutsAtItsPinnedVersion) {
  PutPrompts(2);
  Publish(5);
  engine_.length = [](int64_t request, int32_t) {
    return request < 0 ? static_cast<size_t>(-request) : 5U;
  };
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(4)));
  EXPECT_TRUE(worker().EvaluationBusy());
  ASSERT_TRUE(RunUntil([&] { return result_.has_value() && AllPut(4); }).ok());
  EXPECT_FALSE(worker().EvaluationBusy());
  ASSERT_TRUE(result_->ok()) << result_->status();
  const EvaluationAnswers& responses = **result_;
  ASSERT_EQ(responses.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    // Request id -1 - i is prompt i.
    ASSERT_TRUE(responses[i].ok()) << responses[i].status();
    ASSERT_EQ(responses[i]->response_ids.size(), i + 1);
    EXPECT_EQ(responses[i]->spans[0].policy, (PolicyVersion{0, 3}));
  }
  EXPECT_EQ(engine_.version(Lane::kRollout), (PolicyVersion{0, 5}));
  EXPECT_EQ(engine_.loaded[1], std::vector<PolicyVersion>({{0, 3}}));
  const auto rows = store_->LeaseRows(Task::kScore, "r", 10);
  for (const RowLease& row : *rows) {
    EXPECT_EQ(row.sample.response->spans[0].policy, (PolicyVersion{0, 5}));
  }
  for (const GenerationRequest& request : engine_.submitted) {
    if (request.lane != Lane::kEvaluation) continue;
    EXPECT_EQ(request.seed, 5U);
    EXPECT_EQ(request.sampling.max_new_tokens, 7);
    EXPECT_EQ(request.prompt_ids[1], -1 - request.id);
    EXPECT_EQ(request.ordinal, -1 - request.id);
  }
}

TEST_F(RolloutWorkerEvaluationTest, RefusesASecondOneUntilTheFirstIsDone) {
  Publish(5);
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(1)));
  EXPECT_FALSE(worker().StartEvaluation(Evaluation(1)));
  engine_.on_poll = [&] { EXPECT_FALSE(worker().StartEvaluation(Evaluation(1))); };
  int done = 0;
  ASSERT_TRUE(RunUntil([&] {
                if (result_.has_value() && ++done == 1) {
                  result_.reset();
                  engine_.on_poll = nullptr;
                  EXPECT_TRUE(worker().StartEvaluation(Evaluation(1)));
                }
                return done == 2;
              }).ok());
}

TEST_F(RolloutWorkerEvaluationTest, TakesTheNextOneWhenItHandsOverTheResult) {
  Publish(5);
  EvaluationRun run = Evaluation(1);
  bool accepted = false;
  run.done = [&](absl::StatusOr<EvaluationAnswers>) {
    EXPECT_FALSE(worker().EvaluationBusy());
    accepted = worker().StartEvaluation(Evaluation(1));
  };
  ASSERT_TRUE(worker().StartEvaluation(std::move(run)));
  ASSERT_TRUE(RunUntil([&] { return result_.has_value(); }).ok());
  EXPECT_TRUE(accepted);
}

TEST_F(RolloutWorkerEvaluationTest, RefusesOneOnceItHasStopped) {
  Publish(5);
  std::stop_source stopped;
  stopped.request_stop();
  ASSERT_TRUE(worker().Run(stopped.get_token()).ok());
  EXPECT_FALSE(worker().StartEvaluation(Evaluation(1)));
  EXPECT_FALSE(worker().EvaluationBusy());
}

// Half of the slots that become free go to the evaluation before new groups are leased.
TEST_F(RolloutWorkerEvaluationTest, SharesTheEngineWithNewLeases) {
  PutPrompts(4);
  Publish(5);
  engine_.capacity = 4;
  engine_.length = [](int64_t, int32_t) { return 5U; };
  engine_.on_poll = [&] {
    if (engine_.polls == 1) {
      EXPECT_TRUE(worker().StartEvaluation(Evaluation(6)));
    }
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(8) && result_.has_value(); }).ok());
  ASSERT_EQ(engine_.submitted.size(), 10U);
  // 2 groups from before the evaluation, then alternately 2 prompts and a group of 2.
  const std::vector<Lane> expected = {Lane::kRollout,    Lane::kRollout, Lane::kEvaluation,
                                      Lane::kEvaluation, Lane::kRollout, Lane::kEvaluation,
                                      Lane::kEvaluation, Lane::kRollout, Lane::kEvaluation,
                                      Lane::kEvaluation};
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(engine_.submitted[i].lane, expected[i]) << i;
}

TEST_F(RolloutWorkerEvaluationTest, GoesThroughAnEngineThatHoldsOnlyAFew) {
  Publish(5);
  engine_.capacity = 3;
  int64_t most = 0;
  engine_.on_poll = [&] { most = std::max(most, engine_.Running()); };
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(20)));
  ASSERT_TRUE(RunUntil([&] { return result_.has_value(); }).ok());
  EXPECT_EQ((*result_)->size(), 20U);
  EXPECT_LE(most, 3);
}

// The gate admits nothing while the engine has room, then opens while the engine is full.
TEST_F(RolloutWorkerEvaluationTest, RoomThatAnEvaluationLeavesIsUsed) {
  PutPrompts(1);
  Publish(5);
  engine_.capacity = 4;
  engine_.length = [](int64_t request, int32_t) { return request < 0 ? 5U : 40U; };
  engine_.on_poll = [&] {
    if (engine_.polls == 1) {
      EXPECT_TRUE(worker().StartEvaluation(Evaluation(2)));
    }
    if (engine_.polls != 3) return;
    ASSERT_EQ(engine_.Running(), 4);
    PutPrompts(1);
  };
  int leased_at = 0;
  ASSERT_TRUE(RunUntil([&] {
                const auto second = [](const GenerationRequest& r) { return r.id == 1; };
                if (leased_at == 0 &&
                    std::any_of(engine_.submitted.begin(), engine_.submitted.end(), second)) {
                  leased_at = engine_.polls;
                }
                return AllPut(4);
              }).ok());
  EXPECT_LT(leased_at, 10);
}

TEST_F(RolloutWorkerEvaluationTest, WithoutPromptsItIsDoneAtOnce) {
  Publish(5);
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(0)));
  ASSERT_TRUE(RunUntil([&] { return result_.has_value(); }).ok());
  ASSERT_TRUE(result_->ok());
  EXPECT_TRUE((*result_)->empty());
}

TEST_F(RolloutWorkerEvaluationTest, IsGivenUpWhenTheWorkerStops) {
  Publish(5);
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(2)));
  ASSERT_TRUE(RunUntil([&] { return engine_.polls == 1; }).ok());
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine_.Running(), 0);
  EXPECT_FALSE(worker().EvaluationBusy());
}

TEST_F(RolloutWorkerEvaluationTest, OneThatNeverBeganIsGivenUpToo) {
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(2)));
  std::stop_source stopped;
  stopped.request_stop();
  ASSERT_TRUE(worker().Run(stopped.get_token()).ok());
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->status().code(), absl::StatusCode::kCancelled);
}

TEST_F(RolloutWorkerEvaluationTest, WeightsThatTheEngineRefusesEndOnlyTheEvaluation) {
  PutPrompts(1);
  Publish(5);
  engine_.load_status[1] = absl::InvalidArgumentError("another model");
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(2)));
  ASSERT_TRUE(RunUntil([&] { return AllPut(2) && result_.has_value(); }).ok());
  EXPECT_EQ(result_->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(worker().EvaluationBusy());
}

TEST_F(RolloutWorkerEvaluationTest, APromptThatTheEngineRefusesIsTriedAgain) {
  Publish(5);
  engine_.refuse_submits = 2;
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(2)));
  ASSERT_TRUE(RunUntil([&] { return result_.has_value(); }).ok());
  ASSERT_TRUE(result_->ok()) << result_->status();
  EXPECT_TRUE((**result_)[0].ok());
  EXPECT_TRUE((**result_)[1].ok());
}

TEST_F(RolloutWorkerEvaluationTest, APromptThatTheEngineAlwaysRefusesEndsNoOther) {
  Publish(5);
  int tries = 0, wrong = 0;
  engine_.refusal = [&](const GenerationRequest& request) {
    if (request.id == -1 && ++tries > 0) return absl::ResourceExhaustedError("no room");
    if (request.id == -2 && ++wrong > 0) return absl::InvalidArgumentError("too long");
    return absl::OkStatus();
  };
  ASSERT_TRUE(worker().StartEvaluation(Evaluation(3)));
  ASSERT_TRUE(RunUntil([&] { return result_.has_value(); }).ok());
  ASSERT_TRUE(result_->ok()) << result_->status();
  const EvaluationAnswers& answers = **result_;
  EXPECT_EQ(answers[0].status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(answers[1].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(answers[2].ok()) << answers[2].status();
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(wrong, 1) << "no retry helps";
}

}  // namespace
}  // namespace freshet
