#ifndef FRESHET_TRAINER_SERVICE_LEARNER_FACTORY_H_
#define FRESHET_TRAINER_SERVICE_LEARNER_FACTORY_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "model/model_setup.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/learner/learner.h"
#include "trainer/learner/sft_warmup.h"
#include "weights/manifest.h"

namespace freshet {

// Where a job's weights come from.
struct LearnerStart {
  const job::v1::JobSpec& spec;
  const DataRoots& roots;  // of the files that the spec names
  // The checkpoint to go on from; null: the job's model, followed by its warm-up.
  const FoundCheckpoint* checkpoint = nullptr;
  std::string first_checkpoint;  // directory of version 0: the frozen reference, when going on
  WarmupRows& rows;
  WarmupProgress progress;
};

// A learner that is ready for its first step.
struct StartedLearner {
  std::unique_ptr<Learner> learner;
  std::vector<WeightEntry> entries;  // of its arena
  // Text files that make a checkpoint of it a model directory.
  std::vector<std::pair<std::string, std::string>> checkpoint_files;
  std::function<std::string(const std::vector<int32_t>&)> decode;  // text of response tokens
  bool has_reference = false;
};

// What kind of model a trainer trains. Thread-safe.
class LearnerFactory {
 public:
  virtual ~LearnerFactory() = default;
  // What roles without a file system need of the job's model. Errors as of OpenModel.
  virtual absl::StatusOr<ModelBundle> Describe(const job::v1::JobSpec& spec,
                                               const DataRoots& roots) = 0;
  // May take minutes. CANCELLED when `progress` stopped it.
  virtual absl::StatusOr<StartedLearner> Start(const LearnerStart& start) = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_LEARNER_FACTORY_H_
