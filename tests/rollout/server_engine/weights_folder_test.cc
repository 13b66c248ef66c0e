#include "rollout/server_engine/weights_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/str_cat.h"
#include "model/model_files.h"
#include "tests/rollout/server_engine/served_model.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class WeightsFolderTest : public testing::Test {
 protected:
  std::unique_ptr<WeightsFolder> Open(const std::string& unique,
                                      const ModelConfig& config = ServedConfig()) {
    auto folder = WeightsFolder::Open(scratch_.path(), unique, config);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return *std::move(folder);
  }
  std::string Write(WeightsFolder& folder, int64_t version) {
    const auto path = folder.Write(ServedWeights(ServedConfig(), {0, version}));
    EXPECT_TRUE(path.ok()) << path.status();
    return path.value_or("");
  }
  // Without the marker of the folder.
  std::set<std::string> Names() {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(scratch_.path())) {
      names.insert(entry.path().filename().string());
    }
    names.erase(".freshet-engine");
    return names;
  }
  ScratchFolder scratch_;
};

TEST_F(WeightsFolderTest, WritesADirectoryThatLoads) {
  const std::string path = Write(*Open("a"), 3);
  const auto files = ModelFiles::Open(path);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT((*files)->CheckTensors(), testing::IsEmpty());
  EXPECT_EQ((*files)->config().dtype, Dtype::kBf16);
  const StoredTensor* norm = (*files)->Find("model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->dtype, Dtype::kBf16);
  // The same value, rounded.
  const WeightSnapshot weights = ServedWeights(ServedConfig(), {0, 3});
  const ParameterLayout layout = MakeParameterLayout(ServedConfig());
  float value = 0;
  std::memcpy(&value, weights.bytes->data() + layout.norm.offset * 4, 4);
  uint16_t stored = 0;
  std::memcpy(&stored, norm->data.data(), 2);
  EXPECT_EQ(stored, RoundToBf16(value));
}

TEST_F(WeightsFolderTest, RefusesWhatTheServerWouldTakeSilently) {
  const auto folder = Open("a");
  const ModelConfig config = ServedConfig();
  const auto code = [&](const WeightSnapshot& weights) {
    return folder->Write(weights).status().code();
  };
  EXPECT_EQ(code(ServedWeights(config, {0, 1}, /*broken=*/true)), absl::StatusCode::kInternal);
  WeightSnapshot weights = ServedWeights(config, {0, 1});
  weights.manifest.entries.pop_back();
  EXPECT_EQ(code(weights), absl::StatusCode::kInvalidArgument);
  weights = ServedWeights(config, {0, 1});
  weights.manifest.entries[0].name = "model.other.weight";
  EXPECT_EQ(code(weights), absl::StatusCode::kInvalidArgument);
  weights = ServedWeights(config, {0, 1});
  weights.manifest.entries[0] = weights.manifest.entries[1];
  EXPECT_EQ(code(weights), absl::StatusCode::kInvalidArgument);
  weights = ServedWeights(config, {0, 1});
  std::swap(weights.manifest.entries[0].shape[0], weights.manifest.entries[0].shape[1]);
  EXPECT_EQ(code(weights), absl::StatusCode::kInvalidArgument);
  weights = ServedWeights(config, {0, 1});
  weights.manifest.entries[0].dtype = "I8";
  EXPECT_EQ(code(weights), absl::StatusCode::kInvalidArgument);
  for (const int64_t offset : {int64_t{-4}, int64_t{1} << 62, weights.manifest.total_bytes}) {
    weights = ServedWeights(config, {0, 1});
    weights.manifest.entries[0].offset_bytes = offset;
    EXPECT_EQ(code(weights), absl::StatusCode::kInvalidArgument);
  }
  weights.bytes = nullptr;
  EXPECT_EQ(code(weights), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Names(), testing::IsEmpty());
}

TEST_F(WeightsFolderTest, NamesWhatIsServedAndDeletesTheRest) {
  const auto folder = Open("a");
  EXPECT_EQ(folder->served(), "");
  const std::string first = Write(*folder, 1);
  ASSERT_TRUE(folder->Restart(first).ok());
  const std::string name = folder->served();
  EXPECT_EQ(scratch_.Read("serve"), name + "\n");
  EXPECT_TRUE(fs::exists(scratch_.File(name + "/config.json")));
  const std::string second = Write(*folder, 2);
  folder->KeepOnly({second});
  EXPECT_TRUE(fs::exists(first)) << "a server may start with it";
  ASSERT_TRUE(folder->StartWith(second).ok());
  EXPECT_EQ(folder->served(), name);
  folder->KeepOnly({second});
  EXPECT_FALSE(fs::exists(first));
  EXPECT_TRUE(fs::exists(scratch_.File(name + "/config.json")));
  ASSERT_TRUE(folder->Restart(second).ok());
  EXPECT_NE(folder->served(), name);
  EXPECT_FALSE(fs::is_symlink(scratch_.File(name)));
}

TEST_F(WeightsFolderTest, OfAFormerProcessIsTakenOverIfTheModelIsTheSame) {
  std::string name;
  std::string served;
  {
    const auto folder = Open("a");
    served = Write(*folder, 1);
    ASSERT_TRUE(folder->Restart(served).ok());
    name = folder->served();
    Write(*folder, 2);
  }
  scratch_.Write(".weights-a-9/config.json", "{");
  EXPECT_EQ(Open("b")->served(), name);
  EXPECT_TRUE(fs::exists(served));
  EXPECT_EQ(Names().size(), 3U) << "the served weights, the link and the name";
  ModelConfig other = ServedConfig();
  other.rope_theta = 500'000;
  EXPECT_EQ(Open("c", other)->served(), "");
  scratch_.Write("serve", "../../elsewhere\n");
  EXPECT_EQ(Open("d")->served(), "");
}

TEST_F(WeightsFolderTest, FilesOfSomebodyElseStay) {
  scratch_.Write("notes", "");
  scratch_.Write("weights-2024/mine", "");
  const auto folder = WeightsFolder::Open(scratch_.path(), "a", ServedConfig());
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(folder.status()), StartsWith(scratch_.File("weights-2024")));
  EXPECT_THAT(Names(), testing::UnorderedElementsAre("notes", "weights-2024"));
}

TEST_F(WeightsFolderTest, ThatCannotBeUsedIsNamed) {
  scratch_.Write("file", "");
  const auto folder = WeightsFolder::Open(scratch_.File("file/folder"), "a", ServedConfig());
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(folder.status()), StartsWith(scratch_.File("file/folder")));
}

}  // namespace
}  // namespace freshet
