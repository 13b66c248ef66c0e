#include "local/curation_file.h"

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/str_cat.h"
#include "datastore/blob/curation_blob.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"
#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CurationFileTest : public testing::Test {
 protected:
  std::unique_ptr<InMemoryTrajectoryStore> Store() {
    StoreOptions options;
    options.job = "job";
    options.staleness = {1, Disposition::kWait, 2, 8};
    options.group_size = 4;
    options.last_step = 20;
    options.capacity_groups = 100;
    options.max_queued_prompts = 10;
    options.adaptive = AdaptiveOptions{2, 1.0, 0};
    auto store = InMemoryTrajectoryStore::Create(options, {}, clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  void Write(const std::string& bytes) {
    std::ofstream(scratch_.File(kCurationFile), std::ios::binary) << bytes;
  }
  absl::Status Restore(InMemoryTrajectoryStore& store) {
    return RestoreCurationFile(std::filesystem::path(scratch_.File(kCurationFile)).parent_path(),
                               store);
  }

  FakeClock clock_;
  const ScratchFolder scratch_;
};

TEST_F(CurationFileTest, ANewProcessKnowsWhatTheFormerOneKnew) {
  CurationState state;
  state.rows["row"] = {3, 4, 5};
  state.tasks[""] = {6, 8, 9};
  state.min_reward = 1.0;
  const auto former = Store();
  ASSERT_TRUE(former->RestoreCuration(state).ok());
  const auto [name, bytes] = MakeCurationFile(*former);
  EXPECT_EQ(name, kCurationFile);
  Write(bytes);
  const auto store = Store();
  EXPECT_EQ(Restore(*store), absl::OkStatus());
  EXPECT_EQ(store->Curation().rows, state.rows);
  EXPECT_EQ(store->Curation().tasks, state.tasks);
}

TEST_F(CurationFileTest, ACheckpointMayHaveNone) {
  const auto store = Store();
  EXPECT_EQ(Restore(*store), absl::OkStatus());
  EXPECT_TRUE(store->Curation().rows.empty());
}

TEST_F(CurationFileTest, ErrorsNameTheFileAndTheFix) {
  const auto store = Store();
  Write("nonsense");
  absl::Status status = Restore(*store);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), AllOf(HasSubstr(scratch_.File(kCurationFile)),
                                     HasSubstr("resume from the one before")));
  CurationState impossible;
  impossible.rows["row"] = {5, 4, 1};
  Write(EncodeCuration(impossible).record);
  status = Restore(*store);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), AllOf(HasSubstr(scratch_.File(kCurationFile)),
                                     HasSubstr("5 successes of 4 samples")));
  std::filesystem::resize_file(scratch_.File(kCurationFile), kMaxCurationBytes + 1);
  EXPECT_EQ(Restore(*store).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace freshet
