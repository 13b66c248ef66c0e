#include "base/file.h"

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

std::string Contents(const std::string& path) {
  const auto contents = ReadFile(path, kNoLimit);
  EXPECT_TRUE(contents.ok()) << contents.status();
  return contents.ok() ? *contents : "";
}

TEST(ReadFile, ReadsEveryByte) {
  const TestDirectory dir;
  const std::string bytes("a\0\r\n\xff", 5);
  EXPECT_EQ(Contents(dir.Write("f", bytes)), bytes);
  EXPECT_EQ(Contents(dir.Write("empty", "")), "");
}

TEST(ReadFile, NamesTheMissingFile) {
  const auto contents = ReadFile("/nonexistent/f", kNoLimit);
  EXPECT_EQ(contents.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(Message(contents.status()).find("/nonexistent/f"), std::string::npos);
}

TEST(ReadFile, AcceptsTheLimitAndRefusesOneByteMore) {
  const TestDirectory dir;
  const std::string path = dir.Write("f", "12345");
  EXPECT_TRUE(ReadFile(path, 5).ok());
  const auto refused = ReadFile(path, 4);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(refused.status()).find("limit of 4"), std::string::npos);
}

TEST(ReadFile, RefusesWhatIsNotARegularFile) {
  const TestDirectory dir;
  EXPECT_EQ(ReadFile(dir.path(), kNoLimit).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile("/dev/zero", kNoLimit).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WriteFileAtomically, CreatesAndReplaces) {
  const TestDirectory dir;
  const std::string path = dir.File("f");
  ASSERT_TRUE(WriteFileAtomically(path, "first, and longer").ok());
  EXPECT_EQ(Contents(path), "first, and longer");
  ASSERT_TRUE(WriteFileAtomically(path, "second").ok());
  EXPECT_EQ(Contents(path), "second");
  EXPECT_FALSE(dir.Has("f.tmp"));
}

TEST(WriteFileAtomically, OverwritesATemporaryFileOfAKilledProcess) {
  const TestDirectory dir;
  dir.Write("f.tmp", "half of something that is longer than the new contents");
  ASSERT_TRUE(WriteFileAtomically(dir.File("f"), "new").ok());
  EXPECT_EQ(Contents(dir.File("f")), "new");
}

TEST(WriteFileAtomically, NamesAPathThatCannotBeWritten) {
  const absl::Status status = WriteFileAtomically("/nonexistent/f", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(status).find("/nonexistent/f"), std::string::npos);
}

TEST(WriteFileAtomically, LeavesTheOldContentsWhenTheRenameFails) {
  const TestDirectory dir;
  std::filesystem::create_directories(dir.File("f/inside"));
  const absl::Status status = WriteFileAtomically(dir.File("f"), "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(dir.Has("f/inside"));
  EXPECT_FALSE(dir.Has("f.tmp"));
}

// Writes to /dev/full fail with ENOSPC.
TEST(WriteFileAtomically, SaysThatTheDiskIsFullAndKeepsTheOldContents) {
  const TestDirectory dir;
  dir.Write("f", "old");
  std::filesystem::create_symlink("/dev/full", dir.File("f.tmp"));
  const absl::Status status = WriteFileAtomically(dir.File("f"), "new");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(Message(status).find(dir.File("f")), std::string::npos);
  EXPECT_EQ(Contents(dir.File("f")), "old");
  EXPECT_FALSE(std::filesystem::is_symlink(dir.File("f.tmp")));
}

TEST(WriteError, TellsAFullDiskFromOtherFaults) {
  EXPECT_EQ(WriteError("p", ENOSPC).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(WriteError("p", EDQUOT).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(WriteError("p", EACCES).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SyncPath, TakesFilesAndDirectoriesAndNamesWhatIsMissing) {
  const TestDirectory dir;
  EXPECT_TRUE(SyncPath(dir.path()).ok());
  EXPECT_TRUE(SyncPath(dir.Write("f", "x")).ok());
  EXPECT_FALSE(SyncPath(dir.File("missing")).ok());
}

TEST(LineAppender, AppendsAfterWhatIsThere) {
  const TestDirectory dir;
  const std::string path = dir.Write("log", "one\n");
  {
    auto appender = LineAppender::Open(path);
    ASSERT_TRUE(appender.ok()) << appender.status();
    ASSERT_TRUE(appender->Append("two\n").ok());
    ASSERT_TRUE(appender->Append("three\nfour\n").ok());
    ASSERT_TRUE(appender->Sync().ok());
  }
  EXPECT_EQ(Contents(path), "one\ntwo\nthree\nfour\n");
}

TEST(LineAppender, TwoAppendersNeverOverwriteEachOther) {
  const TestDirectory dir;
  auto a = LineAppender::Open(dir.File("log"));
  auto b = LineAppender::Open(dir.File("log"));
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(a->Append("a1\n").ok());
  ASSERT_TRUE(b->Append("b1\n").ok());
  ASSERT_TRUE(a->Append("a2\n").ok());
  EXPECT_EQ(Contents(dir.File("log")), "a1\nb1\na2\n");
}

TEST(LineAppender, GoesOnAfterBeingMoved) {
  const TestDirectory dir;
  auto first = LineAppender::Open(dir.File("log"));
  ASSERT_TRUE(first.ok());
  LineAppender second(*std::move(first));
  LineAppender third;
  third = std::move(second);
  ASSERT_TRUE(third.Append("x\n").ok());
  EXPECT_EQ(Contents(dir.File("log")), "x\n");
}

TEST(LineAppender, NamesAFolderThatDoesNotExist) {
  EXPECT_EQ(LineAppender::Open("/nonexistent/log").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(LineAppender, SaysThatTheDiskIsFull) {
  auto appender = LineAppender::Open("/dev/full");
  ASSERT_TRUE(appender.ok()) << appender.status();
  const absl::Status status = appender->Append("x\n");
  // A device cannot be truncated to undo the write; the append fails all the same.
  EXPECT_FALSE(status.ok());
  EXPECT_NE(Message(status).find("/dev/full"), std::string::npos);
}

}  // namespace
}  // namespace freshet
