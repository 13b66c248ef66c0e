// A worker whose engine fails.

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "base/str_cat.h"
#include "tests/rollout/worker/rollout_worker_fixture.h"

namespace freshet {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kPrompts = 100;

// No step is trained, so the bound must allow all prompts to be outstanding.
class RolloutWorkerFailureTest : public RolloutWorkerFixture {
 protected:
  RolloutWorkerFailureTest() {
    SetUpStore();
    engine_.capacity = 64;
    worker_options_.most_engine_failures = 8;
  }
  void SetUpStore() {
    StoreOptions options = memory_->options();
    options.staleness.groups_per_step = kPrompts;
    StoreOrigin origin;
    origin.policy = {0, 5};
    memory_ = *InMemoryTrajectoryStore::Create(options, origin, clock_);
    store_ = std::make_unique<WatchedStore>(*memory_);
  }
  // Runs the worker, skipping its pauses, until this many groups are generated and dead.
  absl::Status RunUntilEnded(int64_t generated, int64_t dead) {
    return RunUntil([this, generated, dead] {
      clock_.Advance(absl::Milliseconds(5));
      return Now(GroupState::kGenerated) == generated && Now(GroupState::kDead) == dead;
    });
  }
};

TEST_F(RolloutWorkerFailureTest, APromptThatTheEngineFailsOnIsGivenUpAndNoOther) {
  PutPrompts(kPrompts);
  Publish(5);
  engine_.fail_poll = [](const std::set<int64_t>& requests) {
    for (const int64_t ordinal : requests) {
      if (ordinal % 50 == 49) return absl::InternalError("the engine failed: std::bad_alloc");
    }
    return absl::OkStatus();
  };
  const absl::Status status = RunUntilEnded(kPrompts - 2, 2);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(store_->fail_calls, 2 * 5) << "each bad prompt as often as rollout.max_attempts allows";
  const std::vector<DeadLetter> dead = *store_->DeadLetters(10);
  ASSERT_THAT(dead, SizeIs(2));
  for (const DeadLetter& letter : dead) {
    EXPECT_EQ(letter.ordinal % 50, 49);
    EXPECT_THAT(letter.reason, HasSubstr("lease_failed: 5 times: the engine failed: std::bad"));
  }
  EXPECT_GE(worker().counters().engine_failures, 2 * 6);
}

TEST_F(RolloutWorkerFailureTest, ARequestThatFailsIsGivenUpAndTheOthersGoOn) {
  PutPrompts(kPrompts);
  Publish(5);
  engine_.fail_request = [](int64_t ordinal) {
    return ordinal == 49 ? absl::InternalError("a bad answer") : absl::OkStatus();
  };
  const absl::Status status = RunUntilEnded(kPrompts - 1, 1);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(store_->fail_calls, 5);
  EXPECT_THAT((*store_->DeadLetters(1))[0].reason, HasSubstr("a bad answer"));
  EXPECT_THAT(engine_.cancelled, testing::Each(49));
}

TEST_F(RolloutWorkerFailureTest, OnlyAnIdleWorkerLeasesMoreGroupsThanItKeeps) {
  PutPrompts(40);  // the engine has room for 32
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 16U; };  // none ends within the pause
  int failures = 0;
  engine_.fail_request = [&](int64_t ordinal) {
    return ordinal == 3 && failures++ == 0 ? absl::InternalError("a bad answer") : absl::OkStatus();
  };
  const absl::Status status = RunUntilEnded(40, 0);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(store_->return_calls, 1) << "of the failed group";
}

TEST_F(RolloutWorkerFailureTest, WhatEndsInThePollOfTheLastFailureIsStored) {
  PutPrompts(2);
  Publish(5);
  engine_.length = [](int64_t, int32_t) { return 1U; };
  engine_.fail_request = [](int64_t ordinal) {
    return ordinal == 0 ? absl::InternalError("a bad answer") : absl::OkStatus();
  };
  worker_options_.most_engine_failures = 1;
  EXPECT_EQ(RunUntil([] { return false; }).message(), "a bad answer");
  EXPECT_TRUE(AllPut(2));
}

