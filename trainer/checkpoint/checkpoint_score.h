#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_SCORE_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_SCORE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/policy_version.h"

namespace freshet {

// Result of an evaluation of the job's first set.
struct CheckpointScore {
  // That was evaluated: the version for which the evaluation was due, or the next few if the
  // engines had gone on.
  PolicyVersion policy;
  int64_t due = 0;  // version
  std::string eval_name;
  double accuracy = 0;  // finite
};

// Writes evaluation.json of the checkpoint of version `due` in ROOT (checkpoint_folder.h). Returns
// false if there is no such checkpoint, or the evaluated version is not of its history.
bool RecordScore(const std::string& root, const CheckpointScore& score);

// The accuracy in evaluation.json of a checkpoint directory; nothing if the file is missing or
// malformed.
std::optional<double> ReadScore(const std::string& path);

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_SCORE_H_
