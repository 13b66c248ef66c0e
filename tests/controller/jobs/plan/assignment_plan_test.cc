#include "controller/jobs/plan/assignment_plan.h"

#include "base/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using cluster::v1::ROLE_ENV;
using cluster::v1::ROLE_REWARD;
using cluster::v1::ROLE_ROLLOUT;
using cluster::v1::ROLE_TRAINER;
using testing::ElementsAre;
using testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1000);

Member Worker(cluster::v1::Role role, const std::string& name, int64_t epoch,
              const std::string& incarnation = "one") {
  Member member;
  member.record.set_name(name);
  member.record.set_role(role);
  member.record.set_epoch(epoch);
  member.record.set_incarnation(incarnation);
  if (role == ROLE_ROLLOUT) member.record.set_pool("default");
  member.connected = true;
  return member;
}

Member Lost(Member member) {
  member.record.set_lost(true);
  member.record.set_lost_reason("silent for 2s");
  member.connected = false;
  return member;
}

std::vector<Member> AssignableMembers() {
  return {Worker(ROLE_TRAINER, "t", 1), Worker(ROLE_ROLLOUT, "r0", 2),
          Worker(ROLE_ROLLOUT, "r1", 3), Worker(ROLE_REWARD, "w", 4), Worker(ROLE_ENV, "e", 5)};
}

class AssignmentPlanTest : public testing::Test {
 protected:
  AssignmentPlanTest() {
    job::v1::JobSpec spec;
    spec.set_name("j");
    record_ = NewJobRecord("j", spec, 0, kNow);
    record_.set_state(job::v1::JOB_STATE_STARTING);
    record_.set_pool("default");
    record_.set_trainer("t");
    const Assignment trainer = NewAssignment(record_, ROLE_TRAINER, "t", 1, "one", kNow);
    *record_.add_assignments() = trainer;
  }
  AssignmentChange Plan(const std::vector<Member>& workers, const AssignmentRules& rules = {}) {
    return PlanAssignments(record_, workers, rules, kNow);
  }
  std::vector<std::string> Assigned() const {
    std::vector<std::string> names;
    for (const Assignment& a : record_.assignments()) names.push_back(a.worker());
    return names;
  }
  std::string IdOf(const std::string& worker) const {
    for (const Assignment& a : record_.assignments()) {
      if (a.worker() == worker) return a.id();
    }
    return "";
  }

  JobRecord record_;
};

TEST_F(AssignmentPlanTest, EverybodyWhoServesTheJobGetsWork) {
  EXPECT_TRUE(Plan(AssignableMembers()).notes.empty());
  EXPECT_THAT(Assigned(), ElementsAre("t", "r0", "r1", "w"));
}

TEST_F(AssignmentPlanTest, EnvironmentWorkersServeJobsThatNeedThem) {
  record_.mutable_spec()->mutable_environment()->set_type("calculator");
  Plan(AssignableMembers());
  EXPECT_THAT(Assigned(), ElementsAre("t", "r0", "r1", "w", "e"));
}

TEST_F(AssignmentPlanTest, AnEnvironmentOfOnesOwnNeedsNone) {
  record_.mutable_spec()->mutable_environment()->set_type("grpc");
  record_.mutable_spec()->mutable_environment()->set_address("host:1");
  Plan(AssignableMembers());
  EXPECT_THAT(Assigned(), ElementsAre("t", "r0", "r1", "w"));
}

TEST_F(AssignmentPlanTest, RolloutsOfOtherPoolsAndWorkersThatDrainAreLeftAlone) {
  std::vector<Member> workers = AssignableMembers();
  workers[1].record.set_pool("other");
  workers[2].status.set_draining(true);
  Plan(workers);
  EXPECT_THAT(Assigned(), ElementsAre("t", "w"));
}

TEST_F(AssignmentPlanTest, OnlyRolloutsOfTheJobsEngineGetWork) {
  std::vector<Member> workers = AssignableMembers();
  workers[1].record.set_engine("vllm");
  Plan(workers);
  EXPECT_THAT(Assigned(), ElementsAre("t", "r1", "w"));
  record_.mutable_spec()->mutable_rollout()->set_engine("vllm");
  Plan(workers);
  EXPECT_THAT(Assigned(), ElementsAre("t", "w", "r0"));
}

TEST_F(AssignmentPlanTest, AWorkerThatDrainsKeepsWhatItHasUntilItLeaves) {
  std::vector<Member> workers = AssignableMembers();
  Plan(workers);
  workers[1].status.set_draining(true);
  EXPECT_TRUE(Plan(workers).revoke.empty());
  EXPECT_THAT(Assigned(), ElementsAre("t", "r0", "r1", "w"));
  workers.erase(workers.begin() + 1);
  EXPECT_THAT(Plan(workers).revoke, ElementsAre("r0#2"));
  EXPECT_THAT(Assigned(), ElementsAre("t", "r1", "w"));
}

