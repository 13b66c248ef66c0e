#include "trainer/checkpoint.h"

#include <filesystem>
#include <limits>
#include <set>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/safetensors.h"
#include "nlohmann/json.hpp"
#include "services/base/digest.h"
#include "services/base/file.h"
#include "services/base/str_cat.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

TensorCopy Tensor(const std::string& name, std::vector<int64_t> shape, uint8_t fill) {
  const uint64_t bytes = *TensorBytes(Dtype::kF32, shape);
  return {name, Dtype::kF32, std::move(shape), std::vector<std::byte>(bytes, std::byte{fill})};
}

CheckpointContents Contents(int64_t version, int64_t lineage = 0, const std::string& job = "job") {
  CheckpointContents contents;
  contents.state.job = job;
  contents.state.policy = {lineage, version};
  contents.state.epoch = 4;
  contents.state.seed = std::numeric_limits<uint64_t>::max();
  contents.state.digest = "abc123";
  contents.state.cursor = {17, {19, 23}};
  auto learner = std::make_shared<LearnerState>();
  const auto fill = static_cast<uint8_t>(version);
  learner->model = {Tensor("model.embed", {4, 3}, fill), Tensor("model.norm", {3}, fill)};
  learner->optimizer = {Tensor("exp_avg.embed", {4, 3}, 1), Tensor("exp_avg_sq.embed", {4, 3}, 2)};
  learner->optimizer_steps = 40 + version;
  contents.learner = std::move(learner);
  contents.files = {{"config.json", "{\"a\": 1}\n"}, {"tokenizer.json", "{}"}};
  return contents;
}

class CheckpointTest : public testing::Test {
 protected:
  absl::StatusOr<std::string> Write(const CheckpointContents& contents) {
    return WriteCheckpoint(
        root(), contents, [] { return absl::OkStatus(); }, faults_);
  }
  std::string root() const { return dir_.path(); }
  std::string Step(int64_t step) const { return dir_.File(StrCat("step-", step)); }
  // Names in the root, hidden ones included.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(root())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  std::optional<FoundCheckpoint> Newest() const {
    const auto found = FindNewestCheckpoint(root(), "job");
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : std::nullopt;
  }

  TestDirectory dir_;
  FaultPoints faults_;
};

TEST_F(CheckpointTest, ComesBackAsItWasWritten) {
  const auto sha256 = Write(Contents(7, 2));
  ASSERT_TRUE(sha256.ok()) << sha256.status();
  const auto found = OpenCheckpoint(Step(7));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->path, Step(7));
  EXPECT_EQ(found->manifest_sha256, *sha256);
  EXPECT_EQ(found->optimizer_steps, 47);
  EXPECT_EQ(found->state.job, "job");
  EXPECT_EQ(found->state.policy, (PolicyVersion{2, 7}));
  EXPECT_EQ(found->state.epoch, 4);
  EXPECT_EQ(found->state.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(found->state.digest, "abc123");
  EXPECT_EQ(found->state.cursor.low_water, 17);
  EXPECT_THAT(found->state.cursor.above, ElementsAre(19, 23));
  EXPECT_THAT(Names(), ElementsAre("step-7"));
}

TEST_F(CheckpointTest, HoldsTheTensorsAndFiles) {
  ASSERT_TRUE(Write(Contents(7)).ok());
  const auto model = SafetensorsFile::Open(Step(7) + "/model.safetensors");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->names(), ElementsAre("model.embed", "model.norm"));
  EXPECT_EQ((*model)->metadata().at("format"), "pt");
  const TensorInfo* embed = (*model)->Find("model.embed");
  EXPECT_THAT(embed->shape, ElementsAre(4, 3));
  EXPECT_EQ((*model)->Data(*embed), std::string(48, '\7'));
  const auto optimizer = SafetensorsFile::Open(Step(7) + "/optimizer.safetensors");
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_THAT((*optimizer)->names(), ElementsAre("exp_avg.embed", "exp_avg_sq.embed"));
  EXPECT_EQ(*ReadFile(Step(7) + "/config.json", 100), "{\"a\": 1}\n");
}

