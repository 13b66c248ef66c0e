#include "rollout/engine/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "model/dtype.h"

namespace freshet {
namespace {

float Random(uint64_t a, uint64_t b, uint64_t c) {
  return static_cast<float>(2.0 * ToUniform(RandomBits(3, a, b, c)) - 1.0);
}

// Sequences with random keys and values in a cache with interleaved blocks.
class PagedSequences {
 public:
  PagedSequences(int64_t num_layers, int64_t kv_heads, int64_t dim, std::vector<int64_t> lengths)
      : kv_heads_(kv_heads),
        dim_(dim),
        lengths_(std::move(lengths)),
        cache_({num_layers, kv_heads, dim}, 64) {
    // Stale data of earlier sequences must not affect the result.
    const std::vector<float> rubbish(static_cast<size_t>(kv_heads * dim),
                                     std::numeric_limits<float>::quiet_NaN());
    for (int32_t block = 0; block < 64; ++block) {
      for (int64_t layer = 0; layer < num_layers; ++layer) {
        for (int64_t slot = 0; slot < kKvBlockTokens; ++slot) {
          cache_.Write(layer, block, slot, rubbish.data(), rubbish.data());
        }
      }
    }
    tables_.resize(lengths_.size());
    const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    for (int64_t t = 0; t < longest; ++t) {
      for (size_t s = 0; s < lengths_.size(); ++s) {
        if (t >= lengths_[s]) continue;
        if (t % kKvBlockTokens == 0) tables_[s].push_back(cache_.Allocate());
        for (int64_t layer = 0; layer < num_layers; ++layer) {
          cache_.Write(layer, tables_[s].back(), t % kKvBlockTokens, Row(0, layer, s, t).data(),
                       Row(1, layer, s, t).data());
        }
      }
    }
  }

  KvCache& cache() { return cache_; }
  PagedQuery Query(size_t s, int64_t num_keys) const { return {tables_[s].data(), num_keys}; }

  // Key (which = 0) or value (which = 1) of a token, [kv_heads][dim].
  std::vector<float> Row(uint64_t which, int64_t layer, size_t s, int64_t t) const {
    std::vector<float> row;
    for (int64_t i = 0; i < kv_heads_ * dim_; ++i) {
      row.push_back(Random(which * 2 + static_cast<uint64_t>(layer),
                           s * 1000 + static_cast<uint64_t>(t), static_cast<uint64_t>(i)));
    }
    return row;
  }

  // Reference: softmax attention of one query row in double.
  std::vector<double> Naive(int64_t layer, size_t s, int64_t num_keys, int64_t heads,
                            const float* q, int64_t first_key = 0) const {
    std::vector<double> out;
    const int64_t group = heads / kv_heads_;
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> weights;
      for (int64_t t = first_key; t < num_keys; ++t) {
        const std::vector<float> key = Row(0, layer, s, t);
        double score = 0;
        for (int64_t d = 0; d < dim_; ++d) {
          score +=
              static_cast<double>(q[h * dim_ + d]) * key[static_cast<size_t>(h / group * dim_ + d)];
        }
        weights.push_back(score / std::sqrt(static_cast<double>(dim_)));
      }
      const double max = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (double& weight : weights) total += weight = std::exp(weight - max);
      for (int64_t d = 0; d < dim_; ++d) {
        double sum = 0;
        for (int64_t t = first_key; t < num_keys; ++t) {
          sum += weights[static_cast<size_t>(t - first_key)] / total *
                 Row(1, layer, s, t)[static_cast<size_t>(h / group * dim_ + d)];
        }
        out.push_back(sum);
      }
    }
    return out;
  }

