#include "local/team_watch.h"

#include <memory>

#include "base/str_cat.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/simulated_response.h"

namespace freshet {
namespace {

using testing::HasSubstr;

class TeamWatchTest : public testing::Test {
 protected:
  TeamWatchTest() {
    StoreOptions options;
    options.job = "job";
    options.staleness = {1, Disposition::kWait, /*groups_per_step=*/2, /*max_in_flight=*/8};
    options.group_size = 2;
    options.last_step = 5;
    options.capacity_groups = 100;
    options.max_queued_prompts = 10;
    auto store = InMemoryTrajectoryStore::Create(options, {}, clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    spec_.mutable_trainer()->set_steps(5);
    spec_.set_prompts_per_step(2);
  }
  std::string After(absl::Duration time, TeamWatch& watch) {
    clock_.Advance(time);
    const absl::StatusOr<std::string> end = watch.Look(*store_);
    EXPECT_TRUE(end.ok()) << end.status();
    return end.value_or("");
  }
  // One sample of the first group is played.
  void Play() {
    Prompt prompt;
    prompt.prompt_ids = {1};
    ASSERT_TRUE(store_->PutPrompts({prompt}).ok());
    const absl::StatusOr<LeaseReply> leased = store_->LeasePrompts({"r#1", "", {0, 0}, 1});
    ASSERT_TRUE(leased.ok() && leased->leases.size() == 1) << leased.status();
    ASSERT_EQ(store_->PutSample(leased->leases[0].token, 0, FinishAcross({}, 0, 0)),
              absl::OkStatus());
  }

  FakeClock clock_;
  std::unique_ptr<InMemoryTrajectoryStore> store_;
  JobSpec spec_;
};

TEST_F(TeamWatchTest, EndsTheRunOnceNothingHasMovedSinceAPartnersEnd) {
  std::string ended;
  TeamWatch watch([&ended] { return ended; }, spec_, clock_);
  EXPECT_EQ(After(absl::Hours(1), watch), "") << "no partner has ended";
  ended = "worker";
  EXPECT_EQ(After(absl::Hours(1), watch), "") << "it has ended now";
  EXPECT_EQ(After(absl::Seconds(59), watch), "");
  Play();
  EXPECT_EQ(After(absl::ZeroDuration(), watch), "");
  ended = "later";
  EXPECT_EQ(After(absl::Seconds(59), watch), "") << "something has moved";
  EXPECT_THAT(After(absl::Seconds(1), watch),
              HasSubstr("ends after step 0 of 5: policy worker has ended"));
}

TEST_F(TeamWatchTest, ARunWithoutATeamNeverEndsSo) {
  TeamWatch watch(nullptr, spec_, clock_);
  EXPECT_EQ(After(absl::Hours(1), watch), "");
  EXPECT_EQ(After(absl::Hours(1), watch), "");
}

}  // namespace
}  // namespace freshet
