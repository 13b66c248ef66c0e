#include "trainer/checkpoint/checkpoint.h"

#include <filesystem>
#include <limits>
#include <set>
#include <stdexcept>

#include "base/digest.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/trainer/checkpoint/checkpoint_fixture.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

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

TEST_F(CheckpointTest, OfBf16WeightsKeepsTheMastersBesideTheMoments) {
  ASSERT_TRUE(Write(Bf16Contents(7)).ok());
  ASSERT_TRUE(OpenCheckpoint(Step(7)).ok());
  const auto model = SafetensorsFile::Open(Step(7) + "/model.safetensors");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->names(), ElementsAre("model.embed", "model.norm"));
  const TensorInfo* embed = (*model)->Find("model.embed");
  EXPECT_EQ(embed->dtype, Dtype::kBf16);
  EXPECT_THAT(embed->shape, ElementsAre(4, 3));
  EXPECT_EQ((*model)->Data(*embed), std::string(24, '\7'));  // 0x07070707 rounds to 0x0707
  const auto optimizer = SafetensorsFile::Open(Step(7) + "/optimizer.safetensors");
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_THAT((*optimizer)->names(), ElementsAre("exp_avg.embed", "exp_avg_sq.embed",
                                                 "master.model.embed", "master.model.norm"));
  EXPECT_EQ((*optimizer)->Data(*(*optimizer)->Find("master.model.embed")), std::string(48, '\7'));
}

// Programs that know only format 1 would resume from rounded weights.
TEST_F(CheckpointTest, OnlyBf16WeightsNeedANewerFormat) {
  const auto format = [&](int64_t step) {
    return nlohmann::json::parse(*ReadFile(Step(step) + "/manifest.json", 1 << 20))["format"];
  };
  ASSERT_TRUE(Write(Contents(1)).ok());
  ASSERT_TRUE(Write(Bf16Contents(2)).ok());
  EXPECT_EQ(format(1), 1);
  EXPECT_EQ(format(2), 2);
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
      // The manifest is JSON, where trailing space is valid.
      const std::string_view what = damage.name;
      if (std::string_view(file) == "manifest.json" &&
          (what == "cut" || what == "one byte longer")) {
        continue;
      }
      SCOPED_TRACE(StrCat(file, " ", what));
      ASSERT_EQ(Write(Contents(2)).status(), absl::OkStatus());
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
  const nlohmann::json others = {
      {"job", "x"}, {"step", 2}, {"version", 2}, {"lineage", 1}, {"digest", "d"}};
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
  for (const char* name : {"../secret", "..", ".", "", "/etc/passwd"}) {
    ChangeManifest(1, [&](nlohmann::json& manifest) {
      manifest["files"].push_back({{"name", name}, {"bytes", 1}, {"sha256", Sha256Hex("x")}});
    });
    const absl::Status status = OpenCheckpoint(Step(1)).status();
    EXPECT_EQ(status.code(), kDataLoss);
    EXPECT_THAT(Message(status), HasSubstr("outside"));
    ChangeManifest(1, [](nlohmann::json& manifest) { manifest["files"].erase(5); });
  }
  EXPECT_TRUE(OpenCheckpoint(Step(1)).ok());
}

// A required file must be listed, even if it is absent, too.
TEST_F(CheckpointTest, AManifestWithoutARequiredFileIsPassedOver) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  for (const char* required :
       {"config.json", "model.safetensors", "optimizer.safetensors", "trainer_state.json"}) {
    SCOPED_TRACE(required);
    ASSERT_TRUE(Write(Contents(2)).ok());
    fs::remove(Step(2) + "/" + required);
    ChangeManifest(2, [&](nlohmann::json& manifest) {
      auto& files = manifest["files"];
      for (size_t i = 0; i < files.size(); ++i) {
        if (files[i]["name"] == required) files.erase(i--);
      }
    });
    const absl::Status status = OpenCheckpoint(Step(2)).status();
    EXPECT_EQ(status.code(), kDataLoss) << status;
    EXPECT_THAT(Message(status), HasSubstr(StrCat("does not list ", required)));
    EXPECT_EQ(Newest()->path, Step(1));
  }
}

