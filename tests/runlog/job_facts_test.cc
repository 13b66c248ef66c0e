#include "runlog/job_facts.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

TEST(JobFacts, ReadsWhatReadersOfARunNeed) {
  const ScratchFolder folder;
  folder.Write("job.yaml",
               "name: arithmetic\ngroup_size: 8\nprompts_per_step: 64\n"
               "staleness: {max: 2, policy: wait}\ntrainer: {steps: 140}\n");
  const absl::StatusOr<JobFacts> facts = ReadJobFacts(folder.File("job.yaml"));
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->name, "arithmetic");
  EXPECT_EQ(facts->group_size, 8);
  EXPECT_EQ(facts->prompts_per_step, 64);
  EXPECT_EQ(facts->staleness_max, 2);
  EXPECT_EQ(facts->staleness_policy, "wait");
  EXPECT_EQ(facts->steps, 140);
}

TEST(JobFacts, LeavesAbsentKeysEmpty) {
  const ScratchFolder folder;
  folder.Write("job.yaml", "name: a\nstaleness: none\n");
  const absl::StatusOr<JobFacts> facts = ReadJobFacts(folder.File("job.yaml"));
  ASSERT_TRUE(facts.ok());
  EXPECT_FALSE(facts->steps.has_value());
  EXPECT_FALSE(facts->staleness_max.has_value());
}

TEST(JobFacts, RefusesWhatIsNoMapping) {
  const ScratchFolder folder;
  for (const std::string& text :
       {std::string("- a\n"), std::string("a: [b\n"), std::string(),
        "a: " + std::string(100000, '['), std::string(size_t{2} << 20, '#')}) {
    folder.Write("job.yaml", text);
    EXPECT_TRUE(absl::IsInvalidArgument(ReadJobFacts(folder.File("job.yaml")).status()))
        << text.substr(0, 20);
  }
  EXPECT_TRUE(absl::IsNotFound(ReadJobFacts(folder.File("absent.yaml")).status()));
}

}  // namespace
}  // namespace freshet
