#ifndef FRESHET_TRAINER_LEARNER_SFT_WARMUP_H_
#define FRESHET_TRAINER_LEARNER_SFT_WARMUP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "text/tokenizer.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

struct WarmupRow {
  std::string prompt;                             // text
  std::map<std::string, std::string> attributes;  // `answer` is the gold answer
  std::string where;                              // location of the row, for messages
};

// Source of the warm-up's training rows: the dataset itself, or a copy fetched from another
// process. Not thread-safe.
class WarmupRows {
 public:
  virtual ~WarmupRows() = default;
  virtual int64_t size() const = 0;  // >= 1
  // Requires 0 <= index < size().
  virtual absl::StatusOr<WarmupRow> Get(int64_t index) = 0;
};

// Called after every warm-up step; returns false to stop early.
using WarmupProgress = std::function<bool(int64_t step, int64_t steps, double loss)>;

// Runs the supervised warm-up of a job that has one (`warmup.sft`): trains on the rows' answers,
// each followed by the end token, in an order derived from the job's seed, and then prepares the
// learner for policy training. CANCELLED if `progress` stopped it; otherwise errors of rows and
// learner.
absl::Status RunSftWarmup(const job::v1::JobSpec& spec, const Tokenizer& tokenizer,
                          WarmupRows& rows, PolicyLearner& learner, const WarmupProgress& progress);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_SFT_WARMUP_H_
