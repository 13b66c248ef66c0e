#include "cli/client/checkpoint_export.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using testing::HasSubstr;

job::v1::FileChunk Chunk(const std::string& path, const std::string& data) {
  job::v1::FileChunk chunk;
  chunk.set_path(path);
  chunk.set_data(data);
  return chunk;
}

std::string Manifest(const std::string& name, const std::string& contents) {
  return nlohmann::json{
      {"files", {{{"name", name}, {"bytes", contents.size()}, {"sha256", Sha256Hex(contents)}}}}}
      .dump();
}

size_t Entries(const ScratchFolder& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++count;
  }
  return count;
}

class CheckpointExportTest : public testing::Test {
 protected:
  const ScratchFolder folder_;
  const std::string target_ = folder_.File("out");
};

TEST_F(CheckpointExportTest, WritesFilesAndRenames) {
  {
    auto into = CheckpointExport::Begin(target_ + "/");
    ASSERT_TRUE(into.ok());
    ASSERT_TRUE((*into)->Take(Chunk("model.safetensors", "ab")).ok());
    ASSERT_TRUE((*into)->Take(Chunk("", "c")).ok());
    ASSERT_TRUE((*into)->Take(Chunk("manifest.json", Manifest("model.safetensors", "abc"))).ok());
    EXPECT_FALSE(std::filesystem::exists(target_));
    ASSERT_TRUE((*into)->Finish().ok());
    EXPECT_EQ((*into)->files(), 2U);
  }
  EXPECT_EQ(folder_.Read("out/model.safetensors"), "abc");
  EXPECT_EQ(Entries(folder_), 1U);
}

TEST_F(CheckpointExportTest, LeavesNothingOfAFailure) {
  {
    auto into = CheckpointExport::Begin(target_);
    ASSERT_TRUE(into.ok());
    ASSERT_TRUE((*into)->Take(Chunk("model.safetensors", "abX")).ok());
    ASSERT_TRUE((*into)->Take(Chunk("manifest.json", Manifest("model.safetensors", "abc"))).ok());
    const absl::Status status = (*into)->Finish();
    EXPECT_TRUE(absl::IsDataLoss(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors"));
  }
  EXPECT_EQ(Entries(folder_), 0U);
}

TEST_F(CheckpointExportTest, NoticesAMissingFileAndAMissingManifest) {
  auto into = CheckpointExport::Begin(target_);
  ASSERT_TRUE(into.ok());
  ASSERT_TRUE((*into)->Take(Chunk("config.json", "{}")).ok());
  EXPECT_TRUE(absl::IsDataLoss((*into)->Finish()));
  auto other = CheckpointExport::Begin(target_);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE((*other)->Take(Chunk("manifest.json", Manifest("model.safetensors", "abc"))).ok());
  EXPECT_TRUE(absl::IsDataLoss((*other)->Finish()));
}

TEST_F(CheckpointExportTest, NeverReplacesAFolder) {
  std::filesystem::create_directory(target_);
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckpointExport::Begin(target_).status()));
}

TEST_F(CheckpointExportTest, RefusesPathsThatLeadOut) {
  auto into = CheckpointExport::Begin(target_);
  ASSERT_TRUE(into.ok());
  for (const std::string path : {"/etc/x", "../x", "a/../../x", ".", "a//b/./c"}) {
    EXPECT_TRUE(absl::IsInvalidArgument((*into)->Take(Chunk(path, "x")))) << path;
  }
  EXPECT_TRUE(absl::IsInvalidArgument((*into)->Take(Chunk(std::string("a\0b", 3), "x"))));
}

TEST_F(CheckpointExportTest, RefusesDataWithoutAFileAndAFileTwice) {
  auto into = CheckpointExport::Begin(target_);
  ASSERT_TRUE(into.ok());
  EXPECT_TRUE(absl::IsDataLoss((*into)->Take(Chunk("", "x"))));
  ASSERT_TRUE((*into)->Take(Chunk("a", "x")).ok());
  ASSERT_TRUE((*into)->Take(Chunk("b", "x")).ok());
  EXPECT_TRUE(absl::IsDataLoss((*into)->Take(Chunk("a", "y"))));
}

}  // namespace
}  // namespace freshet
