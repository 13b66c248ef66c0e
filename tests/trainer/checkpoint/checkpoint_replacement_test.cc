// Checkpoints of a step that another trainer has written or is writing, and processes that are
// killed meanwhile.

#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/checkpoint/checkpoint_fixture.h"

namespace {
// If set, records the paths that are fsynced.
std::vector<std::string>* synced = nullptr;
}  // namespace

// Overrides the C library's fsync to record its calls.
extern "C" int fsync(int fd) {
  if (synced != nullptr) {
    std::error_code unknown;
    synced->push_back("sync " +
                      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), unknown)
                          .filename()
                          .string());
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace freshet {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

using CheckpointReplacementTest = CheckpointTest;

TEST_F(CheckpointReplacementTest, AFailureBeforeTheRenameLeavesNothing) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  ASSERT_TRUE(Write(Contents(2, 0)).ok());
  const auto refuse = [] { return absl::AbortedError("not now"); };
  for (const int64_t step : {2, 3}) {
    const auto written = WriteCheckpoint(root(), Contents(step, 1), refuse, faults_);
    EXPECT_EQ(written.status().code(), absl::StatusCode::kAborted);
  }
  EXPECT_THAT(Names(), ElementsAre("step-1", "step-2"));
  EXPECT_EQ(Newest()->state.policy, (PolicyVersion{0, 2}));
}

// Copies the folder at each fault point, as a process killed there would leave it.
class SnapshotPoints final : public FaultPoints {
 public:
  SnapshotPoints(std::string root, std::string into)
      : root_(std::move(root)), into_(std::move(into)) {}
  void Reach(std::string_view point) override {
    points.emplace_back(point);
    fs::copy(root_, into_ + "/" + std::string(point), fs::copy_options::recursive);
  }
  std::vector<std::string> points;

 private:
  std::string root_, into_;
};

TEST_F(CheckpointReplacementTest, KilledAtAnyPointTheOneBeforeIsFound) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  const TestDirectory copies;
  SnapshotPoints points(root(), copies.path());
  bool durable_before_rename = false;
  ASSERT_TRUE(WriteCheckpoint(
                  root(), Contents(2),
                  [&] {
                    points.Reach("before_rename");
                    durable_before_rename = !dir_.Has("step-2");
                    return absl::OkStatus();
                  },
                  points)
                  .ok());
  EXPECT_THAT(points.points, ElementsAre("checkpoint_write", "before_rename", "checkpoint_rename"));
  EXPECT_TRUE(durable_before_rename);
  for (const std::string& point : points.points) {
    const auto found = FindAllCheckpoints(copies.File(point), "job");
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_FALSE(found->complete.empty()) << point;
    EXPECT_EQ(found->complete.front().state.policy.version, 1) << point;
    ASSERT_TRUE(TidyCheckpoints(copies.File(point), /*writer_epoch=*/1, {}).ok());
    for (const auto& entry : fs::directory_iterator(copies.File(point))) {
      EXPECT_NE(entry.path().extension(), ".tmp") << point;
    }
  }
  EXPECT_EQ(Newest()->state.policy.version, 2);
}

// Reports each folder operation before it runs. RENAME_EXCHANGE can be disabled.
class WatchedOps final : public DirectoryOps {
 public:
  int Rename(const std::string& from, const std::string& to) override {
    Before("rename", from, to);
    return DirectoryOps::Rename(from, to);
  }
  int Exchange(const std::string& a, const std::string& b) override {
    Before("exchange", a, b);
    return can_exchange ? DirectoryOps::Exchange(a, b) : EINVAL;
  }
  absl::Status Sync(const std::string& path) override {
    Before("sync", path, "");
    return DirectoryOps::Sync(path);
  }
  bool can_exchange = true;
  std::function<void(const std::string& operation)> before = [](const std::string&) {};

