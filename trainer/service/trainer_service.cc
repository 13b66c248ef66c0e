#include "trainer/service/trainer_service.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/bundle_proto.h"
#include "nlohmann/json.hpp"
#include "services/runtime/status.h"
#include "services/runtime/unary.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_score.h"
#include "trainer/loop/generated_files.h"
#include "trainer/service/training_work.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using trainer::v1::CheckpointChunk;

constexpr int kThreads = 2;
constexpr size_t kChunkBytes = 1 << 20;
constexpr size_t kMaxGenerated = 9999;  // with the manifest as many files as clients take
constexpr char kManifest[] = "manifest.json";

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

struct Export {
  std::vector<fs::path> files;
  bool list = false;  // `files` have no manifest, so one is made of what is sent
};

// Streams files chunk by chunk: the next chunk is read once the previous one was sent.
class ExportReactor final : public grpc::ServerWriteReactor<CheckpointChunk> {
 public:
  // Call it once, on any thread. The reactor may have deleted itself when it returns.
  void Start(absl::StatusOr<Export> wanted) {
    if (!wanted.ok()) return Finish(runtime::StatusToGrpc(wanted.status()));
    export_ = *std::move(wanted);
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller is gone"));
    WriteNext();
  }
  void OnDone() override { delete this; }

 private:
  bool AtEnd() { return in_->peek() == std::istream::traits_type::eof(); }

  void FinishUnread() { Finish(runtime::StatusToGrpc(DataLoss(name_, ": cannot be read"))); }

  // Adds the file that has been sent to the manifest. False: the call has been finished.
  bool CloseFile() {
    if (in_ == nullptr) return true;
    if (in_->bad() || bytes_ != size_) {
      FinishUnread();
      return false;
    }
    if (export_.list) {
      listed_.push_back({{"name", name_}, {"bytes", bytes_}, {"sha256", digest_->FinishHex()}});
    }
    in_ = nullptr;
    return true;
  }

  // False: the call has been finished.
  bool OpenNext() {
    if (next_ < export_.files.size()) {
      const fs::path& path = export_.files[next_++];
      auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
      name_ = path.filename();
      if (!file->is_open()) {
        Finish(runtime::StatusToGrpc(
            FailedPrecondition(name_, ": was removed meanwhile; export again")));
        return false;
      }
      in_ = std::move(file);
    } else if (export_.list) {
      export_.list = false;
      name_ = kManifest;
      in_ = std::make_unique<std::istringstream>(nlohmann::json{{"files", listed_}}.dump());
    } else {
      Finish(grpc::Status::OK);
      return false;
    }
    chunk_.set_path(name_);
    digest_.emplace();
    bytes_ = 0;
    in_->seekg(0, std::ios::end);
    size_ = in_->tellg();
    in_->seekg(0);
    return true;
  }

  void WriteNext() {
    chunk_.Clear();
    while (in_ == nullptr || AtEnd()) {
      if (!CloseFile() || !OpenNext()) return;
      if (AtEnd()) break;  // An empty file needs its own message.
    }
    std::string& data = *chunk_.mutable_data();
    data.resize(kChunkBytes);
    in_->clear();
    in_->read(data.data(), static_cast<std::streamsize>(data.size()));
    data.resize(static_cast<size_t>(in_->gcount()));
    if (in_->bad()) return FinishUnread();
    in_->clear();
    if (export_.list) digest_->Update(data);
    bytes_ += static_cast<int64_t>(data.size());
    StartWrite(&chunk_);
  }

  Export export_;
  size_t next_ = 0;
  std::unique_ptr<std::istream> in_;
  std::string name_;
  std::optional<Sha256> digest_;
  int64_t bytes_ = 0;  // sent of the file
  int64_t size_ = 0;   // of the file when it was opened
  nlohmann::json listed_ = nlohmann::json::array();
  CheckpointChunk chunk_;
};

absl::StatusOr<Export> GeneratedToExport(const std::string& state_dir, const std::string& job,
                                         int64_t after) {
  Export wanted;
  wanted.list = true;
  for (std::string& path : GeneratedFiles::FilesAfter(
           GeneratedFiles::FolderOfRun(CheckpointRoot(state_dir, job)), after, kMaxGenerated)) {
    wanted.files.emplace_back(std::move(path));
  }
  if (!wanted.files.empty()) return wanted;
  return NotFound("job ", job, " has no generated files of steps after ", after,
                  "; a job of kind generate writes one per step");
}

absl::StatusOr<Export> FilesToExport(const std::string& state_dir,
                                     const trainer::v1::ExportCheckpointRequest& request) {
  FRESHET_RETURN_IF_ERROR(CheckJobId(request.job_id()));
  if (request.has_generated_after()) {
    return GeneratedToExport(state_dir, request.job_id(), request.generated_after());
  }
  for (const auto& [path, manifest] :
       ListCheckpoints(CheckpointRoot(state_dir, request.job_id()))) {
    if (request.version() >= 0 && manifest.policy.version != request.version()) continue;
    Export wanted;
    for (const CheckpointManifest::File& file : manifest.files) {
      wanted.files.push_back(fs::path(path) / file.name);
    }
    wanted.files.push_back(fs::path(path) / kManifest);  // last, as when writing
    return wanted;
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
