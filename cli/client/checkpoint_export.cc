#include "cli/client/checkpoint_export.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPathBytes = 1024;
constexpr uint64_t kMaxManifestBytes = uint64_t{16} << 20;
constexpr const char* kManifest = "manifest.json";

// A relative path without "." and ".." that stays below its folder.
bool StaysInside(const std::string& path) {
  if (path.empty() || path.size() > kMaxPathBytes || path.front() == '/') return false;
  if (path.find('\0') != std::string::npos) return false;
  for (const fs::path& part : fs::path(path)) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

}  // namespace

struct CheckpointExport::File {
  std::string name;
  LineAppender out;
  Sha256 digest;
  int64_t bytes = 0;
};

CheckpointExport::CheckpointExport(std::string folder, std::string temporary)
    : folder_(std::move(folder)), temporary_(std::move(temporary)) {}

CheckpointExport::~CheckpointExport() {
  if (finished_) return;
  file_.reset();
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

absl::StatusOr<std::unique_ptr<CheckpointExport>> CheckpointExport::Begin(
    const std::string& folder) {
  std::string name = folder;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  std::error_code error;
  if (fs::exists(fs::symlink_status(name, error))) {
    return FailedPrecondition(name, ": exists already; name a new folder");
  }
  const std::string temporary = StrCat(name, ".tmp-", ::getpid());
  fs::create_directories(temporary, error);
  if (error) return WriteError(temporary, error.value());
  return std::unique_ptr<CheckpointExport>(new CheckpointExport(name, temporary));
}

absl::Status CheckpointExport::Open(const std::string& path) {
  if (!StaysInside(path)) {
    return InvalidArgument("the server sent a file that does not belong into the folder: \"",
                           path.substr(0, 80), "\"");
  }
  if (digests_.size() >= kMaxFiles || digests_.count(path) > 0) {
    return DataLoss("the server sent ", path, " twice, or more than ", kMaxFiles, " files");
  }
  const fs::path full = fs::path(temporary_) / path;
  std::error_code error;
  fs::create_directories(full.parent_path(), error);
  if (error) return WriteError(full.string(), error.value());
  file_ = std::make_unique<File>();
  file_->name = path;
  FRESHET_ASSIGN_OR_RETURN(file_->out, LineAppender::Open(full.string()));
  return absl::OkStatus();
}

absl::Status CheckpointExport::CloseFile() {
  if (file_ == nullptr) return absl::OkStatus();
  FRESHET_RETURN_IF_ERROR(file_->out.Sync());
  digests_[file_->name] = {file_->bytes, file_->digest.FinishHex()};
  file_.reset();
  return absl::OkStatus();
}

absl::Status CheckpointExport::Take(const job::v1::FileChunk& chunk) {
  if (!chunk.path().empty()) {
    FRESHET_RETURN_IF_ERROR(CloseFile());
    FRESHET_RETURN_IF_ERROR(Open(chunk.path()));
  }
  if (file_ == nullptr) return DataLoss("the server sent data that belongs to no file");
  FRESHET_RETURN_IF_ERROR(file_->out.Append(chunk.data()));
  file_->digest.Update(chunk.data());
  file_->bytes += static_cast<int64_t>(chunk.data().size());
  bytes_ += static_cast<int64_t>(chunk.data().size());
  return absl::OkStatus();
}

absl::Status CheckpointExport::CheckManifest() const {
  FRESHET_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(temporary_ + "/" + kManifest, kMaxManifestBytes));
  try {
    const nlohmann::json manifest = nlohmann::json::parse(text);
    for (const nlohmann::json& entry : manifest.at("files")) {
      const auto name = entry.at("name").get<std::string>();
      const auto found = digests_.find(name);
      if (found == digests_.end()) return DataLoss(name, ": is missing from what was received");
      if (found->second.bytes != entry.at("bytes").get<int64_t>() ||
          found->second.sha256 != entry.at("sha256").get<std::string>()) {
        return DataLoss(name, ": what was received is not what the manifest says; try again");
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return DataLoss(kManifest, ": cannot be read: ", error.what());
  }
  return absl::OkStatus();
}

absl::Status CheckpointExport::Finish() {
  FRESHET_RETURN_IF_ERROR(CloseFile());
  if (digests_.count(kManifest) == 0) return DataLoss("what was received has no ", kManifest);
  FRESHET_RETURN_IF_ERROR(CheckManifest());
  FRESHET_RETURN_IF_ERROR(SyncPath(temporary_));
  // rename(2) may replace an empty folder created meanwhile, which is harmless.
  if (::rename(temporary_.c_str(), folder_.c_str()) != 0) return WriteError(folder_, errno);
  finished_ = true;
  const std::string parent = fs::path(folder_).parent_path().string();
  return SyncPath(parent.empty() ? "." : parent);
}

}  // namespace freshet
