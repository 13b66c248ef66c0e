#include <algorithm>

#include "tests/rollout/worker/rollout_worker_fixture.h"

namespace freshet {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Pair;

class RolloutWorkerEvaluationTest : public RolloutWorkerFixture {};

TEST_F(RolloutWorkerEvaluationTest, RunsBesideRolloutsAtItsPinnedVersion) {
  PutPrompts(2);
  Publish(5);
  engine_.length = [](int64_t request, int32_t) {
    return request < 0 ? static_cast<size_t>(-request) : 5U;
  };
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(4)));
  EXPECT_TRUE(worker().EvaluationBusy());
  ASSERT_TRUE(RunUntil([&] { return Evaluated() && AllPut(4); }).ok());
  EXPECT_FALSE(worker().EvaluationBusy());
  ASSERT_EQ(answers_.size(), 4U) << abandoned_;
  for (size_t i = 0; i < 4; ++i) {
    // Request id -1 - i is prompt i.
    ASSERT_NE(answers_[i].response, nullptr) << answers_[i].error;
    ASSERT_EQ(answers_[i].response->response_ids.size(), i + 1);
    EXPECT_EQ(answers_[i].response->spans[0].policy, (PolicyVersion{0, 3}));
  }
  EXPECT_EQ(store_->evaluations().Read("e")->policy, (PolicyVersion{0, 3}));
  EXPECT_EQ(engine_.version(Lane::kRollout), (PolicyVersion{0, 5}));
  EXPECT_EQ(engine_.loaded[1], std::vector<PolicyVersion>({{0, 3}}));
  const auto rows = store_->LeaseRows(Task::kScore, "r", 10);
  for (const RowLease& row : *rows) {
    EXPECT_EQ(row.sample.response->spans[0].policy, (PolicyVersion{0, 5}));
  }
  for (const GenerationRequest& request : engine_.submitted) {
    if (request.lane != Lane::kEvaluation) continue;
    EXPECT_EQ(request.seed, 5U);
    EXPECT_EQ(request.sampling.max_new_tokens, 9);
    EXPECT_EQ(request.prompt_ids[1], -1 - request.id);
    EXPECT_EQ(request.ordinal, -1 - request.id);
  }
}

TEST_F(RolloutWorkerEvaluationTest, SamplesOfAPromptAreRowsOfTheStore) {
  Publish(5);
  EvaluationRun run = MakeEvaluation(2);
  run.id = "three";
  run.samples_per_prompt = 3;
  EXPECT_EQ(store_->evaluations().Begin(run.id, 6), absl::OkStatus());
  ASSERT_TRUE(worker().StartEvaluation(run));
  ASSERT_TRUE(RunUntil([&] { return !worker().EvaluationBusy(); }).ok());
  std::vector<std::pair<int64_t, int32_t>> drawn;
  for (const GenerationRequest& request : engine_.submitted) {
    ASSERT_EQ(request.sample_indices.size(), 1U);
    EXPECT_EQ(request.prompt_ids[1], request.ordinal);
    drawn.emplace_back(request.ordinal, request.sample_indices[0]);
  }
  EXPECT_THAT(drawn,
              ElementsAre(Pair(0, 0), Pair(0, 1), Pair(0, 2), Pair(1, 0), Pair(1, 1), Pair(1, 2)));
  const auto rows = store_->evaluations().LeaseRows(Task::kScore, "r", 10);
  ASSERT_EQ(rows->size(), 6U);
  for (const RowLease& row : *rows) {
    EXPECT_EQ(row.sample.prompt->ordinal, row.sample.key.ordinal / 3);
  }
}

TEST_F(RolloutWorkerEvaluationTest, TheSameOneAgainHasNoEffect) {
  Publish(5);
  const EvaluationRun run = MakeEvaluation(3);
  ASSERT_TRUE(worker().StartEvaluation(run));
  engine_.on_poll = [&] {
    if (!Evaluated()) {
      EXPECT_TRUE(worker().StartEvaluation(run));
    }
  };
  ASSERT_TRUE(RunUntil([&] { return engine_.polls > 20 || Evaluated(); }).ok());
  EXPECT_EQ(engine_.loaded[1].size(), 1U) << "it begins once";
}

TEST_F(RolloutWorkerEvaluationTest, AnotherOneReplacesItAtOnce) {
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 40U; };
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(2)));
  EvaluationRun next = MakeEvaluation(2);
  next.id = "next";
  bool replaced = false;
  ASSERT_TRUE(RunUntil([&] {
                if (engine_.polls == 2 && !replaced) {
                  replaced = true;
                  EXPECT_EQ(store_->evaluations().Begin("next", 2), absl::OkStatus());
                  EXPECT_TRUE(worker().StartEvaluation(next));
                }
                return replaced && !worker().EvaluationBusy();
              }).ok());
  EXPECT_EQ(store_->evaluations().Read("next")->answered, 2);
  EXPECT_EQ(store_->evaluations().Read("next")->abandoned, "");
  EXPECT_EQ(engine_.loaded[1].size(), 2U);
}

