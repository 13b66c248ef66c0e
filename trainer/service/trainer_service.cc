#include "trainer/service/trainer_service.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/bundle_proto.h"
#include "services/runtime/status.h"
#include "services/runtime/unary.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_score.h"
#include "trainer/service/training_work.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using trainer::v1::CheckpointChunk;

constexpr int kThreads = 2;
constexpr size_t kChunkBytes = 1 << 20;

// A job id names a folder, so it must not contain path components.
absl::Status CheckJobId(const std::string& id) {
  const bool plain = !id.empty() && id.size() <= 63 && id[0] != '.' &&
                     std::all_of(id.begin(), id.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
                     });
  if (plain) return absl::OkStatus();
  return InvalidArgument("job_id: letters, digits, '.', '_' and '-', at most 63, are allowed");
}

int64_t SizeOf(const CheckpointManifest& manifest) {
  uint64_t bytes = manifest.bytes;
  for (const CheckpointManifest::File& file : manifest.files) bytes += file.bytes;
  return static_cast<int64_t>(bytes);
}

// Streams files chunk by chunk: the next chunk is read once the previous one was sent.
class ExportReactor final : public grpc::ServerWriteReactor<CheckpointChunk> {
 public:
  // Call it once, on any thread. The reactor may have deleted itself when it returns.
  void Start(absl::StatusOr<std::vector<fs::path>> files) {
    if (!files.ok()) return Finish(runtime::StatusToGrpc(files.status()));
    files_ = *std::move(files);
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller is gone"));
    WriteNext();
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    chunk_.Clear();
    while (!file_.is_open() || file_.peek() == std::ifstream::traits_type::eof()) {
      if (next_ == files_.size()) return Finish(grpc::Status::OK);
      file_ = std::ifstream(files_[next_], std::ios::binary);
      if (!file_.is_open()) {
        return Finish(runtime::StatusToGrpc(
            FailedPrecondition("the checkpoint was removed meanwhile; export a newer one")));
      }
      chunk_.set_path(files_[next_++].filename());
      // An empty file needs its own message.
      if (file_.peek() == std::ifstream::traits_type::eof()) break;
    }
    std::string& data = *chunk_.mutable_data();
    data.resize(kChunkBytes);
    file_.clear();
    file_.read(data.data(), static_cast<std::streamsize>(data.size()));
    data.resize(static_cast<size_t>(file_.gcount()));
    file_.clear();
    StartWrite(&chunk_);
  }

  std::vector<fs::path> files_;
  size_t next_ = 0;
  std::ifstream file_;
  CheckpointChunk chunk_;
};

absl::StatusOr<std::vector<fs::path>> FilesToExport(
    const std::string& state_dir, const trainer::v1::ExportCheckpointRequest& request) {
  FRESHET_RETURN_IF_ERROR(CheckJobId(request.job_id()));
  for (const auto& [path, manifest] :
       ListCheckpoints(CheckpointRoot(state_dir, request.job_id()))) {
    if (request.version() >= 0 && manifest.policy.version != request.version()) continue;
    std::vector<fs::path> files;
    for (const CheckpointManifest::File& file : manifest.files) {
      files.push_back(fs::path(path) / file.name);
    }
    files.push_back(fs::path(path) / "manifest.json");  // last, as when writing
    return files;
  }
  return StatusOf(absl::StatusCode::kNotFound, "job ", request.job_id(), " has no checkpoint",
                  request.version() >= 0 ? StrCat(" of step ", request.version()) : std::string());
}

}  // namespace

GrpcTrainerService::GrpcTrainerService(LearnerFactory& learners, std::string state_dir,
                                       DataRoots roots)
    : learners_(learners),
      state_dir_(std::move(state_dir)),
      roots_(std::move(roots)),
      calls_(kThreads, kMaxQueue) {}

grpc::ServerUnaryReactor* GrpcTrainerService::DescribeModel(
    grpc::CallbackServerContext* context, const trainer::v1::DescribeModelRequest* request,
    trainer::v1::ModelBundle* reply) {
  return runtime::RunUnary(
      calls_, context, request, reply,
      [this](const trainer::v1::DescribeModelRequest& call,
             const runtime::CallContext&) -> absl::StatusOr<trainer::v1::ModelBundle> {
        FRESHET_ASSIGN_OR_RETURN(const ModelBundle bundle, learners_.Describe(call.spec(), roots_));
        return ToProto(bundle);
      });
}

grpc::ServerUnaryReactor* GrpcTrainerService::ListCheckpoints(
    grpc::CallbackServerContext* context, const trainer::v1::ListCheckpointsRequest* request,
    trainer::v1::ListCheckpointsReply* reply) {
  return runtime::RunUnary(
      calls_, context, request, reply,
      [this](const trainer::v1::ListCheckpointsRequest& call,
             const runtime::CallContext&) -> absl::StatusOr<trainer::v1::ListCheckpointsReply> {
        FRESHET_RETURN_IF_ERROR(CheckJobId(call.job_id()));
        trainer::v1::ListCheckpointsReply listed;
        for (const auto& [path, manifest] :
             freshet::ListCheckpoints(CheckpointRoot(state_dir_, call.job_id()))) {
          trainer::v1::CheckpointInfo& info = *listed.add_checkpoints();
          info.set_lineage(manifest.policy.lineage);
          info.set_version(manifest.policy.version);
          info.set_size_bytes(SizeOf(manifest));
          info.set_manifest_sha256(manifest.sha256);
          info.set_path(path);
          if (const auto accuracy = ReadScore(path)) info.set_accuracy(*accuracy);
        }
        return listed;
      });
}

grpc::ServerWriteReactor<CheckpointChunk>* GrpcTrainerService::ExportCheckpoint(
    grpc::CallbackServerContext*, const trainer::v1::ExportCheckpointRequest* request) {
  // Deletes itself when the call ends.
  auto* const reactor = new ExportReactor();
  if (!calls_.TrySubmit(
          [this, reactor, call = *request] { reactor->Start(FilesToExport(state_dir_, call)); })) {
    reactor->Start(ResourceExhausted("too many calls are waiting; try again later"));
  }
  return reactor;
}

grpc::ServerUnaryReactor* GrpcTrainerService::DeleteJobFiles(
    grpc::CallbackServerContext* context, const trainer::v1::DeleteJobFilesRequest* request,
    trainer::v1::DeleteJobFilesReply* reply) {
  return runtime::RunUnary(
      calls_, context, request, reply,
      [this](const trainer::v1::DeleteJobFilesRequest& call,
             const runtime::CallContext&) -> absl::StatusOr<trainer::v1::DeleteJobFilesReply> {
        FRESHET_RETURN_IF_ERROR(CheckJobId(call.job_id()));
        std::error_code error;
        fs::remove_all(StrCat(state_dir_, "/jobs/", call.job_id()), error);
        if (error) {
          return FailedPrecondition("cannot remove the files of job ", call.job_id(), ": ",
                                    error.message());
        }
        return trainer::v1::DeleteJobFilesReply();
      });
}

}  // namespace freshet
