#include "controller/jobs/plan/retention.h"

#include "base/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

JobRecord Ended(const std::string& id, absl::Duration ago,
                job::v1::JobState state = job::v1::JOB_STATE_SUCCEEDED) {
  JobRecord record;
  record.set_id(id);
  record.set_state(state);
  *record.mutable_finished() = ToTimestamp(kNow - ago);
  return record;
}

std::string Ids(const std::vector<Expiry>& expired) {
  std::string ids;
  for (const Expiry& expiry : expired) ids += expiry.job + " ";
  return ids;
}

TEST(Retention, KeepsAJobForItsTime) {
  const RetentionOptions options;
  EXPECT_EQ(Ids(FindExpired({Ended("a", absl::Hours(24) - absl::Seconds(1))}, kNow, options)), "");
  EXPECT_EQ(Ids(FindExpired({Ended("a", absl::Hours(24))}, kNow, options)), "a ");
}

TEST(Retention, KeepsJobsThatHaveNotEnded) {
  EXPECT_EQ(Ids(FindExpired({Ended("a", absl::Hours(99), job::v1::JOB_STATE_RUNNING),
                             Ended("b", absl::Hours(99), job::v1::JOB_STATE_PAUSED)},
                            kNow, {})),
            "");
}

TEST(Retention, KeepsAJobThatOthersOfItsTeamEndWith) {
  std::vector<JobRecord> records = {Ended("t-a", absl::Hours(25)),
                                    Ended("t-b", absl::Hours(99), job::v1::JOB_STATE_RUNNING)};
  for (JobRecord& record : records) record.mutable_spec()->set_team("t");
  RetentionOptions options;
  options.max_ended = 0;
  EXPECT_EQ(Ids(FindExpired(records, kNow, options)), "");
  records[1].set_state(job::v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Ids(FindExpired(records, kNow, options)), "t-b t-a ");
}

TEST(Retention, TheOldestGoFirstWhenThereAreTooMany) {
  RetentionOptions options;
  options.max_ended = 2;
  const std::vector<JobRecord> records = {
      Ended("newest", absl::Hours(1)), Ended("oldest", absl::Hours(3)),
      Ended("middle", absl::Hours(2), job::v1::JOB_STATE_FAILED),
      Ended("runs", absl::Hours(9), job::v1::JOB_STATE_RUNNING)};
  EXPECT_EQ(Ids(FindExpired(records, kNow, options)), "oldest ");
  options.max_ended = 3;
  EXPECT_EQ(Ids(FindExpired(records, kNow, options)), "");
  options.max_ended = 0;
  EXPECT_EQ(Ids(FindExpired(records, kNow, options)), "oldest middle newest ");
}

}  // namespace
}  // namespace freshet