TEST_F(AssignmentPlanTest, PlanningTwiceChangesNothing) {
  Plan(AssignableMembers());
  const std::string before = record_.SerializeAsString();
  const AssignmentChange change = Plan(AssignableMembers());
  EXPECT_TRUE(change.revoke.empty());
  EXPECT_EQ(record_.SerializeAsString(), before);
}

TEST_F(AssignmentPlanTest, ALostRolloutGivesItsLeasesBack) {
  std::vector<Member> workers = AssignableMembers();
  Plan(workers);
  workers[1] = Lost(workers[1]);
  const AssignmentChange change = Plan(workers);
  EXPECT_THAT(change.revoke, ElementsAre("r0#2"));
  ASSERT_EQ(change.notes.size(), 1U);
  EXPECT_EQ(change.notes[0].kind, "worker_lost");
  EXPECT_THAT(change.notes[0].text, HasSubstr("silent for 2s"));
  EXPECT_THAT(Assigned(), ElementsAre("t", "r1", "w"));
}

TEST_F(AssignmentPlanTest, AWorkerThatComesBackGetsWorkUnderItsNewEpoch) {
  std::vector<Member> workers = AssignableMembers();
  Plan(workers);
  const std::string former = IdOf("r0");
  workers[1] = Worker(ROLE_ROLLOUT, "r0", 9);
  EXPECT_THAT(Plan(workers).revoke, ElementsAre("r0#2"));
  EXPECT_NE(IdOf("r0"), former);
}

TEST_F(AssignmentPlanTest, AWorkerThatIsNotBackYetKeepsItsWork) {
  std::vector<Member> workers = AssignableMembers();
  Plan(workers);
  for (Member& worker : workers) worker.connected = false;  // as after a takeover
  EXPECT_TRUE(Plan(workers).revoke.empty());
  EXPECT_THAT(Assigned(), ElementsAre("t", "r0", "r1", "w"));
}

TEST_F(AssignmentPlanTest, TheTrainersPlaceIsKept) {
  std::vector<Member> workers = AssignableMembers();
  Plan(workers);
  const std::string id = IdOf("t");
  workers[0] = Lost(workers[0]);
  const AssignmentChange change = Plan(workers);
  EXPECT_TRUE(change.revoke.empty()) << "the store fences trainers by epochs of its own";
  EXPECT_EQ(IdOf("t"), id);
  EXPECT_EQ(record_.assignments(0).epoch(), 0);

  // The same process reconnects under a new epoch and continues.
  workers[0] = Worker(ROLE_TRAINER, "t", 12);
  Plan(workers);
  EXPECT_EQ(IdOf("t"), id);
  EXPECT_EQ(record_.assignments(0).epoch(), 12);
}

TEST_F(AssignmentPlanTest, ANewTrainerProcessGetsAnAssignmentOfItsOwn) {
  std::vector<Member> workers = AssignableMembers();
  Plan(workers);
  const std::string id = IdOf("t");
  workers[0] = Worker(ROLE_TRAINER, "t", 12, "two");
  Plan(workers);
  EXPECT_NE(IdOf("t"), id);
  EXPECT_EQ(record_.assignments(0).epoch(), 12);
}

TEST_F(AssignmentPlanTest, AnotherTrainerTakesALostOnesPlaceOnlyWhenItMay) {
  std::vector<Member> workers = AssignableMembers();
  workers.push_back(Worker(ROLE_TRAINER, "t2", 20));
  workers[0] = Lost(workers[0]);
  Plan(workers);
  EXPECT_EQ(Assigned()[0], "t");
  AssignmentRules rules;
  rules.other_trainer = "t2";
  Plan(workers, rules);
  EXPECT_EQ(Assigned()[0], "t2");
  EXPECT_EQ(record_.trainer(), "t2");
}

TEST_F(AssignmentPlanTest, FailedWorkIsBegunAgainUnderANewIdWithoutFencingItsWorker) {
  Plan(AssignableMembers());
  AssignmentRules rules;
  rules.replace = {{IdOf("r0"), ""}, {IdOf("t"), "trainer t: no weights"}};
  const std::string rollout = IdOf("r0");
  const std::string trainer = IdOf("t");
  const AssignmentChange change = Plan(AssignableMembers(), rules);
  EXPECT_TRUE(change.revoke.empty());
  ASSERT_EQ(change.notes.size(), 1U);
  EXPECT_EQ(change.notes[0].kind, "worker_failed");
  EXPECT_EQ(change.notes[0].text, "trainer t: no weights; its work begins again");
  EXPECT_NE(IdOf("r0"), rollout);
  EXPECT_NE(IdOf("r0"), "");
  EXPECT_NE(IdOf("t"), trainer);
}

}  // namespace
}  // namespace freshet
