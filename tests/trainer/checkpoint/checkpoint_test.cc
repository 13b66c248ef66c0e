#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <set>
#include <stdexcept>

#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/model/test_directory.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_score.h"

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

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

StateTensor Tensor(const std::string& name, std::vector<int64_t> shape, uint8_t fill) {
  const uint64_t bytes = *TensorBytes(Dtype::kF32, shape);
  return {name, Dtype::kF32, std::move(shape), std::vector<std::byte>(bytes, std::byte{fill}), {}};
}

CheckpointContents Contents(int64_t version, int64_t lineage = 0, const std::string& job = "job",
                            int64_t writer_epoch = 0) {
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
  learner->optimizer = {Tensor("exp_avg.embed", {4, 3}, 1), Tensor("exp_avg_sq.embed", {4, 3}, 2)};
  learner->optimizer_steps = 40 + version;
  contents.learner = std::move(learner);
  contents.files = {{"config.json", "{\"a\": 1}\n"}, {"tokenizer.json", "{}"}};
  return contents;
}

// Contents with a bf16 model.safetensors.
CheckpointContents Bf16Contents(int64_t version) {
  CheckpointContents contents = Contents(version);
  contents.weights_dtype = Dtype::kBf16;
  return contents;
}

// Contents written by a trainer of this writer epoch, in the lineage of the same number.
CheckpointContents By(int64_t writer_epoch, int64_t version) {
  return Contents(version, writer_epoch, "job", writer_epoch);
}

