#ifndef FRESHET_JOB_LOSS_SETUP_H_
#define FRESHET_JOB_LOSS_SETUP_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "freshet/job/v1/job_spec.pb.h"
#include "job/config_error.h"
#include "job/loss_spec.h"

namespace freshet {

// Job settings that decide whether an advantage is defined and whether samples can be stale.
struct LossBatchShape {
  int64_t group_size = 0;       // samples per prompt
  int64_t groups_per_step = 0;  // prompts per training step
  int64_t max_staleness = 0;    // maximum number of versions between a token and the step that
                                // trains on it
};

// One reason why a loss is rejected. `field` is the key's path ("loss.correction.kind"); `message`
// is one line without the path: value, bound, fix.
struct LossError {
  std::string field;
  std::string message;
};

// Expands the preset, applies the overrides and checks for contradictions. Returns the loss, or at
// least one error. A correction kind that differs from the preset's gets its own defaults (tis: cap
// 2; mask: low 0.5, cap 5; seq_tis: cap 2). If neither preset nor overrides name a kind, the kind
// is tis when samples can be stale and the anchor is proximal. kl.coef 0 disables the KL term, like
// kl.kind none. Pure; thread-safe.
//
// Errors: an unknown name; a number that is out of range or not finite; a correction with anchor
// behavior (same effect twice) or none; a clip, ratio level or cispo without an anchor; a dual clip
// outside ppo; a cap, low or coefficient without its kind; a KL kind without a coefficient; an
// entropy_control whose high is below its low; token_weights of which two begin alike; an advantage
// that is undefined or always zero for this group size.
std::variant<LossSpec, std::vector<LossError>> ResolveLoss(const job::v1::Loss& keys,
                                                           const LossBatchShape& shape);

// The same for the keys, group_size, prompts_per_step and staleness.max of a job.
std::variant<LossSpec, std::vector<LossError>> ResolveJobLoss(const job::v1::JobSpec& spec);

// Expands the job's loss into `loss`, or returns located errors, as the trainer would, so that
// contradictions are rejected before the job starts. Replayed samples need an importance weight.
// Pure; thread-safe.
std::vector<ConfigError> CheckLoss(const job::v1::JobSpec& spec, const KeyPlaces& places,
                                   LossSpec& loss);

}  // namespace freshet

#endif  // FRESHET_JOB_LOSS_SETUP_H_
