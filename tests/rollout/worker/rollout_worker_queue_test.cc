// A worker that drives a queue of requests, and one whose engine is paused.
#include <stop_token>

#include "rollout/generation/generation_queue.h"
#include "rollout/worker/rollout_worker.h"
#include "tests/rollout/worker/rollout_worker_fixture.h"

namespace freshet {
namespace {

using RolloutWorkerQueueTest = RolloutWorkerFixture;

TEST_F(RolloutWorkerQueueTest, IsPausedUntilItIsTold) {
  PutPrompts(1);
  Publish(5);
  worker().PauseEngineUntil(clock_.Now() + absl::Seconds(1));
  int turns = 0;
  store_->on_wait = [&] {
    if (++turns > 3) return;
    EXPECT_EQ(engine_.polls + store_->lease_calls, 0);
    if (turns == 3) worker().PauseEngineUntil(clock_.Now());
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_GE(turns, 3);
}

TEST_F(RolloutWorkerQueueTest, ARequestThatFailsEndsAlone) {
  GenerationQueue queue(engine_, {}, clock_);
  RolloutWorker worker(*store_, engine_, subscriber_, clock_, worker_options_, nullptr, &queue);
  engine_.length = [](int64_t, int32_t) { return 10U; };  // not done when the request fails
  PutPrompts(1);
  Publish(5);
  engine_.fail_request = [](int64_t request) {
    return request >= kFirstQueuedRequest ? absl::InternalError("a bad answer") : absl::OkStatus();
  };
  absl::Status ended = absl::UnknownError("not ended");
  std::stop_source stop;
  int turns = 0;
  engine_.on_turn = [&] {
    if (engine_.polls == 2 && queue.stats().running + queue.stats().waiting == 0 &&
        absl::IsUnknown(ended)) {
      QueuedRequest request;
      request.generation.prompt_ids = {3};
      request.generation.sample_indices = {0};
      request.generation.sampling.max_new_tokens = 16;
      request.on_end = [&](const absl::Status& status) { ended = status; };
      EXPECT_TRUE(queue.Submit(std::move(request)).ok());
    }
    if (AllPut(2) || ++turns == 2000) stop.request_stop();
  };
  ASSERT_TRUE(worker.Run(stop.get_token()).ok());
  EXPECT_EQ(ended, absl::InternalError("a bad answer"));
  EXPECT_TRUE(AllPut(2));
  EXPECT_EQ(store_->return_calls, 0);
  EXPECT_EQ(worker.counters().engine_failures, 1);
}

TEST_F(RolloutWorkerQueueTest, SmallerGroupsDoNotPassARequestThatWaitsForRoom) {
  GenerationQueue queue(engine_, {}, clock_);
  RolloutWorker worker(*store_, engine_, subscriber_, clock_, worker_options_, nullptr, &queue);
  engine_.capacity = 4;  // two groups, which end at different times
  engine_.length = [](int64_t request, int32_t) { return request == 0 ? 4U : 6U; };
  PutPrompts(4);
  Publish(5);
  std::stop_source stop;
  engine_.on_poll = [&] {
    if (engine_.polls != 1) return;
    QueuedRequest request;
    request.generation.prompt_ids = {3};
    request.generation.sample_indices = {0, 1, 2, 3};
    request.generation.sampling.max_new_tokens = 16;
    request.on_end = [&](const absl::Status& status) {
      EXPECT_EQ(status, absl::OkStatus());
      stop.request_stop();
    };
    EXPECT_TRUE(queue.Submit(std::move(request)).ok());
  };
  int turns = 0;
  std::string reason;
  engine_.on_turn = [&] {
    if (queue.stats().waiting > 0) reason = worker.counters().last_wait_reason;
    if (++turns >= 2000) stop.request_stop();
  };
  ASSERT_TRUE(worker.Run(stop.get_token()).ok());
  EXPECT_EQ(reason, "requests of this rollout's endpoint wait for room first: 1");
  ASSERT_GE(engine_.submitted.size(), 3U);
  EXPECT_EQ(engine_.submitted[0].id, 0);
  EXPECT_EQ(engine_.submitted[1].id, 1);
  EXPECT_GE(engine_.submitted[2].id, kFirstQueuedRequest) << "group 2 went first";
}

TEST_F(RolloutWorkerQueueTest, ADrainLetsRequestsEndAfterTheLeasesWentBack) {
  GenerationQueue queue(engine_, {}, clock_);
  RolloutWorker worker(*store_, engine_, subscriber_, clock_, worker_options_, nullptr, &queue);
  PutPrompts(1);
  Publish(5);
  absl::Status ended = absl::UnknownError("not ended");
  std::stop_source stop;
  engine_.on_turn = [&] {
    if (engine_.polls == 0 && queue.stats().running + queue.stats().waiting == 0) {
      QueuedRequest request;
      request.generation.prompt_ids = {3};
      request.generation.sample_indices = {0};
      request.generation.sampling.max_new_tokens = 16;
      request.on_end = [&](const absl::Status& status) {
        EXPECT_EQ(store_->return_calls, 1) << "its lease went back first";
        ended = status;
      };
      EXPECT_TRUE(queue.Submit(std::move(request)).ok());
    }
    if (engine_.polls == 2) {
      queue.StartDrain(clock_.Now() + absl::Seconds(1));
      stop.request_stop();
    }
  };
  ASSERT_TRUE(worker.Run(stop.get_token()).ok());
  EXPECT_EQ(ended, absl::OkStatus());
  EXPECT_EQ(queue.Submit({}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace freshet