TEST_F(CheckpointTest, TheManifestListsEveryOtherFileWithSizeAndHash) {
  const auto sha256 = Write(Contents(7, 2));
  ASSERT_TRUE(sha256.ok());
  const auto text = ReadFile(Step(7) + "/manifest.json", 1 << 20);
  EXPECT_EQ(*sha256, Sha256Hex(*text));
  const auto manifest = nlohmann::json::parse(*text);
  EXPECT_EQ(manifest["job"], "job");
  EXPECT_EQ(manifest["step"], 7);
  EXPECT_EQ(manifest["version"], 7);
  EXPECT_EQ(manifest["lineage"], 2);
  EXPECT_EQ(manifest["digest"], "abc123");
  std::set<std::string> listed;
  for (const auto& file : manifest["files"]) {
    const std::string path = Step(7) + "/" + file["name"].get<std::string>();
    listed.insert(file["name"]);
    EXPECT_EQ(file["bytes"], fs::file_size(path));
    EXPECT_EQ(file["sha256"], *Sha256File(path));
  }
  EXPECT_THAT(listed, UnorderedElementsAre("config.json", "tokenizer.json", "model.safetensors",
                                           "optimizer.safetensors", "trainer_state.json"));
}

TEST_F(CheckpointTest, ReplacesAnOrphanedOneOfTheSameStep) {
  ASSERT_TRUE(Write(Contents(7, 0)).ok());
  ASSERT_TRUE(Write(Contents(7, 1)).ok());
  EXPECT_EQ(Newest()->state.policy, (PolicyVersion{1, 7}));
  EXPECT_THAT(Names(), ElementsAre("step-7"));
}

TEST_F(CheckpointTest, CreatesItsRoot) {
  const std::string deep = dir_.File("run/checkpoints");
  ASSERT_TRUE(WriteCheckpoint(
                  deep, Contents(1), [] { return absl::OkStatus(); }, faults_)
                  .ok());
  EXPECT_TRUE(OpenCheckpoint(deep + "/step-1").ok());
}

TEST_F(CheckpointTest, FindsNothingWhereNothingIs) {
  EXPECT_FALSE(Newest().has_value());
  const auto missing = FindNewestCheckpoint(dir_.File("missing"), "job");
  ASSERT_TRUE(missing.ok()) << missing.status();
  EXPECT_FALSE(missing->has_value());
}

TEST_F(CheckpointTest, TheNewestIsByLineageThenVersion) {
  for (const int64_t step : {9, 10, 2}) ASSERT_TRUE(Write(Contents(step)).ok());
  EXPECT_EQ(Newest()->state.policy, (PolicyVersion{0, 10}));
  ASSERT_TRUE(Write(Contents(3, 1)).ok());
  EXPECT_EQ(Newest()->state.policy, (PolicyVersion{1, 3}));
}

TEST_F(CheckpointTest, IgnoresNamesThatAreNotSteps) {
  ASSERT_TRUE(Write(Contents(3)).ok());
  for (const char* name :
       {"step-", "step-x", "step--9", "step-9x", "step-9.bak", "other", "step-8 "}) {
    fs::copy(Step(3), dir_.File(name), fs::copy_options::recursive);
  }
  dir_.Write("step-12", "a file");
  EXPECT_EQ(Newest()->path, Step(3));
}

TEST_F(CheckpointTest, ADamagedOneIsNamedAndSkipped) {
  const char* const files[] = {"config.json",           "tokenizer.json",     "model.safetensors",
                               "optimizer.safetensors", "trainer_state.json", "manifest.json"};
  const struct {
    const char* name;
    void (*damage)(const std::string& path);
  } damages[] = {
      {"missing", [](const std::string& path) { fs::remove(path); }},
      {"cut", [](const std::string& path) { fs::resize_file(path, fs::file_size(path) - 1); }},
      {"empty", [](const std::string& path) { fs::resize_file(path, 0); }},
      {"one byte longer",
       [](const std::string& path) { fs::resize_file(path, fs::file_size(path) + 1); }},
      {"one byte changed",
       [](const std::string& path) {
         std::string text = *ReadFile(path, 1 << 20);
         text[0] ^= 1;
         ASSERT_TRUE(WriteFileAtomically(path, text).ok());
       }},
  };
  ASSERT_TRUE(Write(Contents(1)).ok());
  for (const char* file : files) {
    for (const auto& damage : damages) {
      // The manifest itself is JSON: space at its end means nothing.
      const std::string_view what = damage.name;
      if (std::string_view(file) == "manifest.json" &&
          (what == "cut" || what == "one byte longer")) {
        continue;
      }
      SCOPED_TRACE(StrCat(file, " ", what));
      ASSERT_TRUE(Write(Contents(2)).ok());
      ASSERT_EQ(Newest()->path, Step(2));
      damage.damage(Step(2) + "/" + file);
      const absl::Status status = OpenCheckpoint(Step(2)).status();
      EXPECT_EQ(status.code(), kDataLoss) << status;
      EXPECT_THAT(Message(status), HasSubstr(file));
      EXPECT_EQ(Newest()->path, Step(1));
    }
  }
}

