#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_SCORE_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_SCORE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/policy_version.h"

namespace freshet {

// Result of an evaluation of the job's first set.
struct CheckpointScore {
  PolicyVersion policy;    // that was evaluated
  int64_t checkpoint = 0;  // the newest version up to there that has a checkpoint
  std::string eval_name;
  double accuracy = 0;  // finite
};

// Writes evaluation.json of the checkpoint of version `score.checkpoint` in ROOT
// (checkpoint_folder.h), unless it has the score of a version that is nearer to it. Returns:
//   NOT_FOUND: there is no such checkpoint, or the evaluated version is not of its history.
//   Errors of WriteFileAtomically, and UNAVAILABLE: its manifest cannot be read.
absl::Status RecordScore(const std::string& root, const CheckpointScore& score);

// The accuracy in evaluation.json of a checkpoint directory; nothing if the file is missing or
// malformed.
std::optional<double> ReadScore(const std::string& path);

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_SCORE_H_
