#ifndef FRESHET_TRAINER_LEARNER_SHARD_LAYOUT_H_
#define FRESHET_TRAINER_LEARNER_SHARD_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/parameter_layout.h"

namespace freshet {

// A parameter's elements [begin, begin + size) of a flat tensor.
struct ParameterRange {
  std::string name;
  int64_t begin = 0;
  int64_t size = 0;
  bool decays = false;  // takes part in weight decay
};

// How ranks divide a model's flat arena (ZeRO; Rajbhandari et al. 2020, arXiv:1910.02054): it is
// cut into blocks, which are the embedding, every layer, and the last norm with an untied head, and
// each rank holds a part of each block. A rank's state is its parts, one after the other.
// Immutable.
class ShardLayout {
 public:
  // Elements [begin, begin + size) of the arena. Parts have `part` elements, except that the last
  // ones may have fewer or none.
  struct Block {
    int64_t begin = 0;
    int64_t size = 0;
    int64_t part = 0;
  };
  // Elements [begin, begin + size) of the arena, at `place` of the rank's state.
  struct Part {
    int64_t begin = 0;
    int64_t size = 0;
    int64_t place = 0;
  };

  ShardLayout(const ParameterLayout& layout, int ranks);

  int ranks() const { return ranks_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  Part PartOf(int rank, size_t block) const;
  // In elements. With one rank, that of the arena.
  int64_t StateSize(int rank) const;

  // A parameter's elements in a rank's state.
  struct Piece {
    int rank = 0;
    ParameterRange range;
  };
  // `ranges`, which are those of the arena in ascending order, in the same order. With `fine` they
  // are also cut to work for one thread, at places that do not depend on the number of ranks.
  std::vector<Piece> Divide(const std::vector<ParameterRange>& ranges, bool fine) const;

 private:
  int ranks_;
  int64_t grid_;  // of parts and fine pieces, from the beginning of a block
  std::vector<Block> blocks_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_SHARD_LAYOUT_H_
