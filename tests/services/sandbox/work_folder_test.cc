#include "services/sandbox/service/work_folder.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

using testing::HasSubstr;

class WorkFolderTest : public testing::Test {
 protected:
  WorkFolderTest() : parent_(StrCat(testing::TempDir(), "/work_folder_XXXXXX")) {
    if (::mkdtemp(parent_.data()) == nullptr) std::abort();
  }
  ~WorkFolderTest() override { std::filesystem::remove_all(parent_); }

  // What a process that is killed leaves.
  std::string LeftOver() {
    const std::string path = StrCat(parent_, "/freshet-sandbox.killed");
    std::filesystem::create_directories(path + "/program");
    std::ofstream(path + "/program/file") << "text";
    return path;
  }

  std::string parent_;
};

TEST_F(WorkFolderTest, ATemporaryOneIsRemovedAtTheEnd) {
  auto folder = *WorkFolder::Create("", parent_);
  const std::string path = folder->path();
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms{0711});
  std::ofstream(path + "/file") << "text";
  folder.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(WorkFolderTest, WhatAKilledProcessLeftIsRemovedAtTheNextStart) {
  const std::string left = LeftOver();
  const auto folder = *WorkFolder::Create("", parent_);
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(WorkFolderTest, ThatOfAProcessThatRunsStays) {
  const auto first = *WorkFolder::Create("", parent_);
  const auto second = *WorkFolder::Create("", parent_);
  EXPECT_NE(first->path(), second->path());
  EXPECT_TRUE(std::filesystem::exists(first->path()));
}

TEST_F(WorkFolderTest, OtherFoldersAndLinksStay) {
  const std::string other = parent_ + "/other";
  std::filesystem::create_directory(other);
  std::filesystem::create_directory_symlink(other, parent_ + "/freshet-sandbox.link");
  const auto folder = *WorkFolder::Create("", parent_);
  EXPECT_TRUE(std::filesystem::exists(parent_ + "/freshet-sandbox.link"));
  EXPECT_TRUE(std::filesystem::exists(other));
}

TEST_F(WorkFolderTest, AGivenOneStays) {
  const std::string given = parent_ + "/a/b";
  const std::string left = LeftOver();
  { const auto folder = *WorkFolder::Create(given, parent_); }
  EXPECT_TRUE(std::filesystem::exists(given));
  EXPECT_TRUE(std::filesystem::exists(left));
  std::ofstream(parent_ + "/file") << "text";
  EXPECT_THAT(std::string(WorkFolder::Create(parent_ + "/file/x").status().message()),
              HasSubstr("--folder "));
  EXPECT_THAT(std::string(WorkFolder::Create("", parent_ + "/none").status().message()),
              HasSubstr("/none: no temporary folder can be made in it: "));
}

}  // namespace
}  // namespace freshet::sandbox
