#ifndef FRESHET_TRAINER_SERVICE_LEARNER_FACTORY_H_
#define FRESHET_TRAINER_SERVICE_LEARNER_FACTORY_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "base/unique_fd.h"
#include "datastore/trajectory_store.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "model/model_setup.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/learner/learner.h"
#include "trainer/learner/sft_warmup.h"
#include "trainer/ranks/joined_ranks.h"
#include "weights/manifest.h"

namespace freshet {

// How a job's further ranks reach the store with its samples.
struct RankStore {
  std::string job;  // its id in the datastore; "": the ranks get tokens from rank 0
  std::vector<std::string> arguments;  // with which child processes find the datastore
};

// Source of a job's weights.
struct LearnerStart {
  const job::v1::JobSpec& spec;
  const DataRoots& roots;  // roots of the files that the spec names
  // The checkpoint to resume from. Null: the job's model, followed by its warm-up.
  const FoundCheckpoint* checkpoint = nullptr;
  std::string first_checkpoint;  // version 0, the frozen reference, when resuming
  WarmupRows& rows;
  WarmupProgress progress;
  RankStore store = {};
};

// A learner ready for its first step.
struct StartedLearner {
  std::shared_ptr<Learner> learner;
  std::vector<WeightEntry> entries;  // of its arena
  // Text files that make its checkpoints loadable model directories.
  std::vector<std::pair<std::string, std::string>> checkpoint_files;
  std::function<std::string(const std::vector<int32_t>&)> decode;  // tokens to text
  bool has_reference = false;
};

// Creates the learners of a trainer process. Thread-safe.
class LearnerFactory {
 public:
  virtual ~LearnerFactory() = default;
  // The parts of the job's model that roles without file access need. Errors as for OpenModel.
  virtual absl::StatusOr<ModelBundle> Describe(const job::v1::JobSpec& spec,
                                               const DataRoots& roots) = 0;
  // May take minutes. CANCELLED if `progress` stopped it.
  virtual absl::StatusOr<StartedLearner> Start(const LearnerStart& start) = 0;

  // Learners started later train with the ranks in `joined`, if trainer.ranks is above 1.
  // UNIMPLEMENTED: the factory's learners have no ranks.
  virtual absl::Status UseRanks(std::shared_ptr<JoinedRanks> /*joined*/) {
    return absl::UnimplementedError("this trainer has no ranks");
  }
  // Takes part in a group of ranks, led by the process behind `socket`, until that is closed. The
  // rank reads its samples from the job's store.
  virtual absl::Status RunRank(UniqueFd /*socket*/, const StoreOpener& /*open_store*/) {
    return absl::UnimplementedError("this trainer has no ranks");
  }
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_LEARNER_FACTORY_H_
