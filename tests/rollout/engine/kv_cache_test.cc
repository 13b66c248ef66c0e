#include "rollout/engine/kv_cache.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr KvCacheShape kShape = {2, 3, 4};

// A key or value of one token, [num_kv_heads][head_dim], with distinct numbers.
std::vector<float> Rows(float base) {
  std::vector<float> rows;
  for (int64_t i = 0; i < kShape.num_kv_heads * kShape.head_dim; ++i) {
    rows.push_back(base + static_cast<float>(i));
  }
  return rows;
}
void WriteToken(KvCache& cache, int64_t layer, int32_t block, int64_t slot, float base) {
  cache.Write(layer, block, slot, Rows(base).data(), Rows(base + 0.5F).data());
}
void ExpectToken(const KvCache& cache, int64_t layer, int32_t block, int64_t slot, float base) {
  for (int64_t head = 0; head < kShape.num_kv_heads; ++head) {
    for (int64_t d = 0; d < kShape.head_dim; ++d) {
      const float expected = base + static_cast<float>(head * kShape.head_dim + d);
      EXPECT_EQ(cache.Keys<float>(layer, block, head)[d * kKvBlockTokens + slot], expected);
      EXPECT_EQ(cache.Values<float>(layer, block, head)[slot * kShape.head_dim + d],
                expected + 0.5F);
    }
  }
}
float Base(int64_t layer, int32_t block, int64_t slot) {
  return static_cast<float>(layer * 100000 + block * 10000 + slot * 100);
}

TEST(KvCache, HandsOutEveryBlockOnce) {
  KvCache cache(kShape, 5);
  EXPECT_EQ(cache.num_free(), 5);
  std::set<int32_t> blocks;
  for (int i = 0; i < 5; ++i) blocks.insert(cache.Allocate());
  EXPECT_EQ(blocks, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(cache.num_free(), 0);
}

TEST(KvCache, TakesRetainedBlocksLastAndTheOldestFirst) {
  KvCache cache(kShape, 5);
  for (int i = 0; i < 5; ++i) cache.Allocate();
  for (const int32_t block : {3, 1, 0}) cache.SetRetained(block, true);
  for (const int32_t block : {4, 3, 1, 0, 2}) cache.Release(block);
  cache.AddReference(1);  // wanted again
  cache.Release(1);
  std::vector<int32_t> order;
  for (int i = 0; i < 5; ++i) order.push_back(cache.Allocate());
  EXPECT_EQ(order, (std::vector<int32_t>{2, 4, 3, 0, 1}));
  cache.Release(3);
  EXPECT_EQ(cache.Allocate(), 3) << "not retained any more";

  cache.SetRetained(0, true);
  cache.Release(0);
  cache.Release(4);
  cache.SetRetained(0, false);
  EXPECT_EQ(cache.Allocate(), 0);
}

TEST(KvCache, RunningOutIsABrokenInvariant) {
  KvCache cache(kShape, 1);
  cache.Allocate();
  EXPECT_DEATH(cache.Allocate(), "broken invariant");
}

TEST(KvCache, ABlockComesBackWithItsLastReference) {
  KvCache cache(kShape, 2);
  const int32_t block = cache.Allocate();
  cache.AddReference(block);
  cache.AddReference(block);
  cache.Release(block);
  cache.Release(block);
  EXPECT_EQ(cache.num_free(), 1);
  cache.Release(block);
  EXPECT_EQ(cache.num_free(), 2);
  EXPECT_EQ(cache.Allocate(), block);
}

TEST(KvCache, ReleasingAFreeBlockIsABrokenInvariant) {
  KvCache cache(kShape, 2);
  const int32_t block = cache.Allocate();
  cache.Release(block);
  EXPECT_DEATH(cache.Release(block), "broken invariant");
}

TEST(KvCache, StoresEveryTokenOfEveryLayerAndHeadApart) {
  KvCache cache(kShape, 3);
  for (int32_t block = 0; block < 3; ++block) {
    for (int64_t layer = 0; layer < kShape.num_layers; ++layer) {
      for (int64_t slot = 0; slot < kKvBlockTokens; ++slot) {
        WriteToken(cache, layer, block, slot, Base(layer, block, slot));
      }
    }
  }
  for (int32_t block = 0; block < 3; ++block) {
    for (int64_t layer = 0; layer < kShape.num_layers; ++layer) {
      for (int64_t slot = 0; slot < kKvBlockTokens; ++slot) {
        ExpectToken(cache, layer, block, slot, Base(layer, block, slot));
      }
    }
  }
}

TEST(KvCache, CopiesOnlyTheFirstTokensOfAllLayers) {
  for (const int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{7}, kKvBlockTokens}) {
    KvCache cache(kShape, 2);
    for (int64_t layer = 0; layer < kShape.num_layers; ++layer) {
      for (int64_t slot = 0; slot < kKvBlockTokens; ++slot) {
        WriteToken(cache, layer, 0, slot, Base(layer, 0, slot));
        WriteToken(cache, layer, 1, slot, Base(layer, 1, slot));
      }
    }
    cache.CopyPrefix(0, 1, tokens);
    for (int64_t layer = 0; layer < kShape.num_layers; ++layer) {
      for (int64_t slot = 0; slot < kKvBlockTokens; ++slot) {
        ExpectToken(cache, layer, 0, slot, Base(layer, 0, slot));
        ExpectToken(cache, layer, 1, slot, Base(layer, slot < tokens ? 0 : 1, slot));
      }
    }
  }
}

}  // namespace
}  // namespace freshet