TEST_F(RolloutWorkerFailureTest, APromptThatEndsTheServerEachTimeIsGivenUp) {
  worker_options_.most_engine_failures = std::numeric_limits<int>::max() - 1;
  PutPrompts(kPrompts);
  Publish(5);
  engine_.fail_poll = [](const std::set<int64_t>& requests) {
    return requests.contains(0) ? absl::UnavailableError("connection refused") : absl::OkStatus();
  };
  const absl::Status status = RunUntil([this] {
    clock_.Advance(worker_options_.lease_ttl / 4);  // an end counts once per lease_ttl
    return Now(GroupState::kGenerated) == kPrompts - 1 && Now(GroupState::kDead) == 1;
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT((*store_->DeadLetters(1))[0].reason, HasSubstr("handed_back"));
}

TEST_F(RolloutWorkerFailureTest, RequestsThatTheServerHasNoRoomForHaveNotFailed) {
  PutPrompts(10);
  Publish(5);
  engine_.fail_request = [this](int64_t) {
    return engine_.polls <= 2 ? absl::UnavailableError("overloaded") : absl::OkStatus();
  };
  worker_options_.most_engine_failures = 3;
  const absl::Status status = RunUntilEnded(10, 0);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(store_->fail_calls, 0);
}

TEST_F(RolloutWorkerFailureTest, AnEngineThatFailsOnEachRequestCostsNoPrompt) {
  PutPrompts(10);
  Publish(5);
  engine_.fail_request = [](int64_t) { return absl::InternalError("a bad answer"); };
  EXPECT_EQ(RunUntil([] { return false; }).message(), "a bad answer");
  EXPECT_EQ(store_->fail_calls, 0);
  EXPECT_THAT(LeaseAsAnother(10), SizeIs(10));
}

TEST_F(RolloutWorkerFailureTest, GroupsThatTheEngineHadTogetherHaveNotFailed) {
  PutPrompts(8);
  Publish(5);
  engine_.fail_poll = [](const std::set<int64_t>& requests) {
    return requests.size() > 1 ? absl::InternalError("out of memory") : absl::OkStatus();
  };
  ASSERT_TRUE(RunUntilEnded(8, 0).ok());
  EXPECT_EQ(store_->fail_calls, 0);
  EXPECT_GT(store_->return_calls, 8);
}

TEST_F(RolloutWorkerFailureTest, LeasesMoreAndMoreAfterAFailure) {
  PutPrompts(40);
  Publish(5);
  size_t most = 0;
  int failures = 0;
  engine_.fail_poll = [&](const std::set<int64_t>& requests) {
    if (failures == 0) {
      ++failures;
      return absl::InternalError("out of memory");
    }
    if (failures == 1) {
      EXPECT_THAT(requests, SizeIs(1)) << "at first";
    }
    ++failures;
    most = std::max(most, requests.size());
    return absl::OkStatus();
  };
  ASSERT_TRUE(RunUntilEnded(40, 0).ok());
  EXPECT_GE(most, 16U);
}

TEST_F(RolloutWorkerFailureTest, AnEngineThatFailsAgainAndAgainEndsTheWorkerAndReturnsTheLeases) {
  PutPrompts(10);
  Publish(5);
  engine_.on_poll = [&] {
    if (engine_.polls == 2) engine_.poll_status = absl::InternalError("the engine burns");
  };
  const absl::Status status = RunUntilEnded(10, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "the engine burns");
  EXPECT_EQ(engine_.polls, 2 + 8);
  EXPECT_EQ(engine_.Running(), 0);
  EXPECT_EQ(LeaseAsAnother(10).size(), 10U);
  EXPECT_EQ(store_->fail_calls, 0);
}

TEST_F(RolloutWorkerFailureTest, LeavesFailedGroupsToOthersForAWhile) {
  PutPrompts(1);
  Publish(5);
  engine_.poll_status = absl::InternalError("the engine burns");
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] { return store_->return_calls > 0 && ++turns > 100; }).ok());
  EXPECT_EQ(store_->return_calls, 1) << "the clock stands still";
  EXPECT_EQ(LeaseAsAnother(1).size(), 1U);
  EXPECT_EQ(engine_.polls, 1);
}

