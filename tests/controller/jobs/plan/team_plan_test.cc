#include "controller/jobs/plan/team_plan.h"

#include <map>

#include "base/proto_time.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_PENDING;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

absl::Time At(int second) { return absl::FromUnixSeconds(1'000'000 + second); }

JobRecord Job(const std::string& id, job::v1::JobState state, const std::string& team = "t") {
  JobRecord record;
  record.set_id(id);
  record.set_state(state);
  record.mutable_spec()->set_team(team);
  record.mutable_spec()->set_pool("default");
  return record;
}

JobRecord Ended(const std::string& id, job::v1::JobState state, const std::string& reason,
                int second) {
  JobRecord record = Job(id, state);
  record.set_reason(reason);
  *record.mutable_finished() = ToTimestamp(At(second));
  return record;
}

std::vector<std::string> Stops(const std::vector<JobRecord>& records) {
  std::vector<std::string> lines;
  for (const TeamStop& stop : FindTeamStops(records)) {
    lines.push_back(StrCat(stop.job, ", ", stop.cause, ": ", stop.reason));
  }
  return lines;
}

TEST(TeamStops, AllAreCancelledBecauseOfTheFirstFailure) {
  EXPECT_THAT(Stops({Job("t-a", JOB_STATE_RUNNING), Job("t-b", JOB_STATE_PENDING),
                     Job("t-c", JOB_STATE_PAUSED), Ended("t-d", JOB_STATE_CANCELLED, "bored", 9),
                     Ended("t-e", JOB_STATE_FAILED, "disk full", 5),
                     Job("x", JOB_STATE_RUNNING, "u"), Job("y", JOB_STATE_RUNNING, "")}),
              ElementsAre("t-a, t-e: team t: policy e failed: disk full",
                          "t-b, t-e: team t: policy e failed: disk full",
                          "t-c, t-e: team t: policy e failed: disk full"));
}

TEST(TeamStops, AJobThatHasSucceededStopsNoOther) {
  EXPECT_THAT(Stops({Job("t-a", JOB_STATE_RUNNING), Ended("t-b", JOB_STATE_SUCCEEDED, "done", 1)}),
              IsEmpty());
  EXPECT_THAT(Stops({Ended("t-a", JOB_STATE_SUCCEEDED, "done", 1),
                     Ended("t-b", JOB_STATE_FAILED, "disk full", 2)}),
              IsEmpty());
}

TEST(TeamStops, OneThatIsBeingCancelledIsNotCancelledAgain) {
  JobRecord leaving = Job("t-a", JOB_STATE_RUNNING);
  leaving.set_wanted(cluster::v1::WANTED_CANCELLED);
  EXPECT_THAT(Stops({leaving, Ended("t-b", JOB_STATE_FAILED, "disk full", 2)}), IsEmpty());
}

TEST(TeamStops, AResumedJobIsCancelledOnlyForLaterFailures) {
  JobRecord resumed = Job("t-a", JOB_STATE_PENDING);
  *resumed.mutable_resumed() = ToTimestamp(At(10));
  EXPECT_THAT(Stops({resumed, Ended("t-b", JOB_STATE_FAILED, "disk full", 9)}), IsEmpty());
  EXPECT_THAT(Stops({resumed, Ended("t-b", JOB_STATE_FAILED, "disk full", 11)}),
              ElementsAre("t-a, t-b: team t: policy b failed: disk full"));
}

TEST(TeamStops, OtherIdsNameThePolicyByTheirJob) {
  JobRecord named = Ended("77", JOB_STATE_FAILED, "disk full", 1);
  named.mutable_spec()->set_name("t-worker");
  EXPECT_THAT(Stops({Job("a", JOB_STATE_RUNNING), named}),
              ElementsAre("a, 77: team t: policy worker failed: disk full"));
  EXPECT_THAT(Stops({Job("a", JOB_STATE_RUNNING), Ended("77", JOB_STATE_FAILED, "disk full", 1)}),
              ElementsAre("a, 77: team t: policy 77 failed: disk full"));
}

std::string End(const std::vector<EndedPartner>& partners, const std::string& edge, int last,
                int now, int64_t step = 19, const std::map<GroupState, int64_t>& groups = {}) {
  TeamProgress progress{{}, edge, 20, /*groups_per_step=*/2, At(last)};
  for (const auto& [state, number] : groups) {
    progress.stats.groups[static_cast<size_t>(state)] = number;
  }
  progress.stats.committed_version = step;
  progress.stats.ended_by_reason = {{"dropped(too_old)", 1}, {"dead(score_failed)", 3}};
  return FindTeamEnd(partners, progress, ControllerTiming(), At(now));
}

TEST(TeamEnd, AJobEndsOnceItsNextStepNeedsAPartnerThatHasEnded) {
  const std::vector<EndedPartner> partners =
      FindEndedPartners({Job("t-a", JOB_STATE_RUNNING), Ended("t-b", JOB_STATE_SUCCEEDED, "", 105),
                         Ended("t-c", JOB_STATE_SUCCEEDED, "", 100), Job("t-d", JOB_STATE_RUNNING),
                         Job("x", JOB_STATE_SUCCEEDED, "u")},
                        Job("t-a", JOB_STATE_RUNNING));
  ASSERT_THAT(partners, SizeIs(2));
  EXPECT_EQ(End(partners, "rollout", 90, 160),
            "ends after step 19 of 20: policy c has ended, so that no more prompts can be played; "
            "given up here: 3 dead(score_failed), 1 dropped(too_old)");
  EXPECT_NE(End(partners, "prompts", 90, 160), "");
}

