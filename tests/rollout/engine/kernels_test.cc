#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/dtype.h"
#include "model/kernels/row_ops.h"
#include "model/kernels/softmax.h"
#include "rollout/engine/kernels/kernel_choice.h"
#include "rollout/engine/kernels/matrix.h"
#include "tests/rollout/engine/random_numbers.h"

namespace freshet {
namespace {

TEST(ThreadPool, CallsEveryTaskOnceInEveryLoop) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<int> calls(100, 0);
    for (int loop = 0; loop < 200; ++loop) {
      pool.For(loop % 100, [&](int64_t i, int thread) {
        EXPECT_LT(thread, threads);
        ++calls[static_cast<size_t>(i)];
      });
    }
    for (int i = 0; i < 100; ++i) EXPECT_EQ(calls[static_cast<size_t>(i)], 2 * (99 - i));
  }
}

TEST(Bfloat16, RoundsToTheNearestEven) {
  const float ulp = std::ldexp(1.0F, -7);  // of 1
  EXPECT_EQ(WidenBf16(RoundToBf16(1 + 0.49F * ulp)), 1);
  EXPECT_EQ(WidenBf16(RoundToBf16(1 + 0.5F * ulp)), 1);
  EXPECT_EQ(WidenBf16(RoundToBf16(1 + 0.51F * ulp)), 1 + ulp);
  EXPECT_EQ(WidenBf16(RoundToBf16(1 + 1.5F * ulp)), 1 + 2 * ulp);
  EXPECT_EQ(WidenBf16(RoundToBf16(-3.0e38F)), WidenBf16(0xFF62));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(WidenBf16(RoundToBf16(infinity)), infinity);
  EXPECT_EQ(WidenBf16(RoundToBf16(std::numeric_limits<float>::max())), infinity);
  EXPECT_TRUE(std::isnan(WidenBf16(RoundToBf16(std::numeric_limits<float>::quiet_NaN()))));
}

struct Product {
  MatrixFormat format;
  CpuKernels kernels;
};
void PrintTo(const Product& product, std::ostream* out) {
  *out << MatrixFormatName(product.format) << ", " << CpuKernelsName(product.kernels);
}

class MultiplyTest : public testing::TestWithParam<Product> {
 protected:
  void SetUp() override {
    if (GetParam().kernels > BestCpuKernels()) GTEST_SKIP() << "this CPU does not have them";
  }
  // Rows of `columns` numbers as the format holds them.
  std::vector<float> Rounded(std::vector<float> numbers, int64_t columns) const {
    if (GetParam().format == MatrixFormat::kBfloat16) {
      for (float& number : numbers) number = WidenBf16(RoundToBf16(number));
    }
    if (GetParam().format != MatrixFormat::kInt8) return numbers;
    for (size_t row = 0; row < numbers.size(); row += static_cast<size_t>(columns)) {
      for (int64_t first = 0; first < columns; first += kInt8Block) {
        const auto begin = numbers.begin() + static_cast<int64_t>(row) + first;
        const auto end = begin + std::min(kInt8Block, columns - first);
        float largest = 0;
        std::for_each(begin, end, [&](float x) { largest = std::max(largest, std::abs(x)); });
        const float scale = largest / 127;
        std::for_each(begin, end, [&](float& x) { x = std::nearbyint(x / scale) * scale; });
      }
    }
    return numbers;
  }
  Activations Rows(const std::vector<float>& numbers, int64_t rows, int64_t columns) const {
    Activations x(GetParam().format, columns);
    x.Resize(rows);
    for (int64_t i = 0; i < rows; ++i) x.Store(i, numbers.data() + i * columns);
    return x;
  }
};

