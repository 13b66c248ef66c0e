#include "rollout/engine/kernels/kernel_choice.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr CpuKernels kAll[] = {CpuKernels::kPortable, CpuKernels::kAvx2, CpuKernels::kAvx512,
                               CpuKernels::kAvx512Bf16, CpuKernels::kAmx};

TEST(KernelChoice, FollowsCorrectnessSpeedAndDeterminism) {
  using enum CpuKernels;
  struct Case {
    const char* name;
    MatrixFormat format;
    std::vector<KernelCandidate> candidates;
    bool deterministic;
    CpuKernels expected;
    const char* reason;
  };
  const MatrixFormat bf16 = MatrixFormat::kBfloat16;
  const std::vector<Case> cases = {
      {"the only one", bf16, {{kAvx2, true, {}}}, false, kAvx2, "largest instruction set"},
      {"none is correct", bf16, {{kAvx2, false, {}}}, false, kPortable, "no other kernels"},
      {"the largest is the fastest",
       bf16,
       {{kAvx2, true, {50}}, {kAvx512, true, {90}}},
       false,
       kAvx512,
       "none is faster"},
      {"the largest is wrong",
       bf16,
       {{kAvx512, true, {90}}, {kAmx, false, {}}},
       false,
       kAvx512,
       "largest instruction set"},
      {"with the same results any gain counts",
       bf16,
       {{kAvx2, true, {50}}, {kAvx512, true, {49}}},
       true,
       kAvx2,
       "1.02 times as fast as avx512"},
      {"other results need a larger gain",
       bf16,
       {{kAvx512, true, {59}}, {kAvx512Bf16, true, {50}}},
       false,
       kAvx512Bf16,
       "none is faster"},
      {"other results at a large gain",
       bf16,
       {{kAvx512, true, {80}}, {kAvx512Bf16, true, {50}}},
       false,
       kAvx512,
       "1.60 times as fast as avx512_bf16"},
      {"other results are no choice if deterministic",
       bf16,
       {{kAvx512, true, {80}}, {kAvx512Bf16, true, {50}}},
       true,
       kAvx512Bf16,
       "does not choose between roundings"},
      {"int8 has one result",
       MatrixFormat::kInt8,
       {{kAvx512, true, {80}}, {kAmx, true, {50}}},
       true,
       kAvx512,
       "1.60 times as fast as amx"},
      {"the geometric mean counts",
       bf16,
       {{kAvx2, true, {10, 100}}, {kAvx512, true, {40, 30}}},
       false,
       kAvx512,
       "none is faster"},
  };
  for (const Case& c : cases) {
    const KernelChoice choice = ChooseKernels(c.format, c.candidates, c.deterministic);
    EXPECT_EQ(choice.kernels, c.expected) << c.name;
    EXPECT_THAT(choice.reason, testing::HasSubstr(c.reason)) << c.name;
  }
}

TEST(KernelChoice, SetsAreThoseOfTheCpuAndTheFormat) {
  using enum CpuKernels;
  EXPECT_THAT(KernelSets(MatrixFormat::kBfloat16, kPortable), testing::ElementsAre(kPortable));
  EXPECT_THAT(KernelSets(MatrixFormat::kBfloat16, kAvx512), testing::ElementsAre(kAvx2, kAvx512));
  EXPECT_THAT(KernelSets(MatrixFormat::kBfloat16, kAmx),
              testing::ElementsAre(kAvx2, kAvx512, kAvx512Bf16, kAmx));
  EXPECT_THAT(KernelSets(MatrixFormat::kFloat32, kAmx), testing::ElementsAre(kAvx2, kAvx512));
  EXPECT_THAT(KernelSets(MatrixFormat::kInt8, kAmx), testing::ElementsAre(kAvx2, kAvx512, kAmx));
}

TEST(KernelChoice, ExaminesAndMeasuresWhatThisCpuHas) {
  std::vector<CpuKernels> sets;
  for (const CpuKernels set : kAll) {
    if (set <= BestCpuKernels()) sets.push_back(set);
  }
  for (const MatrixFormat format :
       {MatrixFormat::kFloat32, MatrixFormat::kBfloat16, MatrixFormat::kInt8}) {
    for (const KernelCandidate& candidate :
         ExamineKernels(format, sets, {1, 3}, absl::ZeroDuration())) {
      EXPECT_TRUE(candidate.correct) << CpuKernelsName(candidate.kernels);
      EXPECT_THAT(candidate.gflops, testing::ElementsAre(testing::Gt(0), testing::Gt(0)));
    }
    for (const bool deterministic : {false, true}) {
      const KernelChoice& chosen = KernelsOfThisCpu(format, deterministic);
      EXPECT_LE(chosen.kernels, BestCpuKernels());
      EXPECT_NE(chosen.reason, "");
      EXPECT_EQ(&chosen, &KernelsOfThisCpu(format, deterministic));
    }
  }
}

}  // namespace
}  // namespace freshet