 private:
  int64_t kv_heads_, dim_;
  std::vector<int64_t> lengths_;
  KvCache cache_;
  std::vector<std::vector<int32_t>> tables_;
};

std::vector<float> RandomQueries(size_t rows, int64_t stride, float scale) {
  std::vector<float> q;
  for (size_t i = 0; i < rows * static_cast<size_t>(stride); ++i)
    q.push_back(scale * Random(9, i, 0));
  return q;
}

// All heads of queries whose rows are next to each other.
void Attend(const KvCache& cache, int64_t layer, int64_t window,
            const std::vector<PagedQuery>& queries, int64_t heads, const float* q, float* out,
            CpuKernels kernels = BestCpuKernels()) {
  const int64_t kv_heads = cache.shape().num_kv_heads;
  const int64_t width = heads * cache.shape().head_dim;
  for (const QueryRun& run : FindQueryRuns(queries, heads / kv_heads)) {
    std::vector<float> scratch(
        static_cast<size_t>(PagedScratch(queries, run, heads / kv_heads, cache.shape().head_dim)));
    const AttentionRows rows{q + run.first * width, width, out + run.first * width, width, heads};
    for (int64_t head = 0; head < kv_heads; ++head) {
      PagedAttention(cache, layer, window, queries, run, head, rows, kernels, scratch.data());
    }
  }
}

// One query by itself.
void Attend(PagedSequences& sequences, int64_t layer, int64_t window, const PagedQuery& query,
            int64_t heads, const float* q, float* out, CpuKernels kernels = BestCpuKernels()) {
  Attend(sequences.cache(), layer, window, {query}, heads, q, out, kernels);
}

// All that this CPU has.
std::vector<CpuKernels> KernelsToTest() {
  std::vector<CpuKernels> kernels = {CpuKernels::kPortable};
  for (const CpuKernels set : {CpuKernels::kAvx2, CpuKernels::kAvx512, CpuKernels::kAvx512Bf16}) {
    if (set <= BestCpuKernels()) kernels.push_back(set);
  }
  return kernels;
}

struct Case {
  int64_t heads, kv_heads, dim;
};
void PrintTo(const Case& shape, std::ostream* out) {
  *out << shape.heads << " heads, " << shape.kv_heads << " of keys, " << shape.dim << " wide";
}
class PagedAttentionShapes : public testing::TestWithParam<std::tuple<Case, CpuKernels>> {};

TEST_P(PagedAttentionShapes, EqualsNaiveAttentionAtBlockEdges) {
  const auto [heads, kv_heads, dim] = std::get<0>(GetParam());
  const std::vector<int64_t> lengths = {1, 15, 16, 17, 33, 100};
  PagedSequences sequences(2, kv_heads, dim, lengths);
  const int64_t stride = heads * dim + 3;
  for (const float scale : {1.0F, 30.0F}) {
    const std::vector<float> q = RandomQueries(lengths.size(), stride, scale);
    std::vector<PagedQuery> queries;
    for (size_t s = 0; s < lengths.size(); ++s) queries.push_back(sequences.Query(s, lengths[s]));
    for (int64_t layer = 0; layer < 2; ++layer) {
      std::vector<float> out(lengths.size() * static_cast<size_t>(heads * dim), 77.0F);
      for (size_t s = 0; s < queries.size(); ++s) {
        Attend(sequences, layer, 0, queries[s], heads, &q[s * static_cast<size_t>(stride)],
               &out[s * static_cast<size_t>(heads * dim)], std::get<1>(GetParam()));
      }
      for (size_t s = 0; s < lengths.size(); ++s) {
        const std::vector<double> expected = sequences.Naive(
            layer, s, lengths[s], heads, q.data() + static_cast<int64_t>(s) * stride);
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(out[s * expected.size() + i], expected[i], 1e-5F * scale)
              << "layer " << layer << ", " << lengths[s] << " keys, element " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, PagedAttentionShapes,
                         testing::Combine(testing::Values(Case{4, 4, 8}, Case{8, 4, 8},
                                                          Case{4, 2, 16}, Case{6, 1, 10},
                                                          Case{1, 1, 2}, Case{2, 2, 64}),
                                          testing::ValuesIn(KernelsToTest())),
                         [](const auto& tested) {
                           const Case& c = std::get<0>(tested.param);
                           return StrCat(c.heads, "x", c.kv_heads, "x", c.dim, "_",
                                         CpuKernelsName(std::get<1>(tested.param)));
                         });

TEST(PagedAttention, SeesNoKeyBeyondItsCount) {
  PagedSequences sequences(1, 2, 8, {33});
  const std::vector<float> q = RandomQueries(1, 32, 1.0F);
  for (const int64_t keys : {1, 5, 16, 20, 32}) {
    std::vector<float> out(32);
    Attend(sequences, 0, 0, sequences.Query(0, keys), 4, q.data(), out.data());
    const std::vector<double> expected = sequences.Naive(0, 0, keys, 4, q.data());
    for (size_t i = 0; i < 32; ++i) ASSERT_NEAR(out[i], expected[i], 1e-5) << keys;
  }
}

TEST(PagedAttention, SeesOnlyTheWindow) {
  PagedSequences sequences(1, 2, 8, {70});
  const std::vector<float> q = RandomQueries(1, 32, 1.0F);
  for (const int64_t window : {1, 15, 16, 17, 33, 69, 70, 100}) {
    for (const int64_t keys : {1, 16, 17, 40, 70}) {
      std::vector<float> out(32);
      Attend(sequences, 0, window, sequences.Query(0, keys), 4, q.data(), out.data());
      const std::vector<double> expected =
          sequences.Naive(0, 0, keys, 4, q.data(), std::max<int64_t>(0, keys - window));
      for (size_t i = 0; i < 32; ++i) {
        ASSERT_NEAR(out[i], expected[i], 1e-5) << keys << " keys, window " << window;
      }
    }
  }
}

TEST(FindQueryRuns, JoinsNeighboursThatShareTheirFirstBlocks) {
  const std::vector<int32_t> a = {1, 2, 3, 4};
  const std::vector<int32_t> b = {1, 2, 3, 9};
  const std::vector<int32_t> c = {1, 7, 8, 9};
  const std::vector<int32_t> d = {5, 6};
  const std::vector<PagedQuery> queries = {{a.data(), 64}, {b.data(), 50}, {b.data(), 51},
                                           {c.data(), 64}, {d.data(), 15}, {d.data(), 16}};
  const std::vector<QueryRun> runs = FindQueryRuns(queries, 2);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0].count, 3);
  EXPECT_EQ(runs[0].shared_blocks, 3);
  EXPECT_EQ(runs[1].count, 1) << "one block of three would be shared";
  EXPECT_EQ(runs[2].count, 1);
  EXPECT_EQ(runs[2].shared_blocks, 0);
  EXPECT_EQ(runs[3].first, 5);
  EXPECT_EQ(runs[3].shared_blocks, 1);
  EXPECT_EQ(FindQueryRuns(queries, 16).front().count, 2) << "at most 32 rows";
  EXPECT_EQ(FindQueryRuns(queries, 48).front().count, 1);
}

// Samples of one prompt, and a prompt's tokens.
TEST(PagedAttention, QueriesThatShareBlocksGetTheBitsThatTheyGetAlone) {
  for (const KvFormat format : {KvFormat::kFloat32, KvFormat::kBfloat16}) {
    for (const Case& shape : {Case{4, 2, 64}, Case{7, 1, 24}, Case{40, 1, 10}, Case{8, 2, 80}}) {
      const auto [heads, kv_heads, dim] = shape;
      KvCache cache({1, kv_heads, dim, format}, 64);
      uint64_t draws = 0;
      const auto random = [&](int64_t size) {
        std::vector<float> row;
        for (int64_t i = 0; i < size; ++i) row.push_back(Random(5, ++draws, 0));
        return row;
      };
      std::vector<int32_t> prompt;
      for (int32_t i = 0; i < 4; ++i) prompt.push_back(cache.Allocate());
      std::vector<std::vector<int32_t>> tables(9, prompt);
      for (std::vector<int32_t>& table : tables) {
        for (int32_t i = 0; i < 3; ++i) table.push_back(cache.Allocate());
      }
      for (int32_t block = 0; block < 64; ++block) {
        for (int64_t slot = 0; slot < kKvBlockTokens; ++slot) {
          cache.Write(0, block, slot, random(kv_heads * dim).data(), random(kv_heads * dim).data());
        }
      }
      std::vector<PagedQuery> queries;
      for (size_t i = 0; i < tables.size(); ++i) {
        queries.push_back({tables[i].data(), 66 + 5 * static_cast<int64_t>(i)});
      }
      for (int64_t t = 0; t < 20; ++t) queries.push_back({prompt.data(), 30 + t});
      const int64_t width = heads * dim;
      const std::vector<float> q = random(width * std::ssize(queries));
      for (const CpuKernels kernels : KernelsToTest()) {
        for (const int64_t window : {0, 20}) {
          std::vector<float> together(q.size());
          Attend(cache, 0, window, queries, heads, q.data(), together.data(), kernels);
          std::vector<float> alone(q.size());
          for (size_t i = 0; i < queries.size(); ++i) {
            const size_t row = i * static_cast<size_t>(width);
            Attend(cache, 0, window, {queries[i]}, heads, q.data() + row, alone.data() + row,
                   kernels);
          }
          EXPECT_EQ(together, alone)
              << heads << " heads, window " << window << ", " << CpuKernelsName(kernels);
        }
      }
    }
  }
}

TEST(PagedAttention, Bfloat16IsTheAttentionOfRoundedQueriesKeysAndValues) {
  for (const int64_t dim : {10, 16, 40}) {
    KvCache rounded({1, 1, dim, KvFormat::kBfloat16}, 3);
    KvCache exact({1, 1, dim, KvFormat::kFloat32}, 3);
    const std::vector<int32_t> table = {2, 0, 1};
    const std::vector<float> stale(static_cast<size_t>(dim),
                                   std::numeric_limits<float>::quiet_NaN());
    for (int64_t slot = 0; slot < kKvBlockTokens; ++slot) {
      rounded.Write(0, 1, slot, stale.data(), stale.data());
      exact.Write(0, 1, slot, stale.data(), stale.data());
    }
    for (int64_t t = 0; t < 39; ++t) {
      std::vector<float> key, value, near_key, near_value;
      for (uint64_t d = 0; d < static_cast<uint64_t>(dim); ++d) {
        key.push_back(Random(1, static_cast<uint64_t>(t), d));
        value.push_back(Random(2, static_cast<uint64_t>(t), d));
        near_key.push_back(WidenBf16(RoundToBf16(key.back())));
        near_value.push_back(WidenBf16(RoundToBf16(value.back())));
      }
      const int32_t block = table[static_cast<size_t>(t / kKvBlockTokens)];
      rounded.Write(0, block, t % kKvBlockTokens, key.data(), value.data());
      exact.Write(0, block, t % kKvBlockTokens, near_key.data(), near_value.data());
    }
    const std::vector<float> q = RandomQueries(1, 2 * dim, 1.0F);
    std::vector<float> near_q;
    for (const float number : q) near_q.push_back(WidenBf16(RoundToBf16(number)));
    for (const CpuKernels kernels : KernelsToTest()) {
      std::vector<float> out(q.size()), expected(q.size());
      Attend(rounded, 0, 0, {{table.data(), 39}}, 2, q.data(), out.data(), kernels);
      Attend(exact, 0, 0, {{table.data(), 39}}, 2, near_q.data(), expected.data(), kernels);
      // Instructions for bf16 sum scores in another order.
      const float tolerance = kernels >= CpuKernels::kAvx512Bf16 ? 1e-6F : 0;
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], tolerance)
            << CpuKernelsName(kernels) << ", dim " << dim << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace freshet