TEST_P(MultiplyTest, EqualsTheDefinition) {
  ThreadPool pool(2);
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {31, 7}, {32, 64}, {200, 33}, {40, 200}}) {
    const std::vector<float> weights = RandomNumbers(rows * columns, 1);
    const std::vector<float> bias = RandomNumbers(rows, 2);
    const PackedMatrix matrix(weights.data(), rows, columns, GetParam().format, pool);
    for (const int64_t count : {1, 2, 3, 7, 12, 13, 29, 40}) {
      SCOPED_TRACE(StrCat(count, " x [", rows, ", ", columns, "]"));
      const std::vector<float> numbers = RandomNumbers(count * columns, 3);
      const Activations x = Rows(numbers, count, columns);
      const std::vector<float> near_numbers = Rounded(numbers, columns);
      const std::vector<float> near_weights = Rounded(weights, columns);
      const int64_t stride = rows + 3;
      for (const bool add : {false, true}) {
        std::vector<float> out(static_cast<size_t>(count * stride), 5.0F);
        Multiply(x, count, matrix, {out.data(), stride, add ? bias.data() : nullptr, add},
                 GetParam().kernels, pool);
        for (int64_t i = 0; i < count; ++i) {
          for (int64_t n = 0; n < rows; ++n) {
            double sum = add ? 5.0 + bias[static_cast<size_t>(n)] : 0.0;
            for (int64_t k = 0; k < columns; ++k) {
              sum += static_cast<double>(near_numbers[static_cast<size_t>(i * columns + k)]) *
                     near_weights[static_cast<size_t>(n * columns + k)];
            }
            ASSERT_NEAR(out[static_cast<size_t>(i * stride + n)], sum, 2e-5) << i << ", " << n;
          }
          for (int64_t n = rows; n < stride; ++n) {
            ASSERT_EQ(out[static_cast<size_t>(i * stride + n)], 5.0F) << "beyond the row";
          }
        }
      }
    }
  }
}

TEST_P(MultiplyTest, ARowIsTheSameInAnyBatchAndOnAnyThreads) {
  constexpr int64_t kRows = 300;
  constexpr int64_t kColumns = 96;
  ThreadPool one(1);
  ThreadPool three(3);
  const std::vector<float> weights = RandomNumbers(kRows * kColumns, 1);
  const PackedMatrix matrix(weights.data(), kRows, kColumns, GetParam().format, one);
  const std::vector<float> row = RandomNumbers(kColumns, 4);
  std::vector<float> alone(kRows);
  Multiply(Rows(row, 1, kColumns), 1, matrix, {alone.data(), kRows}, GetParam().kernels, one);
  for (const int64_t count : {1, 2, 3, 5, 12, 17, 40}) {
    std::vector<float> numbers = RandomNumbers(count * kColumns, 5);
    std::copy(row.begin(), row.end(), numbers.end() - kColumns);
    std::vector<float> out(static_cast<size_t>(count * kRows));
    Multiply(Rows(numbers, count, kColumns), count, matrix, {out.data(), kRows}, GetParam().kernels,
             three);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.end() - kRows)) << count << " rows";
  }
}

TEST(PackedMatrix, IsTheSameFromBf16AndFromFp32InUsedMemory) {
  ThreadPool pool(2);
  for (const auto& shape : {std::pair<int64_t, int64_t>{1, 1}, {33, 7}, {70, 130}}) {
    const int64_t rows = shape.first;
    const int64_t columns = shape.second;
    const std::vector<float> exact = RandomNumbers(rows * columns, 1);
    std::vector<uint16_t> bits;
    std::vector<float> rounded;
    for (const float number : exact) {
      bits.push_back(RoundToBf16(number));
      rounded.push_back(WidenBf16(bits.back()));
    }
    for (const MatrixFormat format :
         {MatrixFormat::kFloat32, MatrixFormat::kBfloat16, MatrixFormat::kInt8}) {
      SCOPED_TRACE(StrCat(MatrixFormatName(format), " [", rows, ", ", columns, "]"));
      PackedMatrix packed(RandomNumbers(rows * columns, 2).data(), rows, columns, format, pool);
      packed.Repack(bits.data(), pool);
      const auto expect_same = [&](const std::vector<float>& weights) {
        const PackedMatrix expected(weights.data(), rows, columns, format, pool);
        const int64_t size = expected.panels() * expected.panel_bytes();
        ASSERT_EQ(packed.panels() * packed.panel_bytes(), size);
        EXPECT_TRUE(std::equal(packed.panel(0), packed.panel(0) + size, expected.panel(0)));
      };
      expect_same(rounded);
      if (format == MatrixFormat::kBfloat16) expect_same(exact);
    }
  }
}

TEST_P(MultiplyTest, HasTheResultsThatTheChoiceReliesOn) {
  const CpuKernels same = SameResults(GetParam().format, GetParam().kernels);
  constexpr int64_t kRows = 70;
  constexpr int64_t kColumns = 200;
  ThreadPool pool(1);
  const std::vector<float> weights = RandomNumbers(kRows * kColumns, 1);
  const PackedMatrix matrix(weights.data(), kRows, kColumns, GetParam().format, pool);
  const Activations x = Rows(RandomNumbers(20 * kColumns, 2), 20, kColumns);
  std::vector<float> expected(20 * kRows);
  std::vector<float> actual(20 * kRows);
  Multiply(x, 20, matrix, {expected.data(), kRows}, same, pool);
  Multiply(x, 20, matrix, {actual.data(), kRows}, GetParam().kernels, pool);
  EXPECT_EQ(actual, expected);
}

