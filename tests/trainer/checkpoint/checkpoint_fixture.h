#ifndef FRESHET_TESTS_TRAINER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
#define FRESHET_TESTS_TRAINER_CHECKPOINT_CHECKPOINT_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/model/test_directory.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace freshet {

// A folder of checkpoints.
class CheckpointTest : public testing::Test {
 protected:
  static StateTensor Tensor(const std::string& name, std::vector<int64_t> shape, uint8_t fill) {
    const uint64_t bytes = *TensorBytes(Dtype::kF32, shape);
    return {
        name, Dtype::kF32, std::move(shape), std::vector<std::byte>(bytes, std::byte{fill}), {}};
  }
  static CheckpointContents Contents(int64_t version, int64_t lineage = 0,
                                     const std::string& job = "job", int64_t writer_epoch = 0) {
    CheckpointContents contents;
    contents.writer_epoch = writer_epoch;
    contents.state.job = job;
    contents.state.policy = {lineage, version};
    contents.state.epoch = 4;
    contents.state.seed = std::numeric_limits<uint64_t>::max();
    contents.state.digest = "abc123";
    contents.state.cursor = {17, {19, 23}};
    auto learner = std::make_shared<LearnerState>();
    const auto fill = static_cast<uint8_t>(version);
    learner->model = {Tensor("model.embed", {4, 3}, fill), Tensor("model.norm", {3}, fill)};
    learner->optimizer = {Tensor("exp_avg.embed", {4, 3}, 1),
                          Tensor("exp_avg_sq.embed", {4, 3}, 2)};
    learner->optimizer_steps = 40 + version;
    contents.learner = std::move(learner);
    contents.files = {{"config.json", "{\"a\": 1}\n"}, {"tokenizer.json", "{}"}};
    return contents;
  }
  // Contents with a bf16 model.safetensors.
  static CheckpointContents Bf16Contents(int64_t version) {
    CheckpointContents contents = Contents(version);
    contents.weights_dtype = Dtype::kBf16;
    return contents;
  }
  // Contents written by a trainer of this writer epoch, in the lineage of the same number.
  static CheckpointContents By(int64_t writer_epoch, int64_t version) {
    return Contents(version, writer_epoch, "job", writer_epoch);
  }
  absl::StatusOr<std::string> Write(const CheckpointContents& contents) {
    return Write(contents, DirectoryOps::Default());
  }
  absl::StatusOr<std::string> Write(const CheckpointContents& contents, DirectoryOps& ops) {
    return WriteCheckpoint(
        root(), contents, [] { return absl::OkStatus(); }, faults_, ops);
  }
  absl::Status Prune(int64_t newest, int64_t last, std::set<int64_t> pinned = {}) {
    return PruneCheckpoints(root(), /*writer_epoch=*/0, newest,
                            {.last = last, .pinned = std::move(pinned)});
  }
  // Applies `change` to the manifest, recomputes its digest and writes it.
  template <typename Change>
  void ChangeManifest(int64_t step, Change change) {
    const std::string path = Step(step) + "/manifest.json";
    auto manifest = nlohmann::json::parse(*ReadFile(path, 1 << 20));
    change(manifest);
    ASSERT_TRUE(WriteFileAtomically(path, manifest.dump()).ok());
  }
  std::string root() const { return dir_.path(); }
  std::string Step(int64_t step) const { return dir_.File(StrCat("step-", step)); }
  // Names in the root folder, including hidden ones.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  std::optional<FoundCheckpoint> Newest() const {
    const auto found = FindAllCheckpoints(root(), "job");
    EXPECT_TRUE(found.ok()) << found.status();
    if (!found.ok() || found->complete.empty()) return std::nullopt;
    return found->complete.front();
  }

  TestDirectory dir_;
  FaultPoints faults_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TRAINER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