 private:
  void Before(const std::string& what, const std::string& a, const std::string& b) {
    before(StrCat(what, " ", fs::path(a).filename().string(), b.empty() ? "" : " ",
                  fs::path(b).filename().string()));
  }
};

// After the return, files, manifest and name must survive a power failure. Files are synced before
// the rename, the folder after it.
TEST_F(CheckpointReplacementTest, FilesAndNamesAreOnDiskWhenItReturns) {
  std::vector<std::string> events;
  WatchedOps ops;
  ops.before = [&](const std::string& operation) {
    if (operation.starts_with("rename")) events.push_back(operation);
  };
  const std::string root = dir_.File("run/checkpoints");
  synced = &events;
  const auto written = WriteCheckpoint(
      root, By(3, 7), [] { return absl::OkStatus(); }, faults_, ops);
  synced = nullptr;
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_THAT(events, ElementsAre(StrCat("sync ", fs::path(dir_.path()).filename().string()),
                                  "sync run", "sync config.json.tmp", "sync tokenizer.json.tmp",
                                  "sync model.safetensors", "sync optimizer.safetensors",
                                  "sync trainer_state.json.tmp", "sync manifest.json.tmp",
                                  "sync .step-7.epoch-3.tmp", "rename .step-7.epoch-3.tmp step-7",
                                  "sync checkpoints"));
}

// Copies the folder before each operation and after the last, as a killed process would leave it.
class KilledWhileReplacing : public CheckpointTest, public testing::WithParamInterface<bool> {};

TEST_P(KilledWhileReplacing, OneIsCompleteAtEveryMoment) {
  ASSERT_TRUE(Write(By(1, 1)).ok());
  ASSERT_TRUE(Write(By(1, 2)).ok());
  const TestDirectory copies;
  std::vector<std::string> operations;
  WatchedOps ops;
  ops.can_exchange = GetParam();
  ops.before = [&](const std::string& operation) {
    operations.push_back(operation);
    fs::copy(root(), copies.File(StrCat(operations.size())), fs::copy_options::recursive);
  };
  ASSERT_TRUE(Write(By(2, 2), ops).ok());
  ops.before("end");
  std::vector<std::string> expected = {"rename .step-2.epoch-2.tmp step-2",
                                       "rename .step-2.epoch-2.tmp step-2.epoch-2", "sync",
                                       "exchange step-2.epoch-2 step-2"};
  if (GetParam()) {
    expected.insert(expected.end(), {"sync", "rename step-2.epoch-2 .step-2.epoch-2.tmp"});
  }
  expected.push_back("end");
  for (std::string& operation : operations) {
    if (operation.starts_with("sync")) operation = "sync";
  }
  EXPECT_EQ(operations, expected);
  for (size_t i = 0; i < operations.size(); ++i) {
    SCOPED_TRACE(StrCat("killed before: ", operations[i]));
    const std::string left = copies.File(StrCat(i + 1));
    EXPECT_TRUE(OpenCheckpoint(left + "/step-2").ok());
    ASSERT_TRUE(TidyCheckpoints(left, 3, {}).ok());
    const auto found = FindAllCheckpoints(left, "job");
    ASSERT_TRUE(found.ok() && !found->complete.empty());
    EXPECT_EQ(found->complete.front().state.policy, (PolicyVersion{i < 2 ? 1 : 2, 2}));
    // The next trainer can write the same step, and its checkpoint is used.
    EXPECT_TRUE(WriteCheckpoint(
                    left, By(3, 2), [] { return absl::OkStatus(); }, faults_)
                    .ok());
    EXPECT_EQ(OpenCheckpoint(left + "/step-2")->writer_epoch, 3);
  }
  EXPECT_EQ(Newest()->path, GetParam() ? Step(2) : Step(2) + ".epoch-2");
  EXPECT_EQ(CheckpointPath(root(), 2), Newest()->path);
  EXPECT_EQ(OpenCheckpoint(Step(2))->writer_epoch, GetParam() ? 2 : 1);
}
INSTANTIATE_TEST_SUITE_P(WithAndWithoutExchange, KilledWhileReplacing, testing::Bool());