INSTANTIATE_TEST_SUITE_P(Kernels, MultiplyTest,
                         testing::Values(Product{MatrixFormat::kFloat32, CpuKernels::kPortable},
                                         Product{MatrixFormat::kFloat32, CpuKernels::kAvx2},
                                         Product{MatrixFormat::kFloat32, CpuKernels::kAvx512},
                                         Product{MatrixFormat::kBfloat16, CpuKernels::kPortable},
                                         Product{MatrixFormat::kBfloat16, CpuKernels::kAvx2},
                                         Product{MatrixFormat::kBfloat16, CpuKernels::kAvx512},
                                         Product{MatrixFormat::kBfloat16, CpuKernels::kAvx512Bf16},
                                         Product{MatrixFormat::kBfloat16, CpuKernels::kAmx},
                                         Product{MatrixFormat::kInt8, CpuKernels::kPortable},
                                         Product{MatrixFormat::kInt8, CpuKernels::kAvx2},
                                         Product{MatrixFormat::kInt8, CpuKernels::kAvx512},
                                         Product{MatrixFormat::kInt8, CpuKernels::kAmx}),
                         [](const auto& tested) {
                           return StrCat(MatrixFormatName(tested.param.format), "_",
                                         CpuKernelsName(tested.param.kernels));
                         });

TEST(RowOps, FollowTheirDefinitions) {
  for (const int64_t size : {2, 15, 16, 50}) {
    const std::vector<float> x = RandomNumbers(2 * size, 1);
    const std::vector<float> weight = RandomNumbers(size, 2);
    std::vector<float> out(static_cast<size_t>(size));
    RmsNormRow(x.data(), weight.data(), size, 1e-5, out.data());
    double squares = 0;
    for (int64_t i = 0; i < size; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double rms = std::sqrt(squares / static_cast<double>(size) + 1e-5);
    for (int64_t i = 0; i < size; ++i) EXPECT_NEAR(out[i], x[i] / rms * weight[i], 1e-6);

    SwiGluRow(x.data(), size, out.data());
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_NEAR(out[i], x[i] / (1 + std::exp(-x[i])) * x[size + i], 1e-6);
    }

    std::vector<float> head = x;
    const std::vector<float> sine = RandomNumbers(size, 3);
    RopeHead(x.data(), weight.data(), sine.data(), size, /*back=*/false, head.data());
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_NEAR(head[i], x[i] * weight[i] - x[size + i] * sine[i], 1e-6);
      EXPECT_NEAR(head[size + i], x[size + i] * weight[i] + x[i] * sine[i], 1e-6);
    }
    std::vector<float> in_place = x;
    RopeHead(in_place.data(), weight.data(), sine.data(), size, /*back=*/false, in_place.data());
    EXPECT_EQ(in_place, head);
  }
  const std::vector<float> gates = {-200, 0, 200, 1, 1, 1};
  std::vector<float> out(3);
  SwiGluRow(gates.data(), 3, out.data());
  EXPECT_THAT(out, testing::ElementsAre(testing::FloatNear(0, 1e-6), 0, 200));
}

TEST(Softmax, FollowsItsDefinition) {
  for (const int64_t size : {1, 16, 255, 256, 1000}) {
    std::vector<float> logits = RandomNumbers(size, 1);
    for (float& logit : logits) logit *= 20;
    const float max = *std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(MaxOf(logits.data(), size), max);
    SoftmaxWeights softmax;
    ComputeSoftmax(logits.data(), size, max, 0.7, softmax);
    double total = 0;
    for (int64_t i = 0; i < size; ++i) {
      const double weight = std::exp((static_cast<double>(logits[i]) - max) * 0.7);
      total += weight;
      EXPECT_NEAR(softmax.weights[i], weight, 1e-6);
    }
    EXPECT_NEAR(softmax.total, total, 1e-5);
    EXPECT_NEAR(LogSumExp(logits.data(), size, 0.7), std::log(total) + max * 0.7, 1e-5);
    EXPECT_NEAR(LogSoftmaxAt(logits.data(), size, 0.7, 0),
                (logits[0] - max) * 0.7 - std::log(total), 1e-5);
  }
}

}  // namespace
}  // namespace freshet
