#include "trainer/learner/shard_layout.h"

#include <algorithm>

namespace freshet {
namespace {

constexpr int64_t kSmallestGrid = int64_t{4} << 10;
constexpr int64_t kLargestGrid = int64_t{64} << 10;
constexpr int64_t kMostCells = int64_t{16} << 10;  // of an arena, unless the grid is the largest

// Fine enough to divide small models, and coarse enough for large ones.
int64_t GridOf(int64_t elements) {
  int64_t grid = kSmallestGrid;
  while (grid < kLargestGrid && elements / grid > kMostCells) grid *= 2;
  return grid;
}

}  // namespace

ShardLayout::ShardLayout(const ParameterLayout& layout, int ranks)
    : ranks_(ranks), grid_(GridOf(layout.num_elements)) {
  std::vector<int64_t> begins = {0};
  for (const ParameterLayout::Layer& layer : layout.layers) {
    begins.push_back(layer.input_norm.offset);
  }
  begins.push_back(layout.norm.offset);
  begins.push_back(layout.num_elements);
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const int64_t size = begins[i + 1] - begins[i];
    const int64_t cells = (size + grid_ - 1) / grid_;
    // A single rank's parts are the blocks, without gaps between them.
    const int64_t part = ranks == 1 ? size : (cells + ranks - 1) / ranks * grid_;
    blocks_.push_back({begins[i], size, part});
  }
}

ShardLayout::Part ShardLayout::PartOf(int rank, size_t block) const {
  Part part;
  for (size_t b = 0;; ++b) {
    const int64_t first = std::min(rank * blocks_[b].part, blocks_[b].size);
    part.begin = blocks_[b].begin + first;
    part.size = std::min(blocks_[b].part, blocks_[b].size - first);
    if (b == block) return part;
    part.place += part.size;
  }
}

int64_t ShardLayout::StateSize(int rank) const {
  const Part last = PartOf(rank, blocks_.size() - 1);
  return last.place + last.size;
}

std::vector<ShardLayout::Piece> ShardLayout::Divide(const std::vector<ParameterRange>& ranges,
                                                    bool fine) const {
  std::vector<Piece> pieces;
  std::vector<int64_t> places(static_cast<size_t>(ranks_), 0);  // of the block's parts
  size_t block = 0;
  for (const ParameterRange& range : ranges) {
    for (int64_t begin = range.begin, end = begin + range.size; begin < end;) {
      while (begin >= blocks_[block].begin + blocks_[block].size) {
        ++block;
        for (int rank = 0; rank < ranks_; ++rank) {
          places[static_cast<size_t>(rank)] = PartOf(rank, block).place;
        }
      }
      const int64_t offset = begin - blocks_[block].begin;
      const int64_t rank = offset / blocks_[block].part;
      const int64_t in_part = offset - rank * blocks_[block].part;
      const int64_t step = fine ? grid_ - offset % grid_ : blocks_[block].part - in_part;
      const int64_t size = std::min(step, end - begin);
      pieces.push_back(
          {static_cast<int>(rank),
           {range.name, places[static_cast<size_t>(rank)] + in_part, size, range.decays}});
      begin += size;
    }
  }
  return pieces;
}

}  // namespace freshet
