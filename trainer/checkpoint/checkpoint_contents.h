#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CONTENTS_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CONTENTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"
#include "model/dtype.h"
#include "model/safetensors.h"

namespace freshet {

// A tensor, little-endian row-major.
struct StateTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  TensorFetch fetch = nullptr;  // if set, the source of the bytes

  // The bytes, valid until another tensor of the LearnerState is read. Called by one thread at a
  // time. Errors of `fetch`.
  absl::StatusOr<std::span<const std::byte>> Read() const {
    if (fetch) return fetch();
    return std::span<const std::byte>(bytes);
  }
};

struct LearnerState {
  std::vector<StateTensor> model;      // fp32; Hugging Face names and shapes
  std::vector<StateTensor> optimizer;  // moments, "exp_avg.NAME" and "exp_avg_sq.NAME"
  int64_t optimizer_steps = 0;
  // Copies what the learner lends, if memory allows. Call it at most once, on the reading thread,
  // before the first Read. Empty: nothing is lent.
  std::function<void()> copy;
};

// The job's part: the state of the run when this version was committed.
struct TrainingState {
  std::string job;
  PolicyVersion policy;
  int64_t epoch = 0;
  uint64_t seed = 0;
  std::string digest;  // over the surviving trained uids
  PromptCursor cursor;
};

struct CheckpointContents {
  TrainingState state;
  int64_t writer_epoch = 0;  // orders the writers of one folder, see checkpoint_folder.h
  std::shared_ptr<const LearnerState> learner;
  // Of model.safetensors: kF32 or kBf16. `files` must have a config.json that says so.
  Dtype weights_dtype = Dtype::kF32;
  // Files copied verbatim: config.json, generation_config.json, tokenizer files, and others.
  std::vector<std::pair<std::string, std::string>> files;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_CONTENTS_H_
