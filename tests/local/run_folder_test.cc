#include "local/run_folder.h"

#include <filesystem>
#include <utility>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

class RunFolderTest : public testing::Test {
 protected:
  absl::StatusOr<RunFolder> Create(const std::string& name) {
    return RunFolder::Create(scratch_.File(name), "name: job\n");
  }
  absl::StatusOr<RunFolder> Open(const std::string& name) {
    return RunFolder::Open(scratch_.File(name));
  }
  bool Exists(const std::string& name) const { return fs::exists(scratch_.File(name)); }

  const ScratchFolder scratch_;
};

TEST_F(RunFolderTest, MakesTheFolderWithItsJob) {
  const auto folder = Create("runs/deep/job");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->path(), scratch_.File("runs/deep/job"));
  EXPECT_EQ(folder->File("x"), scratch_.File("runs/deep/job/x"));
  EXPECT_EQ(scratch_.Read("runs/deep/job/job.yaml"), "name: job\n");
  EXPECT_TRUE(fs::is_directory(scratch_.File("runs/deep/job/checkpoints")));
}

TEST_F(RunFolderTest, AnExistingRunIsRefusedWithTheWayOn) {
  ASSERT_TRUE(Create("run").ok());
  const auto again = RunFolder::Create(scratch_.File("run"), "name: other\n");
  EXPECT_EQ(again.status().code(), kFailedPrecondition);
  EXPECT_THAT(Message(again.status()),
              AllOf(HasSubstr(StrCat("--resume ", scratch_.File("run"))), HasSubstr("--run-dir")));
  EXPECT_EQ(scratch_.Read("run/job.yaml"), "name: job\n");
}

TEST_F(RunFolderTest, WhatIsNoRunIsRefusedToo) {
  scratch_.Write("folder/notes", "mine");
  scratch_.Write("file", "mine");
  for (const char* name : {"folder", "file"}) {
    const auto folder = Create(name);
    EXPECT_EQ(folder.status().code(), kFailedPrecondition);
    EXPECT_THAT(Message(folder.status()), AllOf(HasSubstr(name), HasSubstr("is not a run")));
  }
  EXPECT_EQ(scratch_.Read("folder/notes"), "mine");
}

TEST_F(RunFolderTest, AFailureLeavesNothingBehind) {
  EXPECT_FALSE(Create(StrCat("new/parents/", std::string(300, 'x'))).ok());
  EXPECT_FALSE(Exists("new"));
  scratch_.Write("file", "");
  EXPECT_FALSE(Create("file/run").ok());
  EXPECT_TRUE(Exists("file"));
}

TEST_F(RunFolderTest, AFailureKeepsParentsThatWereThere) {
  scratch_.Write("old/other", "");
  EXPECT_FALSE(Create(StrCat("old/new/", std::string(300, 'x'))).ok());
  EXPECT_TRUE(Exists("old/other"));
  EXPECT_FALSE(Exists("old/new"));
}

TEST_F(RunFolderTest, OnlyAFolderWithAJobCanBeOpened) {
  EXPECT_EQ(Open("missing").status().code(), absl::StatusCode::kNotFound);
  scratch_.Write("empty/other", "");
  const auto folder = Open("empty");
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(folder.status()), HasSubstr("job.yaml"));
}

TEST_F(RunFolderTest, OneHolderAtATime) {
  {
    const auto first = Create("run");
    ASSERT_TRUE(first.ok());
    const auto second = Open("run");
    EXPECT_EQ(second.status().code(), kFailedPrecondition);
    EXPECT_THAT(Message(second.status()), HasSubstr("another process"));
  }
  const auto third = Open("run");
  EXPECT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(Open("run").status().code(), kFailedPrecondition) << "a reopened run is held as well";
}

TEST_F(RunFolderTest, AReplacedJobLeavesTheRunHeld) {
  auto folder = Create("run");
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(folder->ReplaceJob("name: other\n").ok());
  EXPECT_EQ(scratch_.Read("run/job.yaml"), "name: other\n");
  EXPECT_FALSE(Exists("run/job.yaml.next"));
  EXPECT_EQ(Open("run").status().code(), kFailedPrecondition);
}

TEST_F(RunFolderTest, AJobThatCannotBeReplacedStaysAndIsHeld) {
  auto folder = Create("run");
  ASSERT_TRUE(folder.ok());
  fs::create_directories(scratch_.File("run/job.yaml.next/in-the-way"));
  EXPECT_FALSE(folder->ReplaceJob("name: other\n").ok());
  EXPECT_EQ(scratch_.Read("run/job.yaml"), "name: job\n");
  EXPECT_EQ(Open("run").status().code(), kFailedPrecondition);
}

TEST_F(RunFolderTest, TheHoldMovesWithTheObject) {
  auto first = Create("run");
  ASSERT_TRUE(first.ok());
  RunFolder moved = *std::move(first);
  EXPECT_EQ(moved.path(), scratch_.File("run"));
  EXPECT_FALSE(Open("run").ok());
  {
    const RunFolder last = std::move(moved);
    EXPECT_FALSE(Open("run").ok());
  }
  EXPECT_TRUE(Open("run").ok());
}

}  // namespace
}  // namespace freshet
