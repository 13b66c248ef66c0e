#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fault_point.h"
#include "trainer/checkpoint/checkpoint_contents.h"

namespace freshet {

// A checkpoint is a directory in Hugging Face layout, plus
//   optimizer.safetensors      moments; kMasterPrefix + NAME: the fp32 weights, unless those of
//                              model.safetensors are fp32
//   trainer_state.json         TrainingState
//   further files              CheckpointContents::files
//   manifest.json              written last: job, step, lineage, digest, writer epoch, and name,
//                              size and SHA-256 of every other file
// It is complete if the manifest lists config.json, model.safetensors and the two files above, and
// every listed file matches. Names and order of checkpoints: checkpoint_folder.h.

inline constexpr char kMasterPrefix[] = "master.";

struct CheckpointManifest {
  struct File {
    std::string name;
    uint64_t bytes = 0;
    std::string sha256;
  };
  std::string job;
  PolicyVersion policy;
  std::string digest;
  int64_t writer_epoch = 0;  // 0 in manifests without one
  std::vector<File> files;
  std::string sha256;  // of manifest.json
  uint64_t bytes = 0;  // of manifest.json
};

// A checkpoint on disk, verified against its manifest.
struct FoundCheckpoint {
  std::string path;
  std::string manifest_sha256;
  int64_t writer_epoch = 0;
  TrainingState state;
  int64_t optimizer_steps = 0;
};

// Reads manifest.json of a checkpoint directory, no other file. Returns:
//   DATA_LOSS: it is missing or malformed, or does not list a required file.
//   FAILED_PRECONDITION: written by a program with another format; the message names both.
//   UNAVAILABLE: it exists but cannot be read.
absl::StatusOr<CheckpointManifest> ReadCheckpointManifest(const std::string& path);

// ReadCheckpointManifest, plus DATA_LOSS naming a file that is missing or has another size. Does
// not read the files' contents.
absl::StatusOr<CheckpointManifest> InspectCheckpoint(const std::string& path);

// InspectCheckpoint, then verifies the SHA-256 of every file and reads the state. DATA_LOSS naming
// the file that differs.
absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path);

// Writes the files of a checkpoint and then its manifest into the empty directory `path`, and
// fsyncs everything. Returns the SHA-256 of the manifest. RESOURCE_EXHAUSTED if the disk is full,
// errors of StateTensor::Read, otherwise FAILED_PRECONDITION naming the path. Drops the learner's
// state as soon as it is written. Fault point before the manifest: checkpoint_write.
absl::StatusOr<std::string> FillCheckpoint(const std::string& path, CheckpointContents contents,
                                           FaultPoints& faults);

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_H_