class CheckpointTest : public testing::Test {
 protected:
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
    for (const auto& entry : fs::directory_iterator(root())) {
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

TEST_F(CheckpointTest, FindsNothingWhereNothingIs) {
  EXPECT_FALSE(Newest().has_value());
  const auto missing = FindAllCheckpoints(dir_.File("missing"), "job");
  ASSERT_TRUE(missing.ok()) << missing.status();
  EXPECT_TRUE(missing->complete.empty());
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

TEST_F(CheckpointTest, RemovesTemporaryDirectoriesOfAKilledProcess) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  for (const char* name : {".step-9.tmp", ".step-9.epoch-3.tmp", ".step-9.epoch-5.tmp"}) {
    fs::copy(Step(1), dir_.File(name), fs::copy_options::recursive);
  }
  dir_.Write("unrelated.tmp", "stays");
  EXPECT_EQ(Newest()->path, Step(1));
  ASSERT_TRUE(TidyCheckpoints(root(), /*writer_epoch=*/4, {}).ok());
  // The temporary folder of a newer trainer is still being written.
  EXPECT_THAT(Names(), UnorderedElementsAre("step-1", ".step-9.epoch-5.tmp", "unrelated.tmp"));
}

TEST_F(CheckpointTest, RefusesAFolderOfAnotherJob) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  ASSERT_TRUE(Write(Contents(2, 0, "other")).ok());
  const auto found = FindAllCheckpoints(root(), "job");
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
TEST_F(CheckpointTest, FilesAndNamesAreOnDiskWhenItReturns) {
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

TEST_F(CheckpointTest, WhereNamesCannotBeExchangedTheNewerOneCountsAndBothGoWithTheirStep) {
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
TEST_F(CheckpointTest, AnOlderTrainerIsRefusedTheNameOfItsSuccessorsCheckpoint) {
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

TEST_F(CheckpointTest, ADamagedOneOfANewerTrainerIsItsOwnToReplace) {
  ASSERT_TRUE(Write(By(5, 1)).ok());
  fs::remove(Step(1) + "/config.json");
  EXPECT_FALSE(Write(By(4, 1)).ok());
  ASSERT_TRUE(Write(By(5, 1)).ok());
  EXPECT_EQ(Newest()->writer_epoch, 5);
  EXPECT_THAT(Names(), UnorderedElementsAre("step-1", "replaced-step-1"));
}

// The successor writes the same step before each possible operation of the older trainer.
TEST_F(CheckpointTest, WhereverAnOlderTrainerIsStoppedItsSuccessorsCheckpointStays) {
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
TEST_F(CheckpointTest, WhatAnOlderTrainerHasExchangedItPutsBack) {
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

TEST_F(CheckpointTest, AnOlderTrainerDeletesAndSetsAsideNothingOfItsSuccessor) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(By(3, step)).ok());
  ASSERT_TRUE(Write(By(2, 8)).ok());
  ASSERT_TRUE(PruneCheckpoints(root(), 2, 8, {.last = 1}).ok());
  ASSERT_TRUE(TidyCheckpoints(root(), 2, {Step(2), Step(4), Step(7)}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "step-4", "step-6", "step-8"));
  ASSERT_TRUE(PruneCheckpoints(root(), 3, 8, {.last = 1}).ok());
  EXPECT_THAT(Names(), ElementsAre("step-8"));
}

// Stopped before its last rename; its successor tidies up and writes the same step.
TEST_F(CheckpointTest, AFormerTrainerThatGoesOnLeavesItsSuccessorsCheckpoint) {
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

TEST_F(CheckpointTest, AWriterEpochIsAboveAllThatTheFolderHasSeen) {
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

TEST_F(CheckpointTest, PruneKeepsTheNewestAndTheReference) {
  for (const int64_t step : {0, 2, 4, 6, 10}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(Prune(10, 5).ok());
  EXPECT_EQ(Names().size(), 5U);
  ASSERT_TRUE(Prune(10, 2, {0}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-0", "step-6", "step-10"));
  ASSERT_TRUE(Prune(10, 1).ok());
  EXPECT_THAT(Names(), ElementsAre("step-10"));
}

// Damaged or replaced checkpoints must not displace those that a resume needs.
TEST_F(CheckpointTest, WhatIsAboveTheVersionWrittenLastCountsForNothing) {
  for (const int64_t step : {2, 4, 6, 8}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(Prune(4, 1).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-4", "step-6", "step-8"));
}

TEST_F(CheckpointTest, DamagedOnesDoNotCountAsKeptAndGo) {
  for (const int64_t step : {2, 4, 6, 8, 10, 12}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::remove(Step(4) + "/manifest.json");
  fs::remove(Step(6) + "/optimizer.safetensors");
  fs::resize_file(Step(8) + "/model.safetensors", 1);
  fs::resize_file(Step(12) + "/model.safetensors", 1);
  ASSERT_TRUE(Prune(10, 2).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "step-10", "step-12"));
}

TEST_F(CheckpointTest, ADamagedReferenceStays) {
  for (const int64_t step : {0, 2}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::remove(Step(0) + "/config.json");
  ASSERT_TRUE(Prune(2, 2, {0}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-0", "step-2"));
}

TEST_F(CheckpointTest, PruneKeepsTheBestScores) {
  for (const int64_t step : {2, 4, 6, 8}) ASSERT_TRUE(Write(Contents(step)).ok());
  for (const auto& [step, accuracy] : {std::pair{2, 0.5}, {4, 0.75}, {6, 0.25}, {8, 0.5}}) {
    EXPECT_TRUE(RecordScore(root(), {{0, step + 1}, step, "heldout", accuracy}).ok());
    EXPECT_TRUE(RecordScore(root(), {{0, step + 2}, step, "heldout", 0.9}).ok());
    EXPECT_EQ(ReadScore(Step(step)), accuracy) << "of the nearer version";
  }
  EXPECT_TRUE(OpenCheckpoint(Step(4)).ok());
  ASSERT_TRUE(PruneCheckpoints(root(), 1, 8, {.last = 1, .best = 1}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-4", "step-8"));
}

TEST_F(CheckpointTest, OnlyCheckpointsOfTheEvaluatedHistoryGetAScore) {
  ASSERT_TRUE(Write(Contents(2, /*lineage=*/3)).ok());
  EXPECT_TRUE(absl::IsNotFound(RecordScore(root(), {{2, 2}, 2, "heldout", 0.5})))
      << "of the one it replaced";
  EXPECT_TRUE(absl::IsNotFound(RecordScore(root(), {{3, 4}, 4, "heldout", 0.5})))
      << "not written yet";
  EXPECT_FALSE(ReadScore(Step(2)).has_value());
  EXPECT_TRUE(RecordScore(root(), {{4, 3}, 2, "heldout", 0.5}).ok());
  for (const char* text : {"", "[]", "{\"eval_accuracy\": \"x\"}", "{\"eval_accuracy\": 1e999}"}) {
    ASSERT_TRUE(WriteFileAtomically(Step(2) + "/evaluation.json", text).ok());
    EXPECT_FALSE(ReadScore(Step(2)).has_value()) << text;
  }
}

TEST_F(CheckpointTest, OnlyTheNewestAreVerified) {
  for (int64_t step = 1; step <= 6; ++step) ASSERT_TRUE(Write(Contents(step)).ok());
  const auto found = FindAllCheckpoints(root(), "job");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->complete.size(), 4U);
  EXPECT_EQ(found->complete.front().state.policy.version, 6);
  EXPECT_THAT(found->older, ElementsAre(Step(2), Step(1)));
}

// A manifest that exists but cannot be read may become readable again.
TEST_F(CheckpointTest, OneThatCannotBeReadNowIsNeitherDamagedNorDeleted) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::remove(Step(4) + "/manifest.json");
  fs::create_symlink("manifest.json", Step(4) + "/manifest.json");  // ELOOP
  EXPECT_EQ(OpenCheckpoint(Step(4)).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(Prune(6, 2).ok());
  EXPECT_EQ(Names().size(), 3U);
  EXPECT_THAT(FindAllCheckpoints(root(), "job")->damaged, IsEmpty());
}

TEST_F(CheckpointTest, ListingReadsManifestsAlone) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(Contents(step)).ok());
  std::string text = *ReadFile(Step(4) + "/model.safetensors", 1 << 20);
  text.back() ^= 1;  // detected by hashing only
  ASSERT_TRUE(WriteFileAtomically(Step(4) + "/model.safetensors", text).ok());
  fs::remove(Step(6) + "/config.json");
  const auto listed = ListCheckpoints(root());
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].path, Step(4));
  EXPECT_EQ(listed[1].path, Step(2));
  EXPECT_EQ(listed[1].manifest.policy, (PolicyVersion{0, 2}));
  EXPECT_EQ(listed[1].manifest.sha256, *Sha256File(Step(2) + "/manifest.json"));
  EXPECT_THAT(FindAllCheckpoints(root(), "job")->damaged, ElementsAre(Step(6), Step(4)));
}

// A fenced trainer that prunes renames a checkpoint for a moment, see Writer::Claim.
TEST_F(CheckpointTest, OneThatIsBrieflyAwayIsNotDamaged) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::resize_file(Step(6) + "/model.safetensors", 1);
  int lines = 0;
  SetLogSink([&](LogSeverity, absl::Time, std::string_view) {
    // The names have been read, and step 6 has been checked.
    if (++lines == 1) fs::rename(Step(4), dir_.File("away"));
  });
  const auto found = FindAllCheckpoints(root(), "job");
  SetLogSink(nullptr);
  fs::rename(dir_.File("away"), Step(4));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(lines, 2);
  EXPECT_THAT(found->damaged, ElementsAre(Step(6)));
  ASSERT_EQ(found->complete.size(), 1U);
  EXPECT_EQ(found->complete[0].path, Step(2));
}

TEST_F(CheckpointTest, OneThatIsWholeAgainIsNotSetAsideAsDamaged) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::resize_file(Step(6) + "/model.safetensors", 1);
  ASSERT_TRUE(TidyCheckpoints(root(), 1, {Step(2)}, {Step(4), Step(6)}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("replaced-step-2", "step-4", "replaced-step-6"));
  EXPECT_TRUE(OpenCheckpoint(Step(4)).ok());
}

TEST_F(CheckpointTest, AllAreFoundTheNewestFirst) {
  for (const int64_t step : {9, 10, 2}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(Write(Contents(3, 1)).ok());
  const auto found = FindAllCheckpoints(root(), "job");
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<PolicyVersion> policies;
  for (const FoundCheckpoint& checkpoint : found->complete)
    policies.push_back(checkpoint.state.policy);
  EXPECT_THAT(policies, ElementsAre(PolicyVersion{1, 3}, PolicyVersion{0, 10}, PolicyVersion{0, 9},
                                    PolicyVersion{0, 2}));
}

TEST_F(CheckpointTest, OneThatIsSetAsideIsSeenByNobodyAndGoesWhenItIsPassed) {
  for (const int64_t step : {2, 4}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(TidyCheckpoints(root(), 1, {Step(4)}).ok());
  EXPECT_EQ(Newest()->path, Step(2));
  ASSERT_TRUE(Write(Contents(4)).ok());
  ASSERT_TRUE(TidyCheckpoints(root(), 1, {Step(4), Step(7)}).ok()) << "again";
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "replaced-step-4"));
  ASSERT_TRUE(Prune(3, 2).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "replaced-step-4"));
  ASSERT_TRUE(Prune(4, 2).ok());
  EXPECT_THAT(Names(), ElementsAre("step-2"));
}

TEST_F(CheckpointTest, PruneOfAnEmptyRootDoesNothing) {
  EXPECT_TRUE(Prune(1, 1).ok());
  EXPECT_TRUE(PruneCheckpoints(dir_.File("missing"), 1, 1, {.last = 1}).ok());
}

}  // namespace
}  // namespace freshet
