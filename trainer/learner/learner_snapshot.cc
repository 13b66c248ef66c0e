#include "trainer/learner/learner_snapshot.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "base/status_macros.h"

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

// `fill` gives a tensor, which has name and shape, the bytes of its range.
std::shared_ptr<LearnerState> Describe(
    const SnapshotLayout& of, const std::function<void(const Range&, StateTensor&)>& fill) {
  auto snapshot = std::make_shared<LearnerState>();
  snapshot->optimizer_steps = of.optimizer_steps;
  const auto add = [&fill](std::vector<StateTensor>& to, std::string name, StateColumn column,
                           int64_t begin, const std::vector<int64_t>& shape) {
    StateTensor& tensor = to.emplace_back();
    tensor.name = std::move(name);
    tensor.shape = shape;
    fill({column, begin, Elements(shape)}, tensor);
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

}  // namespace

std::shared_ptr<LearnerState> SnapshotOf(const SnapshotLayout& of, const StateParts& columns,
                                         bool copies) {
  return Describe(of, [&](const Range& range, StateTensor& tensor) {
    tensor.lent =
        BytesOfFloats(columns.at(static_cast<size_t>(range.column)), range.begin, range.size);
    if (copies) tensor.copy.assign(tensor.lent.begin(), tensor.lent.end());
  });
}

std::shared_ptr<LearnerState> SnapshotOf(const SnapshotLayout& of,
                                         std::shared_ptr<StateBlocks> state) {
  const auto reader =
      std::make_shared<BlockReader>(std::move(state), ShardLayout(of.layout, /*ranks=*/1).blocks());
  return Describe(of, [&](const Range& range, StateTensor& tensor) {
    tensor.fetch = [reader, range] { return reader->Read(range); };
  });
}

}  // namespace freshet
