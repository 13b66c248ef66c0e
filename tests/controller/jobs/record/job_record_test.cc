#include "controller/jobs/record/job_record.h"

#include "base/proto_time.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_id.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_PAUSED;
using job::v1::JOB_STATE_PENDING;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_STARTING;
using job::v1::JOB_STATE_SUCCEEDED;
using job::v1::JobState;
using testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1000);

JobRecord Record(JobState state) {
  job::v1::JobSpec spec;
  spec.set_name("toy");
  JobRecord record = NewJobRecord("toy-1", spec, 3, kNow);
  record.set_state(state);
  return record;
}

TEST(JobRecord, AVersionIsEvaluatedOnceEverySetIs) {
  JobRecord record = Record(JOB_STATE_RUNNING);
  for (const char* name : {"a", "b"})
    record.mutable_spec()->mutable_eval()->add_sets()->set_name(name);
  EXPECT_EQ(EvaluatedVersion(record, "a"), -1);
  SetEvaluatedVersion(record, "a", 20);
  EXPECT_EQ(EvaluatedVersion(record, "a"), 20);
  EXPECT_EQ(EvaluatedVersion(record, "b"), -1);
  EXPECT_EQ(record.evaluated_version(), -1);
  SetEvaluatedVersion(record, "b", 10);
  EXPECT_EQ(record.evaluated_version(), 10);
  SetEvaluatedVersion(record, "a", 10);
  EXPECT_EQ(EvaluatedVersion(record, "a"), 20) << "it never falls";
}

TEST(JobRecord, ARecordOfAnOlderVersionSaysItForAllSets) {
  JobRecord record = Record(JOB_STATE_RUNNING);
  record.mutable_spec()->mutable_eval()->set_name("heldout");
  record.set_evaluated_version(40);
  EXPECT_EQ(EvaluatedVersion(record, "heldout"), 40);
  SetEvaluatedVersion(record, "heldout", 60);
  EXPECT_EQ(record.evaluated_version(), 60);
}

void AddTrainer(JobRecord& record) {
  *record.add_assignments() =
      NewAssignment(record, cluster::v1::ROLE_TRAINER, "trainer-0", 4, "inc", kNow);
}

TEST(JobRecord, BeginsPendingWithAnEvent) {
  const JobRecord record = Record(JOB_STATE_PENDING);
  ASSERT_EQ(record.recent_events_size(), 1);
  EXPECT_EQ(record.recent_events(0).key(), "state/1");
  EXPECT_EQ(record.recent_events(0).event().state().state(), JOB_STATE_PENDING);
}

TEST(JobRecord, MovesOnlyAlongTheLifeOfAJob) {
  const JobState all[] = {JOB_STATE_PENDING,  JOB_STATE_STARTING,  JOB_STATE_RUNNING,
                          JOB_STATE_PAUSED,   JOB_STATE_SUCCEEDED, JOB_STATE_FAILED,
                          JOB_STATE_CANCELLED};
  const std::string legal[] = {
      "PENDING>STARTING",   "PENDING>PAUSED",    "PENDING>FAILED",  "PENDING>CANCELLED",
      "STARTING>PENDING",   "STARTING>RUNNING",  "STARTING>PAUSED", "STARTING>FAILED",
      "STARTING>CANCELLED", "RUNNING>PENDING",   "RUNNING>PAUSED",  "RUNNING>SUCCEEDED",
      "RUNNING>FAILED",     "RUNNING>CANCELLED", "PAUSED>PENDING",  "PAUSED>STARTING",
      "PAUSED>RUNNING",     "PAUSED>SUCCEEDED",  "PAUSED>FAILED",   "PAUSED>CANCELLED",
      "FAILED>PENDING",     "CANCELLED>PENDING"};
  for (const JobState from : all) {
    for (const JobState to : all) {
      if (from == to) continue;
      JobRecord record = Record(from);
      const std::string move = StrCat(StateName(from), ">", StateName(to));
      const bool expected = std::count(std::begin(legal), std::end(legal), move) > 0;
      EXPECT_EQ(MoveTo(record, to, "why", kNow).ok(), expected) << move;
    }
  }
}

