#include "trainer/service/trainer_service.h"

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <fstream>

#include "base/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/model/test_directory.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_score.h"
#include "trainer/service/training_work.h"

namespace freshet {
namespace {

using testing::ElementsAre;

class NoLearners final : public LearnerFactory {
 public:
  absl::StatusOr<ModelBundle> Describe(const job::v1::JobSpec&, const DataRoots&) override {
    return ModelBundle();
  }
  absl::StatusOr<StartedLearner> Start(const LearnerStart&) override {
    return absl::UnimplementedError("no test starts one");
  }
};

class TrainerServiceTest : public testing::Test {
 protected:
  TrainerServiceTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = trainer::v1::TrainerService::NewStub(server_->InProcessChannel({}));
  }
  ~TrainerServiceTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string Root() const { return CheckpointRoot(dir_.path(), "job"); }
  std::string Save(int64_t version) {
    CheckpointContents contents;
    contents.state.job = "job";
    contents.state.policy = {1, version};
    contents.learner = std::make_shared<LearnerState>();
    contents.files = {{"config.json", "{}"}, {"empty.txt", ""}};
    FaultPoints faults;
    const auto sha256 = WriteCheckpoint(
        Root(), contents, [] { return absl::OkStatus(); }, faults);
    EXPECT_TRUE(sha256.ok()) << sha256.status();
    return sha256.value_or("");
  }
  grpc::Status List(const std::string& job) {
    trainer::v1::ListCheckpointsRequest request;
    request.set_job_id(job);
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    listed_.Clear();
    return stub_->ListCheckpoints(&context, request, &listed_);
  }
  grpc::Status Export(const std::string& job, int64_t version) {
    trainer::v1::ExportCheckpointRequest request;
    request.set_job_id(job);
    request.set_version(version);
    return Export(request);
  }
  grpc::Status ExportGenerated(const std::string& job, int64_t after) {
    trainer::v1::ExportCheckpointRequest request;
    request.set_job_id(job);
    request.set_generated_after(after);
    return Export(request);
  }
  grpc::Status Export(const trainer::v1::ExportCheckpointRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    const auto reader = stub_->ExportCheckpoint(&context, request);
    trainer::v1::CheckpointChunk chunk;
    names_.clear();
    last_.clear();
    while (reader->Read(&chunk)) {
      if (!chunk.path().empty()) {
        names_.push_back(chunk.path());
        last_.clear();
      }
      last_ += chunk.data();
    }
    return reader->Finish();
  }
  static std::chrono::system_clock::time_point Deadline() {
    return std::chrono::system_clock::now() + std::chrono::seconds(10);
  }

  TestDirectory dir_;
  NoLearners learners_;
  GrpcTrainerService service_{learners_, dir_.path(), DataRoots()};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<trainer::v1::TrainerService::Stub> stub_;
  trainer::v1::ListCheckpointsReply listed_;
  std::vector<std::string> names_;  // names of received files
  std::string last_;                // content of the last received file
};

// The damage to the model of step 4 could only be detected by its SHA-256.
TEST_F(TrainerServiceTest, ListsWhatTheManifestsSayAndReadsNoOtherFile) {
  Save(2);
  const std::string sha256 = Save(4);
  const std::string path = Root() + "/step-4";
  std::fstream(path + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .put('\x7f');
  ASSERT_TRUE(List("job").ok());
  ASSERT_EQ(listed_.checkpoints_size(), 2);
  const trainer::v1::CheckpointInfo& newest = listed_.checkpoints(0);
  EXPECT_EQ(newest.version(), 4);
  EXPECT_EQ(newest.lineage(), 1);
  EXPECT_EQ(newest.manifest_sha256(), sha256);
  EXPECT_EQ(newest.path(), path);
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    bytes += static_cast<int64_t>(file.file_size());
  }
  EXPECT_EQ(newest.size_bytes(), bytes);
  EXPECT_EQ(listed_.checkpoints(1).version(), 2);
  EXPECT_FALSE(newest.has_accuracy());
  ASSERT_TRUE(RecordScore(Root(), {{1, 4}, 4, "eval", 0.5}).ok());
  ASSERT_TRUE(List("job").ok());
  EXPECT_EQ(listed_.checkpoints(0).accuracy(), 0.5);
}

TEST_F(TrainerServiceTest, ExportsTheFilesOfTheManifestAndThenTheManifest) {
  Save(2);
  const std::string sha256 = Save(4);
  dir_.Write("jobs/job/checkpoints/step-4/core.1234", "of a process that crashed there");
  const auto newest = ElementsAre("config.json", "empty.txt", "model.safetensors",
                                  "optimizer.safetensors", "trainer_state.json", "manifest.json");
  ASSERT_TRUE(Export("job", -1).ok());
  EXPECT_THAT(names_, newest);
  EXPECT_EQ(Sha256Hex(last_), sha256);
  ASSERT_TRUE(Export("job", 2).ok());
  EXPECT_THAT(names_, newest);
  EXPECT_NE(Sha256Hex(last_), sha256);
}

TEST_F(TrainerServiceTest, ExportsGeneratedFilesAndThenAManifestOfThem) {
  Save(2);
  std::filesystem::create_directories(dir_.File("jobs/job/generated"));
  const std::string large(2'500'000, 'x');  // more than two chunks
  dir_.Write("jobs/job/generated/step-00000002.jsonl", large);
  dir_.Write("jobs/job/generated/step-00000001.jsonl", "{}\n");
  dir_.Write("jobs/job/generated/step-00000003.jsonl", "");
  dir_.Write("jobs/job/generated/step-00000004.jsonl.tmp", "{");
  dir_.Write("jobs/job/generated/notes.jsonl", "{}");
  ASSERT_TRUE(ExportGenerated("job", 0).ok());
  EXPECT_THAT(names_, ElementsAre("step-00000001.jsonl", "step-00000002.jsonl",
                                  "step-00000003.jsonl", "manifest.json"));
  const auto entry = [](const char* name, const std::string& content) {
    return nlohmann::json{
        {"name", name}, {"bytes", content.size()}, {"sha256", Sha256Hex(content)}};
  };
  EXPECT_EQ(nlohmann::json::parse(last_).at("files"),
            nlohmann::json::array({entry("step-00000001.jsonl", "{}\n"),
                                   entry("step-00000002.jsonl", large),
                                   entry("step-00000003.jsonl", "")}));
  ASSERT_TRUE(ExportGenerated("job", 2).ok());
  EXPECT_THAT(names_, ElementsAre("step-00000003.jsonl", "manifest.json"));
  EXPECT_EQ(ExportGenerated("job", 3).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ExportGenerated("other", 0).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ExportGenerated("../job", 0).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(TrainerServiceTest, AFileThatCannotBeReadEndsAnExport) {
  std::filesystem::create_directories(dir_.File("jobs/job/generated/step-00000002.jsonl"));
  dir_.Write("jobs/job/generated/step-00000001.jsonl", "{}\n");
  const grpc::Status status = ExportGenerated("job", 0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(status.error_message(), "step-00000002.jsonl: cannot be read");
}

TEST_F(TrainerServiceTest, AnswersForJobsWithoutCheckpoints) {
  Save(2);
  EXPECT_EQ(Export("job", 3).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Export("other", -1).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Export("../job", -1).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(List("../job").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(List("other").ok());
  EXPECT_EQ(listed_.checkpoints_size(), 0);
}

}  // namespace
}  // namespace freshet