TEST_F(RolloutWorkerFailureTest, APromptThatTheEngineRefusesIsGivenUpAndNoOther) {
  PutPrompts(4);
  Publish(5);
  engine_.fail_submit = [](const GenerationRequest& request) {
    return request.ordinal == 2 ? absl::InvalidArgumentError("the prompt is too long")
                                : absl::OkStatus();
  };
  ASSERT_TRUE(RunUntilEnded(3, 1).ok());
  EXPECT_EQ(store_->fail_calls, 5);
  EXPECT_THAT((*store_->DeadLetters(1))[0].reason, HasSubstr("the prompt is too long"));
}

TEST_F(RolloutWorkerFailureTest, APromptThatTheEngineFailsToTakeIsGivenUpAndNoOther) {
  PutPrompts(4);
  Publish(5);
  engine_.fail_submit = [](const GenerationRequest& request) {
    return request.ordinal == 2 ? absl::InternalError("the engine failed: std::bad_alloc")
                                : absl::OkStatus();
  };
  ASSERT_TRUE(RunUntilEnded(3, 1).ok());
  EXPECT_EQ(store_->fail_calls, 5);
  EXPECT_EQ((*store_->DeadLetters(1))[0].ordinal, 2);
}

// One engine fails permanently and its worker restarts each time. Another engine works, but slowly.
TEST_F(RolloutWorkerFailureTest, AnEngineThatFailsOnEverythingCostsNoPrompt) {
  constexpr int64_t kGroups = 40;
  PutPrompts(kPrompts);
  Publish(5);
  const VersionForTest made = MakeVersion({0, 5}, 1, 100, 64);
  auto weights = std::make_shared<WeightSubscriber>();
  ASSERT_TRUE(weights->Prepare(made.manifest, made.bytes).ok());
  ASSERT_TRUE(weights->Activate(made.receipt).ok());
  FakeInferenceEngine other_engine;
  other_engine.capacity = 2;
  RolloutOptions other_options = worker_options_;
  other_options.worker = "rollout-1";
  other_options.request_prefix = "other/";
  RolloutWorker other(*store_, other_engine, weights, clock_, other_options);
  const auto generate_one_elsewhere = [&] {
    std::stop_source stop;
    const int64_t finished = other.counters().samples_finished;
    int turns = 0;
    other_engine.on_turn = [&] {
      if (other.counters().samples_finished >= finished + 2 || ++turns > 50) stop.request_stop();
    };
    EXPECT_TRUE(other.Run(stop.get_token()).ok());
  };

  // Two of the first groups finish early, then the engine breaks.
  engine_.length = [](int64_t ordinal, int32_t) { return ordinal < 2 ? 2U : 10U; };
  engine_.on_poll = [&] {
    if (engine_.polls == 5) engine_.poll_status = absl::InternalError("the engine burns");
  };
  int begun = 0, turns = 0;
  while (Now(GroupState::kGenerated) < kGroups && begun < 100) {
    worker_options_.request_prefix = StrCat("job/", ++begun, "/");
    RolloutWorker broken(*store_, engine_, subscriber_, clock_, worker_options_);
    std::stop_source stop;
    engine_.on_turn = [&] {
      clock_.Advance(absl::Milliseconds(5));
      if (++turns % 500 == 0) generate_one_elsewhere();
      if (Now(GroupState::kGenerated) >= kGroups) stop.request_stop();
    };
    const absl::Status status = broken.Run(stop.get_token());
    EXPECT_TRUE(status.ok() || status.message() == "the engine burns") << status;
  }
  EXPECT_GE(Now(GroupState::kGenerated), kGroups);
  EXPECT_GT(begun, 5);
  EXPECT_EQ(Now(GroupState::kDead), 0);
  EXPECT_LE(store_->fail_calls, 1) << "the first group that it failed on after it had worked";
}

