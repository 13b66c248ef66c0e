#ifndef FRESHET_CLI_CLIENT_CHECKPOINT_EXPORT_H_
#define FRESHET_CLI_CLIENT_CHECKPOINT_EXPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// Receives the files of a checkpoint, or generated ones, into a new folder. Files are written next
// to it under a temporary name, verified against their manifest, fsynced and renamed, so an
// existing folder is always complete. Removes partial files on failure. Not thread-safe.
class CheckpointExport {
 public:
  static constexpr size_t kMaxFiles = 10000;

  // FAILED_PRECONDITION: the folder exists or cannot be created.
  static absl::StatusOr<std::unique_ptr<CheckpointExport>> Begin(const std::string& folder);
  ~CheckpointExport();

  // INVALID_ARGUMENT: a path that leaves the folder; DATA_LOSS: data before a path, or too many
  // files; RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Take(const job::v1::FileChunk& chunk);
  // DATA_LOSS naming the file that is missing or differs from the manifest.
  absl::Status Finish();

  int64_t bytes() const { return bytes_; }
  size_t files() const { return digests_.size(); }

 private:
  struct File;
  struct Digest {
    int64_t bytes = 0;
    std::string sha256;
  };

  CheckpointExport(std::string folder, std::string temporary);
  absl::Status Open(const std::string& path);
  absl::Status CloseFile();
  absl::Status CheckManifest() const;

  const std::string folder_;
  const std::string temporary_;
  bool finished_ = false;
  int64_t bytes_ = 0;
  std::unique_ptr<File> file_;
  std::map<std::string, Digest> digests_;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_CHECKPOINT_EXPORT_H_