TEST(JobRecord, TheSameStateChangesTheReasonWithoutAnEvent) {
  JobRecord record = Record(JOB_STATE_PENDING);
  ASSERT_TRUE(MoveTo(record, JOB_STATE_PENDING, "waits for a trainer", kNow).ok());
  EXPECT_EQ(record.reason(), "waits for a trainer");
  EXPECT_EQ(record.recent_events_size(), 1);
}

TEST(JobRecord, AnEndFreesTheWorkersAndForgetsWhatWasWanted) {
  JobRecord record = Record(JOB_STATE_RUNNING);
  AddTrainer(record);
  record.set_wanted(cluster::v1::WANTED_CANCELLED);
  ASSERT_TRUE(MoveTo(record, JOB_STATE_CANCELLED, "asked", kNow).ok());
  EXPECT_EQ(record.assignments_size(), 0);
  EXPECT_EQ(record.wanted(), cluster::v1::WANTED_UNSPECIFIED);
  EXPECT_EQ(FromTimestamp(record.finished()), kNow);
}

TEST(JobRecord, KeepsOnlyTheLastEventsAndNeverRepeatsAKey) {
  JobRecord record = Record(JOB_STATE_RUNNING);
  for (int i = 0; i < 3 * kRecentEvents; ++i) {
    AddNotice(record, Severity::kInfo, "kind", StrCat("text ", i), kNow);
  }
  ASSERT_EQ(record.recent_events_size(), kRecentEvents);
  EXPECT_EQ(record.recent_events(kRecentEvents - 1).key(),
            StrCat("notice/", 1 + 3 * kRecentEvents));
}

TEST(JobRecord, KeepsANoticeOfAWorkerOnceAndItsOwnNotAgain) {
  JobRecord record = Record(JOB_STATE_RUNNING);
  AddNotice(record, Severity::kInfo, "kind", "its own", kNow);
  const cluster::v1::KeyedEvent own = record.recent_events(1);
  cluster::v1::KeyedEvent notice;
  notice.set_key("rank_lost/6/1");
  notice.mutable_event()->mutable_notice()->set_text("rank 1 was ended");
  for (int i = 0; i < 2; ++i) {
    KeepWorkersNotice(record, notice);
    KeepWorkersNotice(record, own);
  }
  ASSERT_EQ(record.recent_events_size(), 3);
  EXPECT_EQ(record.recent_events(2).event().notice().text(), "rank 1 was ended");
}

TEST(JobRecord, PauseOfAQueuedJobIsAtOnceAndOfARunningOneIsAWish) {
  JobRecord queued = Record(JOB_STATE_PENDING);
  ASSERT_TRUE(WantPaused(queued, "later", kNow).ok());
  EXPECT_EQ(queued.state(), JOB_STATE_PAUSED);
  EXPECT_THAT(queued.reason(), HasSubstr("later"));

  JobRecord running = Record(JOB_STATE_RUNNING);
  ASSERT_TRUE(WantPaused(running, "later", kNow).ok());
  EXPECT_EQ(running.state(), JOB_STATE_RUNNING);
  EXPECT_EQ(running.wanted(), cluster::v1::WANTED_PAUSED);
}

TEST(JobRecord, ResumeBringsAPausedJobWithoutWorkersBackToTheQueue) {
  JobRecord record = Record(JOB_STATE_PENDING);
  ASSERT_TRUE(WantPaused(record, "", kNow).ok());
  ASSERT_TRUE(WantResumed(record, kNow).ok());
  EXPECT_EQ(record.state(), JOB_STATE_PENDING);
  EXPECT_EQ(record.wanted(), cluster::v1::WANTED_UNSPECIFIED);
}

