#include "datastore/retrying_trajectory_store.h"

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/forwarding_trajectory_store.h"

namespace freshet {
namespace {

using testing::HasSubstr;

// Fails the next `failures` calls of Stats with `error`. Each call takes 1 s of the clock.
class FlakyStore final : public ForwardingTrajectoryStore {
 public:
  FlakyStore(TrajectoryStore& store, FakeClock& clock)
      : ForwardingTrajectoryStore(store), clock_(clock) {}
  absl::StatusOr<StoreStats> Stats() override {
    ++calls;
    clock_.Advance(absl::Seconds(1));
    if (failures-- > 0) return error;
    return ForwardingTrajectoryStore::Stats();
  }
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    auto reply = ForwardingTrajectoryStore::OpenEpochFor(request);
    if (failures-- > 0) return error;  // only the answer is lost
    return reply;
  }
  absl::Status CountGeneration(const GenerationTotals& added) override {
    ++calls;
    const absl::Status status = ForwardingTrajectoryStore::CountGeneration(added);
    return failures-- > 0 ? error : status;  // only the answer is lost
  }
  int failures = 0;
  int calls = 0;
  absl::Status error = absl::UnavailableError("connection refused");

 private:
  FakeClock& clock_;
};

class RetryingTrajectoryStoreTest : public testing::Test {
 protected:
  RetryingTrajectoryStoreTest() {
    StoreOptions options;
    options.job = "job";
    options.staleness.groups_per_step = 1;
    options.capacity_groups = 10;
    options.max_queued_prompts = 10;
    options.last_step = 1;
    memory_ = *InMemoryTrajectoryStore::Create(options, {}, clock_);
    flaky_ = std::make_unique<FlakyStore>(*memory_, clock_);
    RetryOptions retry;
    retry.first_backoff = absl::ZeroDuration();
    retry.max_backoff = absl::ZeroDuration();
    retry.outage_limit = absl::Seconds(10);
    retry.on_outage = [this](const absl::Status& status) { outages_.push_back(Message(status)); };
    store_ = std::make_unique<RetryingTrajectoryStore>(*flaky_, clock_, retry);
  }

  FakeClock clock_;
  std::unique_ptr<InMemoryTrajectoryStore> memory_;
  std::unique_ptr<FlakyStore> flaky_;
  std::unique_ptr<RetryingTrajectoryStore> store_;
  std::vector<std::string> outages_;
};

TEST_F(RetryingTrajectoryStoreTest, AnOutageIsWaitedOutAndReportedOnce) {
  flaky_->failures = 5;
  EXPECT_TRUE(store_->Stats().ok());
  EXPECT_EQ(flaky_->calls, 6);
  EXPECT_EQ(store_->retries(), 5);
  ASSERT_EQ(outages_.size(), 1U);
  EXPECT_THAT(outages_[0], HasSubstr("connection refused"));
}

TEST_F(RetryingTrajectoryStoreTest, LostAnswersToOpenEpochOpenOneEpoch) {
  flaky_->failures = 3;
  const auto opened = store_->OpenEpochFor({"t0", {0, 0}, "", "a"});
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->epoch, 1);
  EXPECT_EQ(store_->OpenEpoch("t1", {0, 0})->epoch, 2);
}

TEST_F(RetryingTrajectoryStoreTest, GenerationWhoseAnswerIsLostIsNotCountedTwice) {
  flaky_->failures = 1;
  EXPECT_EQ(store_->CountGeneration({5, {}, {}}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(flaky_->calls, 1);
  EXPECT_EQ(store_->Stats()->generation.tokens, 5);
}

TEST_F(RetryingTrajectoryStoreTest, APasswordThatIsBeingChangedIsAnOutage) {
  flaky_->error = absl::PermissionDeniedError("WRONGPASS");
  flaky_->failures = 3;
  EXPECT_TRUE(store_->Stats().ok());
  EXPECT_THAT(outages_, testing::ElementsAre("WRONGPASS"));
}

TEST_F(RetryingTrajectoryStoreTest, OtherErrorsAreTheCallers) {
  for (const auto code : {absl::StatusCode::kFailedPrecondition, absl::StatusCode::kAborted}) {
    flaky_->calls = 0;
    flaky_->failures = 1;
    flaky_->error = absl::Status(code, "fenced");
    EXPECT_EQ(store_->Stats().status().code(), code);
    EXPECT_EQ(flaky_->calls, 1);
  }
  EXPECT_TRUE(outages_.empty());
}

TEST_F(RetryingTrajectoryStoreTest, AnOutageBeyondTheLimitIsReturned) {
  flaky_->failures = 1000;
  EXPECT_EQ(store_->Stats().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(flaky_->calls, 10);
}

TEST_F(RetryingTrajectoryStoreTest, CloseEndsTheWaiting) {
  flaky_->failures = 1000;
  store_->Close();
  EXPECT_EQ(store_->Stats().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(flaky_->calls, 1);
}

}  // namespace
}  // namespace freshet
