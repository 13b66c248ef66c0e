#include "services/sandbox/worker/program_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

using testing::HasSubstr;

TEST(IsInside, PathsThatStayInAFolder) {
  for (const char* good : {"a", "a/b.txt", "..a", "a b"}) EXPECT_TRUE(IsInside(good)) << good;
  for (const char* bad : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/."}) {
    EXPECT_FALSE(IsInside(bad)) << bad;
  }
  EXPECT_FALSE(IsInside(std::string("a\0b", 3)));
  EXPECT_FALSE(IsInside(std::string(256, 'a')));
  EXPECT_FALSE(IsInside("1/2/3/4/5/6/7/8/9"));
}

class ProgramFolderTest : public testing::Test {
 protected:
  ProgramFolderTest() : folder_(*ProgramFolder::Create(testing::TempDir())) {}
  std::string Path(const std::string& name) const { return StrCat(folder_->path(), "/", name); }

  std::unique_ptr<ProgramFolder> folder_;
};

TEST_F(ProgramFolderTest, WritesAndReadsFiles) {
  ASSERT_TRUE(folder_->Write("a/b/c.txt", "text").ok());
  EXPECT_EQ(*folder_->Read("a/b/c.txt", 4), "text");
  EXPECT_EQ(folder_->Read("a/b/c.txt", 3).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(folder_->Read("missing", 10).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(folder_->Write("../x", "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(folder_->Write("a/b/c.txt/d", "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(folder_->Read("../x", 10).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ProgramFolderTest, NeverFollowsLinks) {
  ASSERT_EQ(::symlink("/etc/passwd", Path("file").c_str()), 0);
  ASSERT_EQ(::symlink("/etc", Path("folder").c_str()), 0);
  EXPECT_EQ(folder_->Read("file", 1 << 20).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(folder_->Read("folder/passwd", 1 << 20).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(folder_->Write("folder/escaped", "").ok());
  EXPECT_LT(folder_->Use(100).bytes, 65536);
}

TEST_F(ProgramFolderTest, APipeIsNoFile) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(folder_->Read("pipe", 10).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ProgramFolderTest, MeasuresWhatItTakes) {
  ASSERT_TRUE(folder_->Write("a/b", std::string(100'000, 'x')).ok());
  const FolderUse use = folder_->Use(100);
  EXPECT_GE(use.bytes, 100'000);
  EXPECT_EQ(use.entries, 2);
  EXPECT_EQ(folder_->Use(1).entries, 1);
}

TEST_F(ProgramFolderTest, DeepNestingCountsAsTooMuch) {
  std::string path = folder_->path();
  for (int i = 0; i < 70; ++i) {
    path += "/d";
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  }
  EXPECT_EQ(folder_->Use(1000).entries, 1000);
}

TEST_F(ProgramFolderTest, WhatCannotBeListedCountsAsTooMuch) {
  if (::geteuid() == 0) GTEST_SKIP() << "root can list every folder";
  ASSERT_EQ(::chmod(folder_->path().c_str(), 0300), 0);
  EXPECT_EQ(folder_->Use(1000).entries, 1000);
}

TEST_F(ProgramFolderTest, IsRemovedWithWhatHidesInIt) {
  const std::string path = folder_->path();
  ASSERT_TRUE(folder_->Write("hidden/file", "x").ok());
  ASSERT_EQ(::chmod(Path("hidden").c_str(), 0), 0);
  folder_ = nullptr;
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace freshet::sandbox