TEST_F(CheckpointTest, AManifestOfAnotherShapeIsDataLoss) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  for (const char* text : {"[]", "{}", "{\"files\": 3}", "{\"files\": [{}]}", "{\"files\": [7]}",
                           "{\"files\": [{\"name\": 1, \"bytes\": 2, \"sha256\": 3}]}"}) {
    ASSERT_TRUE(WriteFileAtomically(Step(1) + "/manifest.json", text).ok());
    EXPECT_EQ(OpenCheckpoint(Step(1)).status().code(), kDataLoss) << text;
  }
}

TEST_F(CheckpointTest, AManifestThatContradictsTheStateIsDataLoss) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  const auto manifest = nlohmann::json::parse(*ReadFile(Step(1) + "/manifest.json", 1 << 20));
  const nlohmann::json others = {{"job", "x"},   {"step", 2},     {"version", 2},
                                 {"lineage", 1}, {"digest", "d"}, {"format", 2}};
  for (const auto& [key, value] : others.items()) {
    nlohmann::json changed = manifest;
    changed[key] = value;
    ASSERT_TRUE(WriteFileAtomically(Step(1) + "/manifest.json", changed.dump()).ok());
    EXPECT_EQ(OpenCheckpoint(Step(1)).status().code(), kDataLoss) << key;
  }
  ASSERT_TRUE(WriteFileAtomically(Step(1) + "/manifest.json", manifest.dump()).ok());
  EXPECT_TRUE(OpenCheckpoint(Step(1)).ok());
}

TEST_F(CheckpointTest, AManifestCannotPointOutOfItsDirectory) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  dir_.Write("secret", "x");
  const std::string text =
      StrCat("{\"files\": [{\"name\": \"../secret\", \"bytes\": 1, \"sha256\": \"", Sha256Hex("x"),
             "\"}]}");
  ASSERT_TRUE(WriteFileAtomically(Step(1) + "/manifest.json", text).ok());
  EXPECT_EQ(OpenCheckpoint(Step(1)).status().code(), kDataLoss);
}

TEST_F(CheckpointTest, RemovesTemporaryDirectoriesOfAKilledProcess) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  fs::copy(Step(1), dir_.File(".step-9.tmp"), fs::copy_options::recursive);
  dir_.Write("unrelated.tmp", "stays");
  EXPECT_EQ(Newest()->path, Step(1));
  EXPECT_THAT(Names(), UnorderedElementsAre("step-1", "unrelated.tmp"));
}

TEST_F(CheckpointTest, RefusesAFolderOfAnotherJob) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  ASSERT_TRUE(Write(Contents(2, 0, "other")).ok());
  const auto found = FindNewestCheckpoint(root(), "job");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(found.status()), HasSubstr("step-2"));
  EXPECT_THAT(Message(found.status()), HasSubstr("\"other\""));
}

TEST_F(CheckpointTest, AFailureBeforeTheRenameLeavesNothing) {
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

// What a process killed at each point would leave, as seen by the one that resumes.
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

TEST_F(CheckpointTest, KilledAtAnyPointTheOneBeforeIsFound) {
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
    const auto found = FindNewestCheckpoint(copies.File(point), "job");
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(found->has_value()) << point;
    EXPECT_EQ((*found)->state.policy.version, 1) << point;
    for (const auto& entry : fs::directory_iterator(copies.File(point))) {
      EXPECT_NE(entry.path().extension(), ".tmp") << point;
    }
  }
  EXPECT_EQ(Newest()->state.policy.version, 2);
}

// A former trainer that still writes meets what its successor has made durable.
TEST_F(CheckpointTest, OneIsThereAtEveryMomentWhileItIsReplaced) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  const auto before = Newest();
  const TestDirectory copies;
  SnapshotPoints points(root(), copies.path());
  ASSERT_TRUE(WriteCheckpoint(
                  root(), Contents(1, 1), [] { return absl::OkStatus(); }, points)
                  .ok());
  for (const std::string& point : points.points) {
    EXPECT_EQ((*FindNewestCheckpoint(copies.File(point), "job"))->state.policy,
              before->state.policy);
  }
  EXPECT_EQ(Newest()->state.policy, (PolicyVersion{1, 1}));
  EXPECT_THAT(Names(), ElementsAre("step-1"));
}