TEST(JobRecord, ResumeOfAFailedJobForgetsItsEnd) {
  JobRecord record = Record(JOB_STATE_RUNNING);
  record.set_trainer_done(true);
  ASSERT_TRUE(MoveTo(record, JOB_STATE_FAILED, "no", kNow).ok());
  *record.mutable_expires() = ToTimestamp(kNow + absl::Hours(24));
  ASSERT_TRUE(WantResumed(record, kNow).ok());
  EXPECT_EQ(record.state(), JOB_STATE_PENDING);
  EXPECT_FALSE(record.has_finished());
  EXPECT_FALSE(record.has_expires());
  EXPECT_FALSE(record.trainer_done());
}

TEST(JobRecord, ResumeOfASuccessIsRefused) {
  JobRecord record = Record(JOB_STATE_SUCCEEDED);
  EXPECT_EQ(WantResumed(record, kNow).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(JobRecord, AJobWithoutItsWorkersWaitsUnlessItIsNotToRun) {
  const struct {
    JobState state;
    cluster::v1::Wanted wanted;
    JobState becomes;
  } cases[] = {{JOB_STATE_STARTING, cluster::v1::WANTED_UNSPECIFIED, JOB_STATE_PENDING},
               {JOB_STATE_RUNNING, cluster::v1::WANTED_UNSPECIFIED, JOB_STATE_PENDING},
               {JOB_STATE_PAUSED, cluster::v1::WANTED_UNSPECIFIED, JOB_STATE_PENDING},
               {JOB_STATE_PAUSED, cluster::v1::WANTED_PAUSED, JOB_STATE_PAUSED},
               {JOB_STATE_RUNNING, cluster::v1::WANTED_PAUSED, JOB_STATE_PAUSED},
               {JOB_STATE_RUNNING, cluster::v1::WANTED_CANCELLED, JOB_STATE_CANCELLED}};
  for (const auto& c : cases) {
    JobRecord record = Record(c.state);
    record.set_wanted(c.wanted);
    AddTrainer(record);
    ASSERT_TRUE(GiveWorkersUp(record, "trainer-0 is another's", kNow).ok());
    EXPECT_EQ(record.state(), c.becomes);
    EXPECT_EQ(record.assignments_size(), 0);
    EXPECT_FALSE(IsActive(record));
  }
}

TEST(JobRecord, CallsOfAnEndedJobCanBeRaised) {
  JobRecord record = Record(JOB_STATE_FAILED);
  auto& components = *record.mutable_spec()->mutable_reward()->mutable_components();
  components["judge"].set_max_calls(10);
  components["free"].set_type("judge");
  const auto raise = [&record](const std::string& name, int64_t max_calls) {
    google::protobuf::Map<std::string, int64_t> raised;
    raised[name] = max_calls;
    return RaiseMaxCalls(record, raised);
  };
  EXPECT_EQ(raise("judge", 9).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(raise("free", 20).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(raise("other", 20).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(raise("judge", 1'000'000'000'001).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(raise("judge", 20), absl::OkStatus());
  EXPECT_EQ(components["judge"].max_calls(), 20);
  record.set_state(JOB_STATE_PENDING);
  EXPECT_EQ(raise("judge", 20), absl::OkStatus()) << "idempotent";
  EXPECT_EQ(raise("judge", 21).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(components["judge"].max_calls(), 20);
}

TEST(JobRecord, OnlyAnEndedJobIsDeletedAndThenItCannotBeResumed) {
  JobRecord active = Record(JOB_STATE_RUNNING);
  EXPECT_EQ(WantDeleted(active).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(active.deleting());
  JobRecord record = Record(JOB_STATE_FAILED);
  ASSERT_TRUE(WantDeleted(record).ok());
  ASSERT_TRUE(WantDeleted(record).ok()) << "idempotent";
  const absl::Status resumed = WantResumed(record, kNow);
  EXPECT_EQ(resumed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(resumed.message()), HasSubstr("is being deleted"));
  EXPECT_EQ(record.state(), JOB_STATE_FAILED);
}

TEST(JobRecord, CancelOfAnActiveJobIsAWishAndIdempotent) {
  JobRecord record = Record(JOB_STATE_RUNNING);
  AddTrainer(record);
  ASSERT_TRUE(WantCancelled(record, "enough", kNow).ok());
  ASSERT_TRUE(WantCancelled(record, "again", kNow).ok());
  EXPECT_EQ(record.state(), JOB_STATE_RUNNING);
  EXPECT_EQ(record.wanted_reason(), "enough");
  EXPECT_FALSE(WantPaused(record, "", kNow).ok());
}

// A record with a partial UTF-8 character could not be parsed.
TEST(JobRecord, LongReasonsAreCutBetweenTwoCharacters) {
  std::string reason = "x";
  while (reason.size() < 5000) reason += "\xc3\xa9";
  JobRecord paused = Record(JOB_STATE_PENDING), cancelled = Record(JOB_STATE_RUNNING);
  AddTrainer(cancelled);
  ASSERT_TRUE(WantPaused(paused, reason, kNow).ok());
  ASSERT_TRUE(WantCancelled(cancelled, reason, kNow).ok());
  AddNotice(cancelled, Severity::kError, "worker_failed", reason, kNow);
  for (const JobRecord& record : {paused, cancelled}) {
    JobRecord read;
    EXPECT_TRUE(read.ParseFromString(record.SerializeAsString()));
    EXPECT_GT(read.reason().size(), 4000U);
  }
}

TEST(JobRecord, CancelOfAPausedJobWithoutWorkersIsAtOnce) {
  JobRecord record = Record(JOB_STATE_PAUSED);
  ASSERT_TRUE(WantCancelled(record, "", kNow).ok());
  EXPECT_EQ(record.state(), JOB_STATE_CANCELLED);
  EXPECT_TRUE(WantCancelled(record, "", kNow).ok());
}

TEST(JobRecord, AssignmentIdsNameTheJobAndGrow) {
  JobRecord record = Record(JOB_STATE_STARTING);
  const Assignment a = NewAssignment(record, cluster::v1::ROLE_ROLLOUT, "rollout-0", 1, "i", kNow);
  const Assignment b = NewAssignment(record, cluster::v1::ROLE_ROLLOUT, "rollout-0", 2, "i", kNow);
  EXPECT_EQ(a.id(), "toy-1/rollout/1");
  EXPECT_EQ(b.id(), "toy-1/rollout/2");
  EXPECT_EQ(JobOfAssignment(a.id()), "toy-1");
  EXPECT_EQ(JobOfAssignment("none"), "");
}

TEST(JobRecord, IdsAreChecked) {
  for (const char* good : {"a", "A1.b_c-d", "9x"}) EXPECT_TRUE(ValidateJobId(good).ok()) << good;
  EXPECT_TRUE(ValidateJobId(std::string(63, 'a')).ok());
  for (const char* bad : {"", "-a", ".a", "a b", "a/b", "a{b", "\xc3\xa4", "freshet"}) {
    EXPECT_FALSE(ValidateJobId(bad).ok()) << bad;
  }
  EXPECT_FALSE(ValidateJobId(std::string(64, 'a')).ok());
}

TEST(JobRecord, MadeIdsAreGood) {
  for (const std::string& name :
       {std::string("arithmetic"), std::string("a b/c"), std::string(80, 'n'), std::string("-")}) {
    const std::string id = MakeJobId(name, 0x1234567890abcdefULL);
    EXPECT_TRUE(ValidateJobId(id).ok()) << id;
    EXPECT_THAT(id, HasSubstr("-12345678"));
  }
}

}  // namespace
}  // namespace freshet
