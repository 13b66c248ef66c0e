#include <set>

#include "base/file.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "job/job_yaml.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;

std::string Example(const std::string& name) {
  const auto text = ReadFile(StrCat(FRESHET_SOURCE_DIR, "/examples/", name), 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

JobSpec ParsedExample(const std::string& name, const std::vector<std::string>& overrides = {}) {
  const JobResult result = ParseJob(Example(name), name, overrides);
  EXPECT_EQ(FormatConfigErrors(result.errors), "");
  const JobResult again = ParseJob(WriteJobYaml(result.spec), "job.yaml");
  EXPECT_EQ(FormatConfigErrors(again.errors), "");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(result.spec, again.spec));
  return result.spec;
}

TEST(Examples, ArithmeticIsTheDocumentedJob) {
  const JobSpec spec = ParsedExample("arithmetic.yaml");
  EXPECT_EQ(spec.name(), "arithmetic");
  EXPECT_EQ(spec.model().config().hidden_size(), 128);
  EXPECT_EQ(spec.tokenizer().alphabet(), "0123456789+=");
  EXPECT_EQ(spec.dataset().train_rows(), 8000);
  EXPECT_EQ(spec.rollout().max_inflight_groups(), 192);
  EXPECT_EQ(spec.staleness().max(), 2);
  EXPECT_EQ(spec.loss().correction().kind(), "tis");
  EXPECT_EQ(spec.loss().clip().high(), 0.28);
  EXPECT_TRUE(spec.warmup().has_sft());
  EXPECT_EQ(spec.eval().rows(), 512);
}

TEST(Examples, TeamHasTwoPolicies) {
  const JobFile file = ParseJobFile(Example("team/team.yaml"), "team.yaml");
  EXPECT_EQ(FormatConfigErrors(file.errors), "");
  ASSERT_EQ(file.jobs.size(), 2u);
  EXPECT_EQ(file.jobs[0].spec.dataset().type(), "jsonl");
  EXPECT_EQ(file.jobs[0].spec.warmup().sft().steps(), 200);
  EXPECT_EQ(file.jobs[0].spec.warmup().sft().batch_size(), 64);
  EXPECT_EQ(file.jobs[1].spec.dataset().type(), "arithmetic");
  EXPECT_EQ(file.jobs[1].spec.environment().address(), "127.0.0.1:7202");
}

TEST(Examples, DelegationIsATeamOfOnePolicy) {
  const JobSpec spec = ParsedExample("team/delegation.yaml");
  EXPECT_EQ(spec.team(), "delegation");
  EXPECT_EQ(spec.loss().not_asked(), "duplicate");
}

TEST(Examples, StoriesNeedsAModel) {
  const JobResult result = ParseJob(Example("stories.yaml"), "stories.yaml");
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].path, "model.path");
}

TEST(Examples, StoriesHasManyDifferentNames) {
  const JobSpec spec = ParsedExample("stories.yaml", {"model.path=dir"});
  std::set<std::string> names;
  for (const job::v1::Row& row : spec.dataset().rows()) {
    names.insert(row.values().at("name"));
    EXPECT_THAT((std::set<std::string>{"girl", "boy"}),
                ::testing::Contains(row.values().at("noun")));
  }
  EXPECT_GE(names.size(), 24u);
  EXPECT_EQ(names.size(), static_cast<size_t>(spec.dataset().rows_size()));
  EXPECT_EQ(spec.reward().components().at("name").text(), "{name}");
  EXPECT_EQ(spec.reward().components().at("name").min_count(), 3);
}

TEST(Examples, SmokeIsACopyTaskFromScratch) {
  const JobSpec spec = ParsedExample("smoke.yaml");
  EXPECT_EQ(spec.dataset().type(), "copy");
  EXPECT_EQ(spec.model().init(), "random");
}

}  // namespace
}  // namespace freshet