TEST_F(CheckpointReplacementTest,
       WhereNamesCannotBeExchangedTheNewerOneCountsAndBothGoWithTheirStep) {
  WatchedOps ops;
  ops.can_exchange = false;
  for (const int64_t step : {2, 4}) ASSERT_TRUE(Write(By(1, step), ops).ok());
  for (const int64_t epoch : {2, 3}) ASSERT_TRUE(Write(By(epoch, 4), ops).ok());
  EXPECT_THAT(Names(),
              UnorderedElementsAre("step-2", "step-4", "step-4.epoch-2", "step-4.epoch-3"));
  const auto listed = ListCheckpoints(root());
  ASSERT_EQ(listed.size(), 4U);
  EXPECT_EQ(listed[0].path, Step(4) + ".epoch-3");
  ASSERT_TRUE(PruneCheckpoints(root(), 3, 4, {.last = 2}, ops).ok());
  EXPECT_EQ(Names().size(), 4U) << "two versions";
  fs::remove(Step(4) + "/config.json");
  ASSERT_TRUE(PruneCheckpoints(root(), 3, 4, {.last = 2}, ops).ok());
  EXPECT_EQ(Newest()->path, Step(4) + ".epoch-3");
  ASSERT_TRUE(Write(By(3, 6), ops).ok());
  ASSERT_TRUE(PruneCheckpoints(root(), 3, 6, {.last = 1}, ops).ok());
  EXPECT_THAT(Names(), ElementsAre("step-6"));
}

// Fenced trainers that were stopped and continue without noticing.
TEST_F(CheckpointReplacementTest, AnOlderTrainerIsRefusedTheNameOfItsSuccessorsCheckpoint) {
  for (const bool can_exchange : {true, false}) {
    WatchedOps ops;
    ops.can_exchange = can_exchange;
    fs::remove_all(root());
    ASSERT_TRUE(Write(By(3, 1)).ok());
    ASSERT_TRUE(Write(By(5, 1), ops).ok());
    const auto names = Names();
    const auto written = Write(By(4, 1), ops);
    EXPECT_EQ(written.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(written.status()), HasSubstr("step-1"));
    EXPECT_THAT(Message(written.status()), HasSubstr("writer epoch 5"));
    EXPECT_EQ(Newest()->writer_epoch, 5);
    EXPECT_EQ(Names(), names);
  }
}

TEST_F(CheckpointReplacementTest, ADamagedOneOfANewerTrainerIsItsOwnToReplace) {
  ASSERT_TRUE(Write(By(5, 1)).ok());
  fs::remove(Step(1) + "/config.json");
  EXPECT_FALSE(Write(By(4, 1)).ok());
  ASSERT_TRUE(Write(By(5, 1)).ok());
  EXPECT_EQ(Newest()->writer_epoch, 5);
  EXPECT_THAT(Names(), UnorderedElementsAre("step-1", "replaced-step-1"));
}

// The successor writes the same step before each possible operation of the older trainer.
TEST_F(CheckpointReplacementTest, WhereverAnOlderTrainerIsStoppedItsSuccessorsCheckpointStays) {
  for (const bool can_exchange : {true, false}) {
    for (size_t stopped_before = 1; stopped_before <= (can_exchange ? 6 : 4); ++stopped_before) {
      SCOPED_TRACE(
          StrCat(can_exchange ? "" : "no ", "exchange, stopped before operation ", stopped_before));
      fs::remove_all(root());
      ASSERT_TRUE(Write(By(1, 2)).ok());
      WatchedOps ops, others;
      ops.can_exchange = others.can_exchange = can_exchange;
      size_t operations = 0;
      ops.before = [&](const std::string&) {
        if (++operations == stopped_before) {
          ASSERT_TRUE(Write(By(3, 2), others).ok());
        }
      };
      const auto written = Write(By(2, 2), ops);
      ASSERT_EQ(Newest()->writer_epoch, 3) << written.status();
      EXPECT_TRUE(OpenCheckpoint(Step(2)).ok());
      if (can_exchange) {
        EXPECT_EQ(OpenCheckpoint(Step(2))->writer_epoch, 3);
      }
      if (stopped_before == 1) {
        EXPECT_FALSE(written.ok());
      }
    }
  }
}