TEST(TeamEnd, AJobTrainsWhatHasBeenPlayed) {
  const std::vector<EndedPartner> partners = {{"b", At(100)}};
  EXPECT_EQ(End({}, "rollout", 90, 1000), "");
  EXPECT_EQ(End(partners, "rollout", 90, 159), "");
  EXPECT_EQ(End(partners, "rollout", 110, 169), "");
  EXPECT_NE(End(partners, "rollout", 110, 170), "");
  for (const char* edge : {"reward", "trainer", "staleness", "store", "paused", "done"}) {
    EXPECT_EQ(End(partners, edge, 90, 1000), "") << edge;
  }
  EXPECT_EQ(End(partners, "rollout", 90, 1000, /*step=*/20), "");
}

TEST(TeamEnd, OtherGroupsMayBeEnoughForTheStep) {
  const auto end = [](const std::map<GroupState, int64_t>& groups, int now = 1000) {
    return End({{"b", At(100)}}, "rollout", 90, now, 19, groups);
  };
  EXPECT_NE(end({{GroupState::kLeased, 5}, {GroupState::kReady, 1}}), "");
  EXPECT_EQ(end({{GroupState::kLeased, 5}, {GroupState::kGenerated, 1}}), "") << "a slow judge";
  EXPECT_EQ(end({{GroupState::kLeased, 5}, {GroupState::kScored, 1}}), "");
  // With disposition wait, the step waits for an older group.
  const std::map<GroupState, int64_t> held = {{GroupState::kLeased, 5}, {GroupState::kReady, 2}};
  EXPECT_EQ(end(held, 100 + 20 * 60 - 1), "");
  EXPECT_THAT(end(held, 100 + 20 * 60), HasSubstr("not trained: 2 ready groups"));
}

TEST(TeamEnd, TheThirdWithoutASaveFailsTheJob) {
  EXPECT_EQ(FindTeamEndFailure(2, "disk full"), "");
  EXPECT_THAT(FindTeamEndFailure(3, "disk full"), HasSubstr("not saved in 3 tries: disk full;"));
  EXPECT_THAT(FindTeamEndFailure(3, ""), HasSubstr("named no error"));
}

TEST(TeamEnd, TheSaveErrorIsThatOfTheLastTry) {
  JobRecord record = Job("t-a", JOB_STATE_RUNNING);
  EXPECT_EQ(FindSaveError(record), "");
  AddNotice(record, Severity::kWarning, "team_ended", "", At(1));
  AddNotice(record, Severity::kWarning, "checkpoint_failed", "disk full", At(2));
  AddNotice(record, Severity::kWarning, "stalled", "", At(3));
  EXPECT_EQ(FindSaveError(record), "disk full");
  AddNotice(record, Severity::kWarning, "team_ended", "", At(4));
  EXPECT_EQ(FindSaveError(record), "");
}

TEST(TeamResumes, AreThoseThatFailedOrWereCancelled) {
  const JobRecord asked = Ended("t-a", JOB_STATE_FAILED, "disk full", 1);
  std::vector<JobRecord> records = {asked, Ended("t-b", JOB_STATE_CANCELLED, "team", 2),
                                    Ended("t-c", JOB_STATE_SUCCEEDED, "done", 2),
                                    Job("x", JOB_STATE_FAILED, "u")};
  const auto jobs = FindTeamResumes(records, asked);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_THAT(*jobs, ElementsAre("t-b"));
  records.push_back(Job("t-d", JOB_STATE_RUNNING));
  records.back().set_wanted(cluster::v1::WANTED_CANCELLED);
  EXPECT_EQ(FindTeamResumes(records, asked).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(TeamDeletion, WaitsForTheEndOfTheJobsThatEndWithThisOne) {
  const JobRecord done = Ended("t-a", JOB_STATE_SUCCEEDED, "done", 1);
  const JobRecord failed = Ended("t-b", JOB_STATE_FAILED, "disk full", 1);
  std::vector<JobRecord> records = {done, failed, Job("x", JOB_STATE_RUNNING, "u")};
  EXPECT_TRUE(CheckTeamEnded(records, done).ok());
  records.push_back(Job("t-c", JOB_STATE_PAUSED));
  EXPECT_THAT(CheckTeamEnded(records, done).ToString(), HasSubstr("job t-c of the team of t-a"));
  EXPECT_TRUE(CheckTeamEnded(records, failed).ok());
}

TEST(TeamPool, EachJobOfATeamHasItsOwn) {
  const std::vector<JobRecord> records = {Job("t-a", JOB_STATE_RUNNING),
                                          Ended("t-b", JOB_STATE_FAILED, "disk full", 1)};
  job::v1::JobSpec spec = records[0].spec();
  EXPECT_THAT(CheckTeamPool(records, "t-c", spec).ToString(),
              HasSubstr("pool: default is also that"));
  EXPECT_TRUE(CheckTeamPool(records, "t-a", spec).ok());
  spec.set_pool("other");
  EXPECT_TRUE(CheckTeamPool(records, "t-c", spec).ok());
  spec.set_pool("default");
  spec.set_team("u");
  EXPECT_TRUE(CheckTeamPool(records, "t-c", spec).ok());
  spec.clear_team();
  EXPECT_TRUE(CheckTeamPool(records, "t-c", spec).ok());
}

}  // namespace
}  // namespace freshet
