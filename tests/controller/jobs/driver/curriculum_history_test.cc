#include "controller/jobs/driver/curriculum_history.h"

#include <map>
#include <memory>
#include <string>

#include "freshet/job/v1/job_service.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runlog/step_metrics.h"
#include "tests/testing/in_memory_event_log.h"

namespace freshet {
namespace {

class CurriculumHistoryTest : public testing::Test {
 protected:
  void AddStep(int64_t step, const std::map<std::string, double>& rewards, int64_t lineage = 0) {
    StepMetrics metrics;
    metrics.lineage = lineage;
    metrics.step = step;
    metrics.task_rewards = rewards;
    for (const auto& [task, reward] : rewards) metrics.task_samples[task] = 1;
    job::v1::Event event;
    event.set_metrics_json(ToJson(metrics));
    Add(event);
  }
  void Add(const job::v1::Event& event) {
    ASSERT_TRUE(log_->Append("{a}:events", "", event.SerializeAsString()).ok());
  }
  // Prompts of task a among `prompts`.
  static int OfTaskA(TaskCurriculum& curriculum, int prompts) {
    int count = 0;
    for (int i = 0; i < prompts; ++i) count += curriculum.Next() == 0 ? 1 : 0;
    return count;
  }

  std::unique_ptr<InMemoryEventLog> log_ = *InMemoryEventLog::Create();
  TaskCurriculum curriculum_{{{"a", 1, 1}, {"b", 1, 1}}, {/*least_factor=*/0.25, /*smoothing=*/1}};
};

TEST_F(CurriculumHistoryTest, TheNewestStepsCount) {
  AddStep(1, {{"a", 0.0}, {"b", 0.0}});
  AddStep(2, {{"a", 0.5}, {"b", 1.0}});
  job::v1::Event other;
  other.mutable_notice()->set_text("unrelated");
  Add(other);
  ASSERT_TRUE(log_->Append("{a}:events", "", "no event").ok());
  ASSERT_EQ(ObserveHistory(*log_, "{a}:events", 10, curriculum_), absl::OkStatus());
  EXPECT_EQ(OfTaskA(curriculum_, 50), 40) << "a counts in full, b a quarter";
  curriculum_.Observe(0, 2, {{"a", 1.0}, {"b", 0.5}});
  EXPECT_EQ(OfTaskA(curriculum_, 50), 40) << "step 2 was observed already";
}

TEST_F(CurriculumHistoryTest, OnlyTheNewestEventsAreRead) {
  AddStep(1, {{"b", 1.0}});
  AddStep(2, {{"a", 0.5}});
  AddStep(3, {{"a", 0.5}});
  ASSERT_EQ(ObserveHistory(*log_, "{a}:events", 2, curriculum_), absl::OkStatus());
  EXPECT_EQ(OfTaskA(curriculum_, 50), 25) << "the success of b is unknown";
}

TEST_F(CurriculumHistoryTest, StepsThatAResumeSupersedesDoNotCount) {
  AddStep(1, {{"a", 0.5}, {"b", 0.5}});
  AddStep(2, {{"b", 1.0}});
  AddStep(3, {{"b", 1.0}});
  AddStep(2, {{"a", 0.5}}, /*lineage=*/1);
  ASSERT_EQ(ObserveHistory(*log_, "{a}:events", 10, curriculum_), absl::OkStatus());
  EXPECT_EQ(OfTaskA(curriculum_, 50), 25);
}

TEST_F(CurriculumHistoryTest, AFreshJobHasNoHistory) {
  ASSERT_EQ(ObserveHistory(*log_, "{a}:events", 10, curriculum_), absl::OkStatus());
  EXPECT_EQ(OfTaskA(curriculum_, 50), 25);
}

}  // namespace
}  // namespace freshet