// It was stopped before its last rename; its successor cleaned up and wrote the same step.
TEST_F(CheckpointTest, AFormerTrainerThatGoesOnLeavesItsSuccessorsCheckpoint) {
  const auto written = WriteCheckpoint(
      root(), Contents(1),
      [&] {
        EXPECT_FALSE(Newest().has_value());  // which removes what is unfinished
        EXPECT_TRUE(Write(Contents(1, 1)).ok());
        return absl::OkStatus();
      },
      faults_);
  EXPECT_FALSE(written.ok());
  EXPECT_EQ(Newest()->state.policy, (PolicyVersion{1, 1}));
  EXPECT_THAT(Names(), ElementsAre("step-1"));
}

TEST_F(CheckpointTest, AnExceptionOfALibraryBecomesAStatus) {
  const auto written = WriteCheckpoint(
      root(), Contents(1), []() -> absl::Status { throw std::runtime_error("burns"); }, faults_);
  EXPECT_EQ(written.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Names(), IsEmpty());
}

// /dev/full answers every write with ENOSPC; a file beside the checkpoint stands for the disk.
TEST_F(CheckpointTest, AFullDiskIsSaidAndLeavesNothing) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  fs::create_symlink("/dev/full", dir_.File("config.json.tmp"));
  CheckpointContents contents = Contents(2);
  contents.files = {{"../config.json", "{}"}};
  const auto written = Write(contents);
  EXPECT_EQ(written.status().code(), absl::StatusCode::kResourceExhausted) << written.status();
  EXPECT_THAT(Names(), ElementsAre("step-1"));
}

TEST_F(CheckpointTest, ARootThatCannotBeWrittenIsNamed) {
  const std::string file = dir_.Write("file", "x");
  const auto written = WriteCheckpoint(
      file, Contents(1), [] { return absl::OkStatus(); }, faults_);
  EXPECT_EQ(written.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(written.status()), HasSubstr(file));
}

TEST_F(CheckpointTest, PruneKeepsTheNewestAndTheReference) {
  for (const int64_t step : {0, 2, 4, 6, 10}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(PruneCheckpoints(root(), 10, 5, std::nullopt).ok());
  EXPECT_EQ(Names().size(), 5U);
  ASSERT_TRUE(PruneCheckpoints(root(), 10, 2, 0).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-0", "step-6", "step-10"));
  ASSERT_TRUE(PruneCheckpoints(root(), 10, 1, std::nullopt).ok());
  EXPECT_THAT(Names(), ElementsAre("step-10"));
}

// A damaged or replaced one must not push out those that a resume needs.
TEST_F(CheckpointTest, WhatIsAboveTheVersionWrittenLastCountsForNothing) {
  for (const int64_t step : {2, 4, 6, 8}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(PruneCheckpoints(root(), 4, 1, std::nullopt).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-4", "step-6", "step-8"));
}

TEST_F(CheckpointTest, AllAreFoundTheNewestFirst) {
  for (const int64_t step : {9, 10, 2}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(Write(Contents(3, 1)).ok());
  const auto found = FindAllCheckpoints(root(), "job");
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<PolicyVersion> policies;
  for (const FoundCheckpoint& checkpoint : *found) policies.push_back(checkpoint.state.policy);
  EXPECT_THAT(policies, ElementsAre(PolicyVersion{1, 3}, PolicyVersion{0, 10}, PolicyVersion{0, 9},
                                    PolicyVersion{0, 2}));
}

TEST_F(CheckpointTest, OneThatIsSetAsideIsSeenByNobodyAndGoesWhenItIsPassed) {
  for (const int64_t step : {2, 4}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(SetAsideCheckpoint(Step(4)).ok());
  EXPECT_EQ(Newest()->path, Step(2));
  ASSERT_TRUE(Write(Contents(4)).ok());
  ASSERT_TRUE(SetAsideCheckpoint(Step(4)).ok()) << "again";
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "replaced-step-4"));
  ASSERT_TRUE(PruneCheckpoints(root(), 3, 2, std::nullopt).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "replaced-step-4"));
  ASSERT_TRUE(PruneCheckpoints(root(), 4, 2, std::nullopt).ok());
  EXPECT_THAT(Names(), ElementsAre("step-2"));
  EXPECT_FALSE(SetAsideCheckpoint(Step(7)).ok());
}

TEST_F(CheckpointTest, PruneOfAnEmptyRootDoesNothing) {
  EXPECT_TRUE(PruneCheckpoints(root(), 1, 1, std::nullopt).ok());
  EXPECT_TRUE(PruneCheckpoints(dir_.File("missing"), 1, 1, std::nullopt).ok());
}

}  // namespace
}  // namespace freshet
