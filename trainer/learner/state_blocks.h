#ifndef FRESHET_TRAINER_LEARNER_STATE_BLOCKS_H_
#define FRESHET_TRAINER_LEARNER_STATE_BLOCKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/torch.h"
#include "trainer/learner/shard_layout.h"

namespace freshet {

// The numbers that a learner's state has for each element of the arena.
enum class StateColumn : int32_t { kMasters, kExpAvg, kExpAvgSq };
inline constexpr std::array kStateColumns = {StateColumn::kMasters, StateColumn::kExpAvg,
                                             StateColumn::kExpAvgSq};

// A learner's whole state, which is read in blocks of ShardLayout. Not thread-safe.
class StateBlocks {
 public:
  virtual ~StateBlocks() = default;
  // A block's numbers, fp32 in host memory.
  virtual absl::StatusOr<at::Tensor> Read(StateColumn column, size_t block) = 0;
  // Copies what the learner lends, so that it may change its state. Call it before the first Read.
  virtual void Copy() {}
};

// Reads a column into `arena`, of the arena's size, and converts it to its type.
absl::Status ReadColumn(StateBlocks& state, StateColumn column,
                        const std::vector<ShardLayout::Block>& blocks, const at::Tensor& arena);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_STATE_BLOCKS_H_
