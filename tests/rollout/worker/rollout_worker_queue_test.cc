// A worker that drives a queue of requests, and one that rests.
#include <stop_token>

#include "rollout/generation/generation_queue.h"
#include "rollout/worker/rollout_worker.h"
#include "tests/rollout/worker/rollout_worker_fixture.h"

namespace freshet {
namespace {

using RolloutWorkerQueueTest = RolloutWorkerFixture;

TEST_F(RolloutWorkerQueueTest, RestsUntilItIsTold) {
  PutPrompts(1);
  Publish(5);
  worker().RestUntil(clock_.Now() + absl::Seconds(1));
  int turns = 0;
  store_->on_wait = [&] {
    if (++turns > 3) return;
    EXPECT_EQ(engine_.polls + store_->lease_calls, 0);
    if (turns == 3) worker().RestUntil(clock_.Now());
  };
  ASSERT_TRUE(RunUntil([&] { return AllPut(2); }).ok());
  EXPECT_GE(turns, 3);
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