// Stopped after it read the epoch in step-2; its exchange returns the successor's checkpoint.
TEST_F(CheckpointReplacementTest, WhatAnOlderTrainerHasExchangedItPutsBack) {
  ASSERT_TRUE(Write(By(1, 2)).ok());
  WatchedOps ops;
  bool overtaken = false;
  ops.before = [&](const std::string& operation) {
    if (operation != "exchange step-2.epoch-2 step-2" || std::exchange(overtaken, true)) return;
    ASSERT_TRUE(Write(By(3, 2)).ok());
  };
  const auto written = Write(By(2, 2), ops);
  EXPECT_EQ(written.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(written.status()), HasSubstr("writer epoch 3"));
  EXPECT_EQ(OpenCheckpoint(Step(2))->writer_epoch, 3);
  EXPECT_THAT(Names(), ElementsAre("step-2"));
}

TEST_F(CheckpointReplacementTest, AnOlderTrainerDeletesAndSetsAsideNothingOfItsSuccessor) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(By(3, step)).ok());
  ASSERT_TRUE(Write(By(2, 8)).ok());
  ASSERT_TRUE(PruneCheckpoints(root(), 2, 8, {.last = 1}).ok());
  ASSERT_TRUE(TidyCheckpoints(root(), 2, {Step(2), Step(4), Step(7)}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "step-4", "step-6", "step-8"));
  ASSERT_TRUE(PruneCheckpoints(root(), 3, 8, {.last = 1}).ok());
  EXPECT_THAT(Names(), ElementsAre("step-8"));
}

// Stopped before its last rename; its successor tidies up and writes the same step.
TEST_F(CheckpointReplacementTest, AFormerTrainerThatGoesOnLeavesItsSuccessorsCheckpoint) {
  const auto written = WriteCheckpoint(
      root(), By(1, 1),
      [&] {
        EXPECT_TRUE(TidyCheckpoints(root(), 2, {}).ok());
        EXPECT_THAT(Names(), IsEmpty());
        EXPECT_TRUE(Write(By(2, 1)).ok());
        return absl::OkStatus();
      },
      faults_);
  EXPECT_FALSE(written.ok());
  EXPECT_EQ(Newest()->writer_epoch, 2);
  EXPECT_THAT(Names(), ElementsAre("step-1"));
}

TEST_F(CheckpointReplacementTest, AWriterEpochIsAboveAllThatTheFolderHasSeen) {
  EXPECT_EQ(HighestWriterEpoch(dir_.File("missing")), 0);
  ASSERT_TRUE(Write(By(3, 1)).ok());
  EXPECT_EQ(HighestWriterEpoch(root()), 3);
  fs::create_directory(dir_.File(".step-2.epoch-5.tmp"));
  EXPECT_EQ(HighestWriterEpoch(root()), 5);
  ASSERT_TRUE(Write(By(7, 1)).ok());
  ASSERT_TRUE(TidyCheckpoints(root(), 8, {Step(1)}).ok());
  EXPECT_THAT(Names(), ElementsAre("replaced-step-1"));
  EXPECT_EQ(HighestWriterEpoch(root()), 7);
  EXPECT_EQ(WriterEpoch(8, 7), 8);
  EXPECT_EQ(WriterEpoch(4, 7), 8) << "of a store that was restored";
}

}  // namespace
}  // namespace freshet
