#include "base/proto_time.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/jobs/driver/controller_fixture.h"
#include "tests/testing/simulated_response.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::ElementsAre;
using testing::HasSubstr;

// Jobs of a team, of which t-b has succeeded.
class TeamEndTest : public ControllerTest {
 protected:
  void RunWithEndedPartner() {
    Run("t-a", "team: t\n");
    const absl::Time now = cluster_.clock.Now();
    JobRecord partner = NewJobRecord("t-b", Record("t-a").spec(), 0, now);
    partner.set_state(JOB_STATE_SUCCEEDED);
    *partner.mutable_finished() = ToTimestamp(now);
    ASSERT_EQ(term_->registry.Create(partner), absl::OkStatus());
  }
  // Lets time pass until the trainer of t-a is told to stop, which it has not confirmed.
  ::testing::AssertionResult Stops() {
    const bool stops = Eventually([&] {
      if (trainer_.Work().empty()) return true;
      cluster_.clock.Advance(absl::Milliseconds(500));
      trainer_.SendStatus().IgnoreError();
      for (HubWorker* worker : {&rollout_, &reward_}) worker->Beat().IgnoreError();
      // A turn at the current time: see AStallIsNamedWithinTenSeconds.
      const int reads = cluster_.records.reads;
      EXPECT_TRUE(Eventually([&] { return cluster_.records.reads >= reads + 2; }));
      return false;
    });
    return stops ? ::testing::AssertionSuccess() : ::testing::AssertionFailure();
  }
  // The trainer of t-a confirms that it has stopped, and is told to start again.
  ::testing::AssertionResult StartsAgain() {
    const bool starts = Eventually([&] {
      Beat();
      return !trainer_.Work().empty();
    });
    return starts ? ::testing::AssertionSuccess() : ::testing::AssertionFailure();
  }
  // As a trainer whose save fails while it stops.
  void TellSaveError(const std::string& error) {
    job::v1::Event event;
    event.mutable_notice()->set_kind("checkpoint_failed");
    event.mutable_notice()->set_text(error);
    const std::string key = StrCat("checkpoint_failed/", error);
    ASSERT_TRUE(cluster_.events->Append(EventStream("t-a"), key, event.SerializeAsString()).ok());
  }
  // Plays, scores and trains the groups of the first step. Returns the trainer's epoch.
  int64_t TrainStep() {
    const auto store = Store("t-a");
    EXPECT_TRUE(Eventually([&] { return store->Stats()->queued_prompts > 1; }));
    const auto leased = store->LeasePrompts({rollout_.lease_name(), "", {0, 0}, 2});
    EXPECT_TRUE(leased.ok()) << leased.status();
    for (const GroupLease& lease : leased->leases) {
      for (const int32_t index : lease.missing) {
        EXPECT_EQ(store->PutSample(lease.token, index, FinishAcross({}, 0, 0)), absl::OkStatus());
      }
    }
    const auto rows = store->LeaseRows(Task::kScore, reward_.lease_name(), 100);
    EXPECT_TRUE(rows.ok()) << rows.status();
    for (const RowLease& row : *rows) {
      auto score = std::make_shared<Score>();
      score->reward = row.sample.key.index;
      EXPECT_EQ(store->PutFields(Task::kScore, row.token, {score}), absl::OkStatus());
    }
    const int64_t epoch = store->OpenEpoch("t0", {0, 0})->epoch;
    const auto batch = store->NextBatch(epoch, 1);
    EXPECT_TRUE(batch.ok() && batch->ready) << batch.status();
    std::vector<int64_t> ordinals;
    for (const TrainGroup& group : batch->groups) ordinals.push_back(group.ordinal);
    EXPECT_TRUE(store->CommitStep(epoch, 1, ordinals, "hash").ok());
    return epoch;
  }
};

TEST_F(TeamEndTest, WaitsUntilTheTrainedStepsAreSaved) {
  RunWithEndedPartner();
  const int64_t epoch = TrainStep();
  ASSERT_TRUE(Stops());
  ASSERT_TRUE(StartsAgain());
  EXPECT_EQ(Record("t-a").state(), JOB_STATE_RUNNING);
  ASSERT_EQ(Store("t-a")->MarkDurable(epoch, 1, std::string(64, 'a')), absl::OkStatus());
  ASSERT_TRUE(Stops());
  ASSERT_TRUE(trainer_.Beat().ok());
  ASSERT_TRUE(Becomes("t-a", JOB_STATE_SUCCEEDED));
  EXPECT_THAT(Record("t-a").reason(), HasSubstr("ends after step 1 of 4"));
}

TEST_F(TeamEndTest, IsWhenNothingMoreCanBePlayed) {
  RunWithEndedPartner();
  const absl::Time before = cluster_.clock.Now();
  ASSERT_TRUE(Stops());
  EXPECT_GE(cluster_.clock.Now() - before, absl::Seconds(60));
  EXPECT_LE(cluster_.clock.Now() - before, absl::Seconds(65));
  ASSERT_TRUE(trainer_.Beat().ok());
  ASSERT_TRUE(Becomes("t-a", JOB_STATE_SUCCEEDED));
  const std::string reason =
      "ends after step 0 of 4: policy b has ended, so that no more prompts can be played; given up "
      "here: no group";
  EXPECT_EQ(Record("t-a").reason(), reason);
  EXPECT_THAT(Notices("t-a", "team_ended"), ElementsAre(reason));
}

TEST_F(TeamEndTest, FailsWithTheErrorIfTheTrainedStepsAreNotSavedInThreeTries) {
  RunWithEndedPartner();
  TrainStep();
  ASSERT_TRUE(Stops());
  ASSERT_TRUE(term_->hub->Deregister("t0", trainer_.epoch()).ok());  // it is lost while it saves
  Join({&trainer_});
  ASSERT_TRUE(StartsAgain());
  ASSERT_TRUE(Stops());
  TellSaveError("no route to host");
  ASSERT_TRUE(StartsAgain());
  ASSERT_TRUE(Stops());
  TellSaveError("no space left on device");
  ASSERT_TRUE(trainer_.Beat().ok());
  ASSERT_TRUE(Becomes("t-a", JOB_STATE_FAILED));
  EXPECT_THAT(Record("t-a").reason(), HasSubstr("not saved in 3 tries: no space left on device"));
}

}  // namespace
}  // namespace freshet
