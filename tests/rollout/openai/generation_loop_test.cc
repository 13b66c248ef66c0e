#include "rollout/openai/generation_loop.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rollout/openai/scripted_engine.h"
#include "tests/testing/fake_clock.h"

namespace freshet::openai {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kGuard = absl::Seconds(30);
constexpr int32_t kEndless = 200;  // tokens: far more than a test waits for

// What one caller sees.
struct Caller {
  std::vector<int32_t> ids;
  absl::Status status = absl::UnknownError("not ended");
  Notification first_token;
  Notification ended;

  QueuedRequest Request(std::vector<int32_t> prompt, int32_t max_new_tokens, int32_t samples = 1) {
    QueuedRequest request;
    request.generation.prompt_ids = std::move(prompt);
    request.generation.sampling.temperature = 0;
    request.generation.sampling.max_new_tokens = max_new_tokens;
    for (int32_t i = 0; i < samples; ++i) request.generation.sample_indices.push_back(i);
    request.on_token = [this](const GeneratedToken& token) {
      ids.push_back(token.token.id);
      first_token.Notify();
    };
    request.on_end = [this](const absl::Status& end) {
      status = end;
      ended.Notify();
    };
    return request;
  }
};

class GenerationLoopTest : public testing::Test {
 protected:
  void Start(std::unique_ptr<ScriptedEngine> engine = std::make_unique<ScriptedEngine>()) {
    loop_ = std::make_unique<GenerationLoop>(std::move(engine), options_, clock_);
  }
  // An engine whose polls wait until `gate_` is notified, after the first `free` ones.
  std::unique_ptr<ScriptedEngine> Gated(int free) {
    auto engine = std::make_unique<ScriptedEngine>(/*max_sequences=*/1);
    engine->on_poll = [this, free, polls = 0]() mutable {
      polling_.Notify();
      if (polls++ >= free) {
        EXPECT_TRUE(gate_.WaitFor(kGuard));
      }
      return absl::OkStatus();
    };
    return engine;
  }
  int64_t Submit(QueuedRequest request) {
    const absl::StatusOr<int64_t> id = loop_->Submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  void ExpectNothingHeld() const {
    const QueueStats stats = loop_->stats();
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.waiting_tokens, 0);
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.engine.running_sequences, 0);
    EXPECT_EQ(stats.engine.cache_blocks_free, stats.engine.cache_blocks);
  }

  GenerationQueueOptions options_;
  FakeClock clock_;
  Notification polling_;
  Notification gate_;
  std::unique_ptr<GenerationLoop> loop_;
};