// With an engine restart after 8 failures, and without one.
TEST_F(RolloutWorkerFailureTest, PromptsInARowThatTheEngineFailsOnAreGivenUpAndNoOther) {
  Publish(5);
  for (const int most : {8, std::numeric_limits<int>::max()}) {
    SetUpStore();
    worker_options_.most_engine_failures = most;
    PutPrompts(kPrompts);
    const int64_t first = next_ordinal_ - kPrompts;
    const auto is_bad = [&](int64_t ordinal) {
      return ordinal == first + 40 || ordinal == first + 41;
    };
    RolloutWorker tested(*store_, engine_, subscriber_, clock_, worker_options_);
    engine_.fail_poll = [&](const std::set<int64_t>& requests) {
      return std::any_of(requests.begin(), requests.end(), is_bad)
                 ? absl::InternalError("the engine failed: std::bad_alloc")
                 : absl::OkStatus();
    };
    std::stop_source stop;
    int turns = 0;
    engine_.on_turn = [&] {
      clock_.Advance(absl::Milliseconds(5));
      const bool ended = Now(GroupState::kGenerated) + Now(GroupState::kDead) == kPrompts;
      if (ended || ++turns == 5000) stop.request_stop();
    };
    const absl::Status status = tested.Run(stop.get_token());
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(Now(GroupState::kGenerated), kPrompts - 2) << most;
    const auto letters = store_->DeadLetters(10);
    ASSERT_TRUE(letters.ok()) << letters.status();
    for (const DeadLetter& letter : *letters) EXPECT_TRUE(is_bad(letter.ordinal));
    EXPECT_EQ(store_->fail_calls, 2 * 5);
  }
}

TEST_F(RolloutWorkerFailureTest, LeasesBehindOneThatTheEngineFailedToTakeAreReturned) {
  PutPrompts(10);
  Publish(5);
  int submits = 0;
  engine_.fail_submit = [&](const GenerationRequest&) {
    ++submits;
    return absl::InternalError("the engine burns");
  };
  int turns = 0;
  ASSERT_TRUE(RunUntil([&] { return submits > 0 && ++turns > 10; }).ok());
  EXPECT_EQ(submits, 1) << "the clock stands still";
  EXPECT_EQ(store_->fail_calls, 0);
  EXPECT_EQ(Now(GroupState::kLeased), 0);
  EXPECT_THAT(LeaseAsAnother(10), SizeIs(10));
}

TEST_F(RolloutWorkerFailureTest, LeasesBehindTheLastFailureAreReturnedToo) {
  PutPrompts(10);
  Publish(5);
  engine_.fail_submit = [](const GenerationRequest&) {
    return absl::InternalError("the engine burns");
  };
  worker_options_.most_engine_failures = 1;
  EXPECT_EQ(RunUntil([] { return false; }).message(), "the engine burns");
  EXPECT_THAT(LeaseAsAnother(10), SizeIs(10));
}

class RolloutWorkerFailureEvaluationTest : public RolloutWorkerFailureTest {
 protected:
  void Evaluate(int32_t prompts) { ASSERT_TRUE(worker().StartEvaluation(MakeEvaluation(prompts))); }
  absl::Status RunUntilEvaluated(int64_t generated) {
    return RunUntil([this, generated] {
      clock_.Advance(absl::Milliseconds(5));
      return Evaluated() && Now(GroupState::kGenerated) == generated;
    });
  }
};

