#include "rollout/engine/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"

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

void Attend(PagedSequences& sequences, int64_t layer, int64_t window, const PagedQuery& query,
            int64_t heads, const float* q, float* out) {
  std::vector<float> scores(static_cast<size_t>(PagedScores(query)));
  PagedAttention(sequences.cache(), layer, window, query, heads, q, scores.data(), out);
}

struct Case {
  int64_t heads, kv_heads, dim;
};
void PrintTo(const Case& shape, std::ostream* out) {
  *out << shape.heads << " heads, " << shape.kv_heads << " of keys, " << shape.dim << " wide";
}
class PagedAttentionShapes : public testing::TestWithParam<Case> {};

TEST_P(PagedAttentionShapes, EqualsNaiveAttentionAtBlockEdges) {
  const auto [heads, kv_heads, dim] = GetParam();
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
               &out[s * static_cast<size_t>(heads * dim)]);
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
                         testing::Values(Case{4, 4, 8}, Case{8, 4, 8}, Case{4, 2, 16},
                                         Case{6, 1, 10}, Case{1, 1, 2}, Case{2, 2, 64}),
                         [](const auto& tested) {
                           const Case& c = tested.param;
                           return StrCat(c.heads, "x", c.kv_heads, "x", c.dim);
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

}  // namespace
}  // namespace freshet
