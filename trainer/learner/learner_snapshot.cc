#include "trainer/learner/learner_snapshot.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "trainer/learner/microbatches.h"
#include "trainer/learner/shard_layout.h"
#include "trainer/learner/state_files.h"

namespace freshet {
namespace {

// Elements of a column.
struct Range {
  StateColumn column = StateColumn::kMasters;
  int64_t begin = 0;
  int64_t size = 0;
};

int64_t Elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::span<const std::byte> BytesOfFloats(const at::Tensor& tensor, int64_t begin, int64_t size) {
  return std::as_bytes(
      std::span(tensor.const_data_ptr<float>() + begin, static_cast<size_t>(size)));
}

// The blocks at which a snapshot is read, in which every tensor lies.
class BlockReader {
 public:
  BlockReader(std::shared_ptr<StateBlocks> state, std::vector<ShardLayout::Block> blocks)
      : state_(std::move(state)), blocks_(std::move(blocks)) {}

  absl::StatusOr<std::span<const std::byte>> Read(const Range& range) {
    const size_t block = BlockOf(range.begin);
    if (block != block_) numbers_ = {};
    block_ = block;
    at::Tensor& numbers = numbers_.at(static_cast<size_t>(range.column));
    if (!numbers.defined()) {
      FRESHET_ASSIGN_OR_RETURN(numbers, state_->Read(range.column, block_));
    }
    return BytesOfFloats(numbers, range.begin - blocks_[block_].begin, range.size);
  }

 private:
  size_t BlockOf(int64_t element) const {
    const auto after = std::ranges::upper_bound(blocks_, element, {}, &ShardLayout::Block::begin);
    return static_cast<size_t>(after - blocks_.begin()) - 1;
  }

  const std::shared_ptr<StateBlocks> state_;
  const std::vector<ShardLayout::Block> blocks_;
  size_t block_ = 0;
  StateParts numbers_;  // of the block; undefined: not read
};

class WholeColumns final : public StateBlocks {
 public:
  WholeColumns(std::vector<ShardLayout::Block> blocks, LentParts columns)
      : blocks_(std::move(blocks)), columns_(std::move(columns)) {}

  absl::StatusOr<at::Tensor> Read(StateColumn column, size_t block) override try {
    const at::NoGradGuard no_grad;
    const ShardLayout::Block& range = blocks_.at(block);
    return columns_.Part(column).narrow(0, range.begin, range.size).to(at::kCPU);
  } catch (const std::exception& error) {  // of a GPU
    return TorchError(error);
  }
  void Copy() override { columns_.Copy(); }

 private:
  const std::vector<ShardLayout::Block> blocks_;
  LentParts columns_;
};

}  // namespace

std::shared_ptr<StateBlocks> WholeState(const ParameterLayout& layout, LentParts columns) {
  return std::make_shared<WholeColumns>(ShardLayout(layout, /*ranks=*/1).blocks(),
                                        std::move(columns));
}

std::shared_ptr<LearnerState> SnapshotOf(const SnapshotLayout& of,
                                         std::shared_ptr<StateBlocks> state) {
  auto snapshot = std::make_shared<LearnerState>();
  snapshot->optimizer_steps = of.optimizer_steps;
  snapshot->copy = [state] { state->Copy(); };
  const auto reader =
      std::make_shared<BlockReader>(std::move(state), ShardLayout(of.layout, /*ranks=*/1).blocks());
  const auto add = [&reader](std::vector<StateTensor>& to, std::string name, StateColumn column,
                             int64_t begin, const std::vector<int64_t>& shape) {
    StateTensor& tensor = to.emplace_back();
    tensor.name = std::move(name);
    tensor.shape = shape;
    const Range range = {column, begin, Elements(shape)};
    tensor.fetch = [reader, range] { return reader->Read(range); };
  };
  for (const ParameterEntry& entry : of.layout.entries) {
    add(snapshot->model, entry.name, StateColumn::kMasters, entry.offset, entry.shape);
  }
  for (const Parameter& parameter : of.parameters) {
    const std::string& name = parameter.range.name;
    const int64_t begin = parameter.range.begin;
    add(snapshot->optimizer, kExpAvgPrefix + name, StateColumn::kExpAvg, begin, parameter.shape);
    add(snapshot->optimizer, kExpAvgSqPrefix + name, StateColumn::kExpAvgSq, begin,
        parameter.shape);
  }
  return snapshot;
}

}  // namespace freshet