TEST_F(RolloutWorkerFailureEvaluationTest, AFailureOfTheEngineCostsItNoPrompt) {
  PutPrompts(3);
  Publish(5);
  Evaluate(5);
  engine_.fail_poll = [](const std::set<int64_t>& requests) {
    return requests.size() > 1 ? absl::InternalError("out of memory") : absl::OkStatus();
  };
  ASSERT_TRUE(RunUntilEvaluated(3).ok());
  ASSERT_THAT(answers_, SizeIs(5)) << abandoned_;
  for (const EvaluationAnswer& answer : answers_) EXPECT_NE(answer.response, nullptr);
  EXPECT_EQ(store_->fail_calls, 0);
  EXPECT_EQ(Now(GroupState::kDead), 0);
}

TEST_F(RolloutWorkerFailureEvaluationTest, APromptThatTheEngineFailsOnIsCountedAndNoOther) {
  PutPrompts(3);
  Publish(5);
  Evaluate(5);
  int alone = 0;
  engine_.fail_poll = [&](const std::set<int64_t>& requests) {
    if (!requests.contains(-3)) return absl::OkStatus();
    if (requests.size() == 1) ++alone;
    return absl::InternalError("the engine burns");
  };
  ASSERT_TRUE(RunUntilEvaluated(3).ok());
  ASSERT_THAT(answers_, SizeIs(5)) << abandoned_;
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(answers_[i].response == nullptr, i == 2) << i;
  EXPECT_EQ(answers_[2].error, "no answer: the engine burns");
  EXPECT_GE(alone, 3);
  EXPECT_LE(alone, 4);
  EXPECT_EQ(store_->fail_calls, 0);
}

TEST_F(RolloutWorkerFailureEvaluationTest, APromptThatTheEngineFailsToTakeIsCountedAndNoOther) {
  PutPrompts(3);
  Publish(5);
  Evaluate(5);
  engine_.fail_submit = [](const GenerationRequest& request) {
    return request.id == -3 ? absl::InternalError("the engine burns") : absl::OkStatus();
  };
  ASSERT_TRUE(RunUntilEvaluated(3).ok());
  ASSERT_THAT(answers_, SizeIs(5)) << abandoned_;
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(answers_[i].response == nullptr, i == 2) << i;
  EXPECT_GT(worker().counters().engine_failures, 0);
  EXPECT_EQ(store_->fail_calls, 0);
}

TEST_F(RolloutWorkerFailureEvaluationTest, ARequestThatFailsIsCountedAndTheOthersGoOn) {
  PutPrompts(3);
  Publish(5);
  Evaluate(5);
  engine_.fail_request = [](int64_t request) {
    return request == -3 ? absl::InternalError("a bad answer") : absl::OkStatus();
  };
  ASSERT_TRUE(RunUntilEvaluated(3).ok());
  ASSERT_THAT(answers_, SizeIs(5)) << abandoned_;
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(answers_[i].response == nullptr, i == 2) << i;
  EXPECT_EQ(answers_[2].error, "no answer: a bad answer");
  EXPECT_EQ(store_->fail_calls + store_->return_calls, 0);
}

// Without an engine restart, each prompt is tried a bounded number of times, in turns.
TEST_F(RolloutWorkerFailureEvaluationTest, AnEngineThatFailsOnEverythingEndsItAtLength) {
  worker_options_.most_engine_failures = std::numeric_limits<int>::max();
  PutPrompts(1);
  Publish(5);
  Evaluate(4);
  engine_.poll_status = absl::InternalError("the engine burns");
  int tried_before_the_group = 0;
  ASSERT_TRUE(RunUntil([&] {
                clock_.Advance(absl::Milliseconds(100));
                if (store_->fail_calls == 0) tried_before_the_group = engine_.polls;
                return Evaluated() && Now(GroupState::kDead) == 1;
              }).ok());
  EXPECT_THAT(abandoned_, testing::HasSubstr("none of 4 rows has an answer"));
  EXPECT_LE(tried_before_the_group, 2) << "it comes right after the failure on all of them";
}

}  // namespace
}  // namespace freshet
