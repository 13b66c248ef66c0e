#ifndef FRESHET_TRAINER_LEARNER_STATE_FILES_H_
#define FRESHET_TRAINER_LEARNER_STATE_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/model_files.h"
#include "model/parameter_layout.h"
#include "model/safetensors.h"
#include "trainer/learner/shard_layout.h"
#include "trainer/learner/state_blocks.h"

namespace freshet {

// Of the names of moments in optimizer.safetensors.
inline constexpr char kExpAvgPrefix[] = "exp_avg.";
inline constexpr char kExpAvgSqPrefix[] = "exp_avg_sq.";

// A model's parameters in the arena, and their shapes; see AdamW.
struct Parameter {
  ParameterRange range;
  std::vector<int64_t> shape;
};

// A learner's state in open files. Read is thread-safe.
class StateFiles final : public StateBlocks {
 public:
  // A model's weights, with moments of 0. INVALID_ARGUMENT: a tensor is missing or misshapen.
  static absl::StatusOr<std::shared_ptr<StateFiles>> OfModel(
      std::shared_ptr<const ModelFiles> files, const ParameterLayout& layout);
  // The fp32 masters of a checkpoint directory, whatever the dtype of its model.safetensors, with
  // moments of 0. DATA_LOSS: there are none. Otherwise as OfModel, and errors of ModelFiles::Open.
  static absl::StatusOr<std::shared_ptr<StateFiles>> OfMasters(const std::string& checkpoint_dir,
                                                               const ParameterLayout& layout);
  // Takes moments and update count of a checkpoint directory. DATA_LOSS: moments are missing or
  // misshapen.
  absl::Status AddMoments(const std::string& checkpoint_dir, int64_t optimizer_steps,
                          std::vector<Parameter> parameters);

  absl::StatusOr<at::Tensor> Read(StateColumn column, size_t block) override;
  bool has_moments() const { return moments_ != nullptr; }
  int64_t optimizer_steps() const { return optimizer_steps_; }

 private:
  StateFiles(std::shared_ptr<const ModelFiles> files, ParameterLayout layout)
      : layout_(std::move(layout)),
        blocks_(ShardLayout(layout_, /*ranks=*/1).blocks()),
        files_(std::move(files)) {}

  const ParameterLayout layout_;
  const std::vector<ShardLayout::Block> blocks_;
  const std::shared_ptr<const ModelFiles> files_;
  std::shared_ptr<const SafetensorsFile> masters_;  // null: they are the weights of `files_`
  std::shared_ptr<const SafetensorsFile> moments_;  // null: moments of 0
  std::vector<Parameter> parameters_;               // of the moments
  int64_t optimizer_steps_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_STATE_FILES_H_
