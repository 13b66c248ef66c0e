#ifndef FRESHET_TRAINER_LEARNER_SFT_WARMUP_H_
#define FRESHET_TRAINER_LEARNER_SFT_WARMUP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "model/tokenizer.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// One training row of a job's dataset.
struct WarmupRow {
  std::string prompt;                             // text
  std::map<std::string, std::string> attributes;  // `answer` is the gold answer
  std::string where;                              // place of the row, for messages
};

// Where the warm-up finds the training rows: the dataset itself, or a copy of it that came from
// another process. Confined to one thread.
class WarmupRows {
 public:
  virtual ~WarmupRows() = default;
  virtual int64_t size() const = 0;  // >= 1
  // Of row 0 <= index < size().
  virtual absl::StatusOr<WarmupRow> Get(int64_t index) = 0;
};

// Told after every warm-up step; returns false to stop early.
using WarmupProgress = std::function<bool(int64_t step, int64_t steps, double loss)>;

// Supervised warm-up of a job that has one (`warmup.sft`): trains on the rows' answers, each ended
// by the end token, in an order drawn from the job's seed, and then readies the learner for policy
// training. CANCELLED when `progress` stopped it; else errors of rows and learner.
absl::Status RunSftWarmup(const job::v1::JobSpec& spec, const Tokenizer& tokenizer,
                          WarmupRows& rows, PolicyLearner& learner, const WarmupProgress& progress);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_SFT_WARMUP_H_