TEST_F(GenerationLoopTest, DeliversTokensThenTheEnd) {
  Start();
  Caller caller;
  Submit(caller.Request({3}, 4));
  ASSERT_TRUE(caller.ended.WaitFor(kGuard));
  EXPECT_TRUE(caller.status.ok()) << caller.status;
  EXPECT_THAT(caller.ids, ElementsAre(4, 5, 6, 7));
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, EndsOnceAllSamplesHaveFinished) {
  Start();
  Caller caller;
  Submit(caller.Request({3}, 2, /*samples=*/3));
  ASSERT_TRUE(caller.ended.WaitFor(kGuard));
  EXPECT_EQ(caller.ids.size(), 6U);
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, WaitingRequestsRunWhenThereIsRoom) {
  Start(std::make_unique<ScriptedEngine>(/*max_sequences=*/1));
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 20; ++i) {
    callers.push_back(std::make_unique<Caller>());
    Submit(callers.back()->Request({i}, 3));
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(callers[static_cast<size_t>(i)]->ended.WaitFor(kGuard));
    EXPECT_THAT(callers[static_cast<size_t>(i)]->ids, ElementsAre(i + 1, i + 2, i + 3));
  }
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, AWrongRequestFailsAlone) {
  Start();
  Caller wrong;
  Caller right;
  Submit(wrong.Request(std::vector<int32_t>(ScriptedEngine::kContext, 1), 1));
  Submit(right.Request({3}, 2));
  ASSERT_TRUE(wrong.ended.WaitFor(kGuard));
  EXPECT_EQ(wrong.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.status.message()), HasSubstr("context of 256"));
  ASSERT_TRUE(right.ended.WaitFor(kGuard));
  EXPECT_TRUE(right.status.ok()) << right.status;
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, RefusesWhatExceedsTheQueue) {
  options_.max_waiting = 2;
  Start(Gated(0));
  Caller running;
  Caller waiting[2];
  Caller refused;
  Submit(running.Request({1}, 2));
  ASSERT_TRUE(polling_.WaitFor(kGuard));
  for (Caller& caller : waiting) Submit(caller.Request({1}, 2));
  const absl::Status status = loop_->Submit(refused.Request({1}, 2)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(loop_->stats().refused, 1);
  gate_.Notify();
  ASSERT_TRUE(waiting[1].ended.WaitFor(kGuard));
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, QueuesAllRequestsOrNone) {
  options_.max_waiting = 2;
  Start(Gated(0));
  Caller callers[5];
  Submit(callers[0].Request({1}, 2));
  ASSERT_TRUE(polling_.WaitFor(kGuard));
  Submit(callers[1].Request({1}, 2));
  std::vector<QueuedRequest> two;
  for (int i : {2, 3}) two.push_back(callers[i].Request({1}, 2));
  EXPECT_EQ(loop_->SubmitAll(std::move(two)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(loop_->stats().waiting, 1);
  std::vector<QueuedRequest> three;
  for (int i : {2, 3, 4}) three.push_back(callers[i].Request({1}, 2));
  const absl::Status status = loop_->SubmitAll(std::move(three)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("want at most 2"));
  gate_.Notify();
  EXPECT_TRUE(loop_->Drain(kGuard));
  for (int i : {2, 3, 4}) EXPECT_FALSE(callers[i].ended.HasBeenNotified());
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, BoundsTheWaitingTokens) {
  options_.max_waiting_tokens = 10;
  Start(Gated(0));
  Caller callers[4];
  Submit(callers[0].Request({1}, 2));
  ASSERT_TRUE(polling_.WaitFor(kGuard));
  Submit(callers[1].Request({1, 2, 3, 4, 5, 6}, 2));
  EXPECT_EQ(loop_->Submit(callers[2].Request({1, 2, 3, 4, 5}, 2)).status().code(),
            absl::StatusCode::kResourceExhausted);
  Submit(callers[3].Request({1, 2, 3, 4}, 2));
  gate_.Notify();
  ASSERT_TRUE(callers[3].ended.WaitFor(kGuard));
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, CancelsRunningAndWaitingRequests) {
  Start(Gated(2));
  Caller running;
  Caller waiting;
  const int64_t first = Submit(running.Request({3}, kEndless));
  const int64_t second = Submit(waiting.Request({3}, kEndless));
  ASSERT_TRUE(running.first_token.WaitFor(kGuard));
  loop_->Cancel(second);
  loop_->Cancel(first);
  loop_->Cancel(first);
  loop_->Cancel(12345);
  gate_.Notify();
  for (Caller* caller : {&running, &waiting}) {
    ASSERT_TRUE(caller->ended.WaitFor(kGuard));
    EXPECT_EQ(caller->status.code(), absl::StatusCode::kCancelled);
  }
  EXPECT_LT(running.ids.size(), size_t{kEndless});
  EXPECT_TRUE(waiting.ids.empty());
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, EndsRequestsThatAreLate) {
  options_.request_timeout = absl::Seconds(5);
  Start(Gated(2));
  Caller running;
  Caller waiting;
  Submit(running.Request({3}, kEndless));
  Submit(waiting.Request({3}, kEndless));
  ASSERT_TRUE(running.first_token.WaitFor(kGuard));
  clock_.Advance(absl::Seconds(5));
  gate_.Notify();
  for (Caller* caller : {&running, &waiting}) {
    ASSERT_TRUE(caller->ended.WaitFor(kGuard));
    EXPECT_EQ(caller->status.code(), absl::StatusCode::kDeadlineExceeded);
  }
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, AFailedBatchEndsItsRequestsAndTheLoopGoesOn) {
  auto engine = std::make_unique<ScriptedEngine>();
  engine->on_poll = [polls = 0]() mutable {
    return ++polls == 2 ? absl::InternalError("no memory") : absl::OkStatus();
  };
  Start(std::move(engine));
  Caller failed;
  Submit(failed.Request({3}, kEndless));
  ASSERT_TRUE(failed.ended.WaitFor(kGuard));
  EXPECT_EQ(failed.status, absl::InternalError("no memory"));
  ExpectNothingHeld();
  Caller next;
  Submit(next.Request({3}, 2));
  ASSERT_TRUE(next.ended.WaitFor(kGuard));
  EXPECT_TRUE(next.status.ok()) << next.status;
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, DrainRefusesRequestsAndWaitsForThoseItHas) {
  Start(Gated(0));
  Caller running;
  Caller refused;
  Submit(running.Request({3}, 2));
  EXPECT_FALSE(loop_->Drain(absl::ZeroDuration()));
  EXPECT_EQ(loop_->Submit(refused.Request({3}, 2)).status().code(), absl::StatusCode::kUnavailable);
  gate_.Notify();
  EXPECT_TRUE(loop_->Drain(kGuard));
  EXPECT_TRUE(running.ended.HasBeenNotified());
  EXPECT_TRUE(running.status.ok()) << running.status;
  ExpectNothingHeld();
}

TEST_F(GenerationLoopTest, StoppingEndsEverything) {
  auto engine = std::make_unique<ScriptedEngine>(/*max_sequences=*/1);
  const GenerationLoop* loop = nullptr;
  engine->on_poll = [&, polls = 0]() mutable {
    if (polls++ == 0) return absl::OkStatus();
    EXPECT_TRUE(gate_.WaitFor(kGuard));
    while (!loop->draining()) std::this_thread::yield();  // Stop has begun
    return absl::OkStatus();
  };
  Start(std::move(engine));
  loop = loop_.get();
  Caller running;
  Caller waiting;
  Submit(running.Request({3}, kEndless));
  Submit(waiting.Request({3}, kEndless));
  ASSERT_TRUE(running.first_token.WaitFor(kGuard));
  gate_.Notify();
  loop_->Stop();
  EXPECT_EQ(running.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(waiting.status.code(), absl::StatusCode::kUnavailable);
  Caller late;
  EXPECT_EQ(loop_->Submit(late.Request({3}, 1)).status().code(), absl::StatusCode::kUnavailable);
  ExpectNothingHeld();
}

}  // namespace
}  // namespace freshet::openai