// Also covers files that are lost or added during the write.
TEST_F(CheckpointTest, TheManifestListsWhatWasWrittenAndNothingElse) {
  class Meddler final : public FaultPoints {
   public:
    void Reach(std::string_view point) override {
      if (point == "checkpoint_write") meddle();
    }
    std::function<void()> meddle;
  } meddler;
  const std::string temporary = dir_.File(".step-1.epoch-0.tmp/");
  const auto write = [&] {
    return WriteCheckpoint(
        root(), Contents(1), [] { return absl::OkStatus(); }, meddler);
  };
  meddler.meddle = [&] { fs::remove(temporary + "tokenizer.json"); };
  EXPECT_FALSE(write().ok());
  EXPECT_THAT(Names(), IsEmpty());
  meddler.meddle = [&] { fs::copy(temporary + "config.json", temporary + "core.1234"); };
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(ReadCheckpointManifest(Step(1))->files.size(), 5U);
}

// As written by versions without a writer epoch.
TEST_F(CheckpointTest, OneWithoutAWriterEpochIsLoadedAndReplaced) {
  const std::string state =
      R"({"format": 1, "job": "job", "lineage": 0, "version": 3, "epoch": 8, "seed": 5,
          "digest": "abc", "prompt_low_water": 7, "prompts_ended_above": [9],
          "optimizer_steps": 3})";
  const std::vector<std::pair<std::string, std::string>> files = {
      {"config.json", "{}"},      {"generation_config.json", "{}"},
      {"model.safetensors", "m"}, {"optimizer.safetensors", "o"},
      {"tokenizer.json", "{}"},   {"trainer_state.json", state}};
  fs::create_directory(Step(3));
  std::string listed;
  for (const auto& [name, content] : files) {
    dir_.Write("step-3/" + name, content);
    listed += StrCat(listed.empty() ? "" : ",", R"({"name": ")", name, R"(", "bytes": )",
                     content.size(), R"(, "sha256": ")", Sha256Hex(content), R"("})");
  }
  const std::string manifest = StrCat(
      R"({"format": 1, "job": "job", "step": 3, "lineage": 0, "version": 3, "digest": "abc",
          "files": [)",
      listed, "]}");
  dir_.Write("step-3/manifest.json", manifest);
  const auto found = Newest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->state.policy, (PolicyVersion{0, 3}));
  EXPECT_EQ(found->state.epoch, 8);
  EXPECT_EQ(found->manifest_sha256, Sha256Hex(manifest));
  EXPECT_EQ(found->writer_epoch, 0);
  EXPECT_EQ(HighestWriterEpoch(root()), 0);
  ASSERT_EQ(ListCheckpoints(root()).size(), 1U);
  ASSERT_TRUE(Write(By(9, 3)).ok());
  EXPECT_EQ(Newest()->writer_epoch, 9);
  EXPECT_THAT(Names(), ElementsAre("step-3"));
}

TEST_F(CheckpointTest, AnotherFormatIsRefusedByNameAndLeftAlone) {
  for (const int64_t step : {1, 2}) ASSERT_TRUE(Write(Contents(step)).ok());
  ChangeManifest(2, [](nlohmann::json& manifest) { manifest["format"] = 3; });
  const auto found = FindAllCheckpoints(root(), "job");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(found.status()), HasSubstr("step-2/manifest.json: format 3"));
  EXPECT_FALSE(Write(By(9, 2)).ok());
  ASSERT_TRUE(Prune(3, 1).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-1", "step-2"));
}

TEST_F(CheckpointTest, AnExceptionOfALibraryBecomesAStatus) {
  const auto written = WriteCheckpoint(
      root(), Contents(1), []() -> absl::Status { throw std::runtime_error("burns"); }, faults_);
  EXPECT_EQ(written.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Names(), IsEmpty());
}

// Writes to /dev/full fail with ENOSPC.
class FullDiskAtTheManifest final : public FaultPoints {
 public:
  explicit FullDiskAtTheManifest(std::string dir) : dir_(std::move(dir)) {}
  void Reach(std::string_view point) override {
    if (point == "checkpoint_write") fs::create_symlink("/dev/full", dir_ + "/manifest.json.tmp");
  }

 private:
  std::string dir_;
};

TEST_F(CheckpointTest, AFullDiskIsSaidAndLeavesNothing) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  FullDiskAtTheManifest full(dir_.File(".step-2.epoch-0.tmp"));
  const auto written = WriteCheckpoint(
      root(), Contents(2), [] { return absl::OkStatus(); }, full);
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

}  // namespace
}  // namespace freshet