TEST_F(RolloutWorkerEvaluationTest, TakesTheNextOneWhenAllAnswersAreStored) {
  Publish(5);
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(1)));
  bool second = false;
  ASSERT_TRUE(RunUntil([&] {
                if (!Evaluated()) return false;
                if (second) return true;
                answers_.clear();
                EXPECT_EQ(store_->evaluations().End("e"), absl::OkStatus());
                second = worker().StartEvaluation(MakeEvaluation(2));
                EXPECT_TRUE(second);
                return false;
              }).ok());
  EXPECT_EQ(answers_.size(), 2U);
}

TEST_F(RolloutWorkerEvaluationTest, AnswersWaitWhileTheStoreIsAway) {
  Publish(5);
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(3)));
  store_->answers.status = absl::UnavailableError("redis is away");
  int refused = 0;
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(100));
                if (store_->answers.put_calls >= 3) {
                  refused = store_->answers.put_calls;
                  store_->answers.status = absl::OkStatus();
                }
                return Evaluated();
              }).ok());
  EXPECT_EQ(answers_.size(), 3U);
  EXPECT_GE(refused, 3);
}

TEST_F(RolloutWorkerEvaluationTest, OneThatTheStoreNoLongerHasIsDropped) {
  Publish(5);
  engine_.length = [](int64_t request, int32_t) { return request == -1 ? 1U : 40U; };
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(3)));
  EXPECT_EQ(store_->evaluations().Begin("another", 1), absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(50));
                return !worker().EvaluationBusy();
              }).ok());
  EXPECT_EQ(engine_.Running(), 0) << "it generates nothing more";
  EXPECT_EQ(store_->evaluations().Read("another")->answered, 0);
}

TEST_F(RolloutWorkerEvaluationTest, RefusesOneOnceItHasStopped) {
  Publish(5);
  std::stop_source stopped;
  stopped.request_stop();
  ASSERT_TRUE(worker().Run(stopped.get_token()).ok());
  EXPECT_FALSE(worker().StartEvaluation(MakeEvaluation(1)));
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
      EXPECT_TRUE(worker().StartEvaluation(MakeEvaluation(6)));
    }
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(8) && Evaluated(); }).ok());
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
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(20)));
  ASSERT_TRUE(RunUntil([&] { return Evaluated(); }).ok());
  EXPECT_EQ(answers_.size(), 20U);
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
      EXPECT_TRUE(worker().StartEvaluation(MakeEvaluation(2)));
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

TEST_F(RolloutWorkerEvaluationTest, IsGivenUpWhenTheWorkerStops) {
  Publish(5);
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(2)));
  ASSERT_TRUE(RunUntil([&] { return engine_.polls == 1; }).ok());
  ASSERT_TRUE(Evaluated());
  EXPECT_EQ(abandoned_, "the rollout worker stops");
  EXPECT_EQ(engine_.Running(), 0);
  EXPECT_FALSE(worker().EvaluationBusy());
}

TEST_F(RolloutWorkerEvaluationTest, OneThatNeverBeganIsGivenUpToo) {
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(2)));
  std::stop_source stopped;
  stopped.request_stop();
  ASSERT_TRUE(worker().Run(stopped.get_token()).ok());
  ASSERT_TRUE(Evaluated());
  EXPECT_EQ(abandoned_, "the rollout worker stops");
}

TEST_F(RolloutWorkerEvaluationTest, WeightsThatTheEngineRefusesEndOnlyTheEvaluation) {
  PutPrompts(1);
  Publish(5);
  engine_.load_status[1] = absl::InvalidArgumentError("another model");
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(2)));
  ASSERT_TRUE(RunUntil([&] { return AllPut(2) && Evaluated(); }).ok());
  EXPECT_EQ(abandoned_, "another model");
  EXPECT_FALSE(worker().EvaluationBusy());
}

TEST_F(RolloutWorkerEvaluationTest, APromptThatTheEngineRefusesIsTriedAgain) {
  Publish(5);
  engine_.refuse_submits = 2;
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(2)));
  ASSERT_TRUE(RunUntil([&] { return Evaluated(); }).ok());
  ASSERT_EQ(answers_.size(), 2U) << abandoned_;
  EXPECT_NE(answers_[0].response, nullptr);
  EXPECT_NE(answers_[1].response, nullptr);
}

TEST_F(RolloutWorkerEvaluationTest, APromptThatTheEngineAlwaysRefusesEndsNoOther) {
  Publish(5);
  int tries = 0, wrong = 0;
  engine_.refusal = [&](const GenerationRequest& request) {
    if (request.id == -1 && ++tries > 0) return absl::ResourceExhaustedError("no room");
    if (request.id == -2 && ++wrong > 0) return absl::InvalidArgumentError("too long");
    return absl::OkStatus();
  };
  ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(3)));
  ASSERT_TRUE(RunUntil([&] { return Evaluated(); }).ok());
  ASSERT_EQ(answers_.size(), 3U) << abandoned_;
  EXPECT_EQ(answers_[0].error, "no answer: no room");
  EXPECT_EQ(answers_[1].error, "no answer: too long");
  EXPECT_NE(answers_[2].response, nullptr) << answers_[2].error;
  EXPECT_EQ(tries, 3);
  EXPECT_EQ(wrong, 1) << "no retry helps";
}

}  // namespace
}  // namespace freshet
