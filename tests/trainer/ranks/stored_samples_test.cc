#include "trainer/ranks/stored_samples.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/trainer/learner/train_groups.h"
#include "tests/trainer/ranks/batch_store.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr SampleKey kFirst = {4, 0, 0};
constexpr SampleKey kSecond = {4, 0, 1};

class StoredSamplesTest : public testing::Test {
 protected:
  StoredSamplesTest() {
    TrainGroup group;
    const auto prompt = MakePrompt(4, {1, 2});
    for (int32_t i = 0; i < 2; ++i) {
      group.samples.push_back(MakeTrainSample(prompt, i, {3, 4}, {-0.5F, -1.0F}, i));
    }
    batch_->Set({group});
  }
  std::unique_ptr<StoredSamples> Rows() {
    return std::make_unique<StoredSamples>(
        [this](const std::string& job) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
          EXPECT_EQ(job, "job");
          if (!open_error_.ok()) return open_error_;
          return std::make_unique<BatchStore>(batch_);
        },
        "job", clock_);
  }

  FakeClock clock_;
  std::shared_ptr<StoredBatch> batch_ = std::make_shared<StoredBatch>();
  absl::Status open_error_;
};

TEST_F(StoredSamplesTest, ReadsEachSampleOnceInAStep) {
  const auto rows = Rows();
  ASSERT_TRUE(rows->Read(1, {kSecond}).ok());
  const auto both = rows->Read(1, {kFirst, kSecond});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)[0].uid, "job/4/0/0");
  EXPECT_EQ((*both)[1].uid, "job/4/0/1");
  EXPECT_THAT(batch_->read(), ElementsAre(kSecond, kFirst));
  ASSERT_TRUE(rows->Read(2, {kSecond}).ok());
  EXPECT_THAT(batch_->read(), SizeIs(3));
}

TEST_F(StoredSamplesTest, LeavesAStoreThatIsAwayAloneForAWhile) {
  const auto rows = Rows();
  open_error_ = absl::UnavailableError("redis is gone");
  EXPECT_THAT(rows->Read(1, {kFirst}).status().message(), HasSubstr("redis is gone"));
  open_error_ = absl::OkStatus();
  EXPECT_TRUE(absl::IsUnavailable(rows->Read(2, {kFirst}).status())) << "not tried";
  clock_.Advance(kStoreRetryDelay);
  EXPECT_TRUE(rows->Read(3, {kFirst}).ok());
  batch_->Fail({absl::PermissionDeniedError("NOAUTH")});
  EXPECT_TRUE(rows->Read(3, {kFirst}).ok()) << "read before";
  EXPECT_TRUE(absl::IsPermissionDenied(rows->Read(4, {kFirst}).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(rows->Read(5, {kFirst}).status()));
  clock_.Advance(kStoreRetryDelay);
  EXPECT_TRUE(rows->Read(5, {kFirst}).ok());
}

TEST_F(StoredSamplesTest, SaysWhyItCannotRead) {
  const auto rows = Rows();
  open_error_ = absl::NotFoundError("job job has no store");
  EXPECT_THAT(rows->Read(1, {kFirst}).status().message(),
              HasSubstr("has no store; is this rank's --redis that of the cluster?"));
  open_error_ = absl::OkStatus();
  EXPECT_TRUE(absl::IsNotFound(rows->Read(1, {{5, 0, 0}}).status()));
  EXPECT_TRUE(absl::IsDataLoss(StoredSamples({}, "job", clock_).Read(1, {kFirst}).status()));
}

}  // namespace
}  // namespace freshet
