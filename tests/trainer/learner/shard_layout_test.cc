#include "trainer/learner/shard_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/tiny_model.h"

namespace freshet {
namespace {

ParameterLayout Layout() {
  ModelConfig config = TinyModel();
  config.vocab_size = 700;  // an embedding of more than 5 cells of the grid
  return MakeParameterLayout(config);
}

// One for each entry, which is finer than the optimizer's.
std::vector<ParameterRange> Ranges(const ParameterLayout& layout) {
  std::vector<ParameterRange> ranges;
  for (const ParameterEntry& entry : layout.entries) {
    ranges.push_back({entry.name, entry.offset, entry.size, false});
  }
  return ranges;
}

TEST(ShardLayout, ARankAloneHasTheArena) {
  const ParameterLayout layout = Layout();
  const ShardLayout alone(layout, 1);
  EXPECT_EQ(alone.StateSize(0), layout.num_elements);
  for (size_t b = 0; b < alone.blocks().size(); ++b) {
    EXPECT_EQ(alone.PartOf(0, b).begin, alone.PartOf(0, b).place);
  }
  const auto pieces = alone.Divide(Ranges(layout), /*fine=*/false);
  ASSERT_EQ(pieces.size(), layout.entries.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].range.begin, layout.entries[i].offset);
  }
}

TEST(ShardLayout, PartsAreTheArenaOnce) {
  const ParameterLayout layout = Layout();
  for (const int ranks : {1, 2, 3, 5, 64}) {
    const ShardLayout divided(layout, ranks);
    int64_t end = 0;
    int64_t states = 0;
    for (size_t b = 0; b < divided.blocks().size(); ++b) {
      for (int rank = 0; rank < ranks; ++rank) {
        const ShardLayout::Part part = divided.PartOf(rank, b);
        EXPECT_EQ(part.begin, end) << "rank " << rank << " of " << ranks << ", block " << b;
        EXPECT_LE(part.size, divided.blocks()[b].part);
        end += part.size;
      }
    }
    for (int rank = 0; rank < ranks; ++rank) states += divided.StateSize(rank);
    EXPECT_EQ(end, layout.num_elements);
    EXPECT_EQ(states, layout.num_elements);
  }
  EXPECT_EQ(ShardLayout(layout, 64).StateSize(63), 0) << "more ranks than there are cells";
}

TEST(ShardLayout, PiecesAreInTheirRanksStates) {
  const ParameterLayout layout = Layout();
  const ShardLayout divided(layout, 3);
  std::vector<int64_t> ends(3, 0);
  int64_t sum = 0;
  for (const ShardLayout::Piece& piece : divided.Divide(Ranges(layout), /*fine=*/true)) {
    int64_t& end = ends[static_cast<size_t>(piece.rank)];
    EXPECT_GE(piece.range.begin, end);
    end = piece.range.begin + piece.range.size;
    EXPECT_LE(end, divided.StateSize(piece.rank));
    sum += piece.range.size;
  }
  EXPECT_EQ(sum, layout.num_parameters);
}

// So the sum of squares over pieces has the same bits.
TEST(ShardLayout, FinePiecesAreTheSameForAnyNumberOfRanks) {
  const ParameterLayout layout = Layout();
  const auto sizes = [&](int ranks) {
    std::vector<std::pair<std::string, int64_t>> pieces;
    for (const auto& piece : ShardLayout(layout, ranks).Divide(Ranges(layout), /*fine=*/true)) {
      pieces.emplace_back(piece.range.name, piece.range.size);
    }
    return pieces;
  };
  EXPECT_GT(sizes(1).size(), layout.entries.size());
  for (const int ranks : {2, 3, 7}) EXPECT_EQ(sizes(ranks), sizes(1));
}

}  // namespace
}  // namespace freshet
