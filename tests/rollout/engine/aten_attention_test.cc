#include "rollout/engine/aten_attention.h"

#include <cmath>
#include <cstdlib>
#include <deque>
#include <vector>

#include "base/random.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "model/device.h"
#include "rollout/engine/kv_cache.h"
#include "rollout/engine/paged_attention.h"

namespace freshet {
namespace {

constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kDim = 8;
constexpr int64_t kLayers = 2;
constexpr int64_t kBlocks = 24;

std::vector<float> RandomNumbers(int64_t count, uint64_t seed) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(
        static_cast<float>(2.0 * ToUniform(RandomBits(seed, static_cast<uint64_t>(i))) - 1.0));
  }
  return numbers;
}

// Sequences in both caches, and a batch of queries of them.
class AtenAttentionTest : public testing::TestWithParam<KvFormat> {
 protected:
  // A sequence of `tokens`, the last `queries` of which are in the batch.
  void AddSequence(int64_t tokens, int64_t queries) {
    std::vector<int32_t>& table = tables_.emplace_back();
    for (int64_t t = 0; t < tokens; ++t) {
      if (t % kKvBlockTokens == 0) {
        table.push_back(ours_.Allocate());
        ASSERT_EQ(aten_.Allocate(), table.back());
        FillWithNan(table.back());
      }
      for (int64_t layer = 0; layer < kLayers; ++layer) Write(layer, table.back(), t);
    }
    for (int64_t t = tokens - queries; t < tokens; ++t) batch_.Add(0, t, table);
  }
  // Slots without a token must not affect the result.
  void FillWithNan(int32_t block) {
    const at::Tensor slots =
        at::arange(block * kKvBlockTokens, (block + 1) * kKvBlockTokens, at::kLong).to(device_);
    const at::Tensor nan = at::full({kKvBlockTokens, kKvHeads, kDim}, NAN).to(device_);
    for (int64_t layer = 0; layer < kLayers; ++layer) aten_.Write(layer, slots, nan, nan);
  }
  void Write(int64_t layer, int32_t block, int64_t t) {
    const std::vector<float> k = RandomNumbers(kKvHeads * kDim, ++draws_);
    const std::vector<float> v = RandomNumbers(kKvHeads * kDim, ++draws_);
    ours_.Write(layer, block, t % kKvBlockTokens, k.data(), v.data());
    const auto row = [&](const std::vector<float>& numbers) {
      return at::tensor(numbers).view({1, kKvHeads, kDim}).to(device_);
    };
    const at::Tensor slot =
        at::tensor(std::vector<int64_t>{block * kKvBlockTokens + t % kKvBlockTokens}).to(device_);
    aten_.Write(layer, slot, row(k), row(v));
  }
  std::vector<float> Ours(int64_t layer, int64_t window, const std::vector<float>& q) const {
    std::vector<float> out(q.size());
    for (const QueryRun& run : FindQueryRuns(batch_.queries, kHeads / kKvHeads)) {
      std::vector<float> scratch(
          static_cast<size_t>(PagedScratch(batch_.queries, run, kHeads / kKvHeads, kDim)));
      const int64_t first = run.first * kHeads * kDim;
      for (int64_t head = 0; head < kKvHeads; ++head) {
        PagedAttention(ours_, layer, window, batch_.queries, run, head,
                       {q.data() + first, kHeads * kDim, out.data() + first, kHeads * kDim, kHeads},
                       CpuKernels::kPortable, scratch.data());
      }
    }
    return out;
  }

  static at::Device Device() {
    const char* name = std::getenv("FRESHET_TEST_DEVICE");
    return OpenDevice(name == nullptr ? "cpu" : name).value();
  }
  const at::Device device_ = Device();
  KvCache ours_{{kLayers, kKvHeads, kDim, GetParam()}, kBlocks};
  AtenKvCache aten_{{kLayers, kKvHeads, kDim, GetParam()}, kBlocks, device_};
  std::deque<std::vector<int32_t>> tables_;
  EngineBatch batch_;
  uint64_t draws_ = 0;
};

TEST_P(AtenAttentionTest, EqualsTheKernels) {
  AddSequence(5, 5);   // a prompt
  AddSequence(40, 1);  // decodes
  AddSequence(17, 1);
  AddSequence(33, 20);  // the rest of a prompt
  AddSequence(16, 1);
  const std::vector<float> q = RandomNumbers(batch_.size() * kHeads * kDim, 1000);
  const at::ScalarType type = GetParam() == KvFormat::kBfloat16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor q_NAD =
      at::tensor(q).view({batch_.size(), kHeads, kDim}).to(type).to(at::kFloat).to(device_);
  AtenAttention attention(batch_, aten_);
  EXPECT_EQ(attention.slots().size(0), batch_.size());
  // A GPU's bf16 kernel rounds the weights of the values, too.
  const double bound = !device_.is_cpu() && type == at::kBFloat16 ? 1e-2 : 1e-5;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (const int64_t window : {0, 1, 7}) {
      SCOPED_TRACE(StrCat("layer ", layer, " window ", window));
      const std::vector<float> ours = Ours(layer, window, q);
      const at::Tensor aten = attention.Attend(layer, window, q_NAD).to(at::kCPU);
      EXPECT_LT((aten.flatten() - at::tensor(ours)).abs().max().item<double>(), bound);
    }
  }
}

TEST_P(AtenAttentionTest, CopiesTheFirstTokensOfABlock) {
  AddSequence(16, 1);
  const int32_t from = tables_[0][0];
  const int32_t to = aten_.Allocate();
  const auto slots = [&](int32_t block) {
    return at::arange(block * kKvBlockTokens, block * kKvBlockTokens + 3, at::kLong).to(device_);
  };
  aten_.CopyPrefix(from, to, 3);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(aten_.Keys(layer, slots(to)).equal(aten_.Keys(layer, slots(from))));
    EXPECT_TRUE(aten_.Values(layer, slots(to)).equal(aten_.Values(layer, slots(from))));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AtenAttentionTest,
                         testing::Values(KvFormat::kFloat32, KvFormat::kBfloat16),
                         [](const auto& format) {
                           return format.param == KvFormat::kFloat32 ? "fp32" : "bf16";
                         });

}  // namespace
}  // namespace freshet
