#include <cstring>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "collective/nccl_backend.h"
#include "tests/collective/fake_nccl.h"
#include "tests/trainer/learner/policy_learner_fixture.h"
#include "tests/trainer/ranks/thread_ranks.h"
#include "trainer/ranks/data_parallel_learner.h"

namespace freshet {
namespace {

absl::StatusOr<std::vector<float>> FloatsOf(const std::vector<StateTensor>& tensors,
                                            const std::string& prefix = "") {
  std::vector<float> floats;
  for (const StateTensor& tensor : tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    FRESHET_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, tensor.Read());
    const size_t begin = floats.size();
    floats.resize(begin + bytes.size() / sizeof(float));
    std::memcpy(floats.data() + begin, bytes.data(), bytes.size());
  }
  return floats;
}

// What is saved, and what is published.
struct LearnerResult {
  std::vector<float> masters, first_moments, second_moments;
  std::string published;
  bool operator==(const LearnerResult&) const = default;
};

absl::StatusOr<LearnerResult> TryResultOf(const Learner& learner) {
  LearnerResult result;
  FRESHET_ASSIGN_OR_RETURN(auto snapshot, learner.Snapshot());
  FRESHET_ASSIGN_OR_RETURN(result.masters, FloatsOf(snapshot->model));
  FRESHET_ASSIGN_OR_RETURN(result.first_moments, FloatsOf(snapshot->optimizer, "exp_avg."));
  FRESHET_ASSIGN_OR_RETURN(result.second_moments, FloatsOf(snapshot->optimizer, "exp_avg_sq."));
  snapshot = nullptr;
  FRESHET_ASSIGN_OR_RETURN(const std::string_view arena, learner.Arena());
  result.published = arena;
  return result;
}
LearnerResult ResultOf(const Learner& learner) {
  auto result = TryResultOf(learner);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : LearnerResult();
}

class ShardedLearnerTest : public PolicyLearnerFixture {
 protected:
  ShardedLearnerTest() { Widen(); }
  // To blocks of more than one part.
  void Widen() {
    options_.model.vocab_size = 300;
    options_.model.intermediate_size = 300;
    options_.model.moe_intermediate_size = 100;
    options_.model.initializer_range = 0.15;
  }

  struct Ranked {
    std::shared_ptr<PolicyLearner> policy;
    ThreadRanks* starter = nullptr;
    std::shared_ptr<Learner> learner;
  };
  Ranked MakeRanked(
      int ranks, Sharding sharding, bool has_reference = false,
      ThreadRanks::BackendOfRank backend = [](int) { return MakeGlooBackend(); }) const {
    PolicyLearnerOptions options = options_;
    options.sharding = sharding;
    Ranked ranked;
    ranked.policy = MakeLearner(options);
    if (has_reference) ranked.policy->FreezeReference();
    auto starter = std::make_unique<ThreadRanks>(options, std::move(backend));
    ranked.starter = starter.get();
    ranked.learner =
        std::make_shared<DataParallelLearner>(ranked.policy, std::move(starter), ranks);
    return ranked;
  }
  // The groups of every step, sampled by the initial weights.
  std::vector<TrainGroup> Groups(int64_t step) const {
    const auto initial = MakeLearner();
    return OnPolicyGroups(*initial, 5, static_cast<uint64_t>(step));
  }
  std::vector<TrainStepResult> TrainSteps(Learner& learner, int64_t first, int64_t last) const {
    std::vector<TrainStepResult> results;
    for (int64_t step = first; step <= last; ++step) {
      absl::StatusOr<TrainStepResult> result = learner.TrainStep(step, Groups(step));
      EXPECT_TRUE(result.ok()) << result.status();
      if (result.ok()) results.push_back(*std::move(result));
    }
    return results;
  }
  static void Load(PolicyLearner& learner, const std::string& path, int64_t steps) {
    ASSERT_TRUE(learner.LoadCheckpoint(path, steps).ok());
  }
};

constexpr Sharding kDivided[] = {Sharding::kOptimizer, Sharding::kFull};

struct Variant {
  const char* name;
  bool bf16 = false, tied = true, mixture = false, reference = false, small_microbatches = false;
  int64_t minibatches = 1;
  int threads = 1;
};

// The tensors count as being on the GPU, where NCCL takes them without staging.
class NcclRanksTest : public ShardedLearnerTest {
 protected:
  NcclRanksTest() { FakeNcclMemoryIsOnGpu(true); }
  ~NcclRanksTest() override { FakeNcclMemoryIsOnGpu(false); }
};

TEST_F(NcclRanksTest, NcclGivesTheSameBitsAsGloo) {
  const auto nccl = [](int rank) {
    return *OpenNcclBackend({FRESHET_FAKE_NCCL, FRESHET_FAKE_NCCL}, /*device=*/rank);
  };
  options_.bf16 = true;
  options_.loss.kl.coef = 0.01;
  for (const Sharding sharding : {Sharding::kNone, Sharding::kOptimizer, Sharding::kFull}) {
    SCOPED_TRACE(static_cast<int>(sharding));
    const Ranked gloo = MakeRanked(2, sharding, /*has_reference=*/true);
    const Ranked ranked = MakeRanked(2, sharding, /*has_reference=*/true, nccl);
    EXPECT_EQ(TrainSteps(*ranked.learner, 1, 2).size(), 2U);
    EXPECT_EQ(TrainSteps(*gloo.learner, 1, 2).size(), 2U);
    EXPECT_TRUE(ResultOf(*ranked.learner) == ResultOf(*gloo.learner));
  }
}

class ShardedVariantTest : public ShardedLearnerTest,
                           public testing::WithParamInterface<Variant> {};

TEST_P(ShardedVariantTest, TwoRanksGiveTheSameBitsWhateverTheyDivide) {
  const Variant& variant = GetParam();
  if (variant.mixture) {
    options_.model = TinyMixedModel();
    Widen();
  }
  options_.bf16 = variant.bf16;
  options_.model.tie_word_embeddings = variant.tied;
  if (variant.reference) options_.loss.kl.coef = 0.01;
  if (variant.small_microbatches) options_.max_tokens_per_microbatch = 25;
  options_.minibatches_per_step = variant.minibatches;
  options_.threads = variant.threads;
  ASSERT_TRUE(options_.model.Validate().ok()) << options_.model.Validate();
  constexpr int64_t kSteps = 3;
  const Ranked plain = MakeRanked(2, Sharding::kNone, variant.reference);
  const auto expected = TrainSteps(*plain.learner, 1, kSteps);
  for (const Sharding sharding : kDivided) {
    SCOPED_TRACE(sharding == Sharding::kFull ? "full" : "optimizer");
    const Ranked ranked = MakeRanked(2, sharding, variant.reference);
    const auto results = TrainSteps(*ranked.learner, 1, kSteps);
    ASSERT_EQ(results.size(), expected.size());
    EXPECT_TRUE(ranked.policy->divided());
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].loss, expected[i].loss);
      EXPECT_EQ(results[i].grad_norm, expected[i].grad_norm);
      EXPECT_EQ(results[i].kl_ref, expected[i].kl_ref);
      EXPECT_EQ(results[i].entropy, expected[i].entropy);
      EXPECT_EQ(results[i].model_flops, expected[i].model_flops);
    }
    EXPECT_TRUE(ResultOf(*ranked.learner) == ResultOf(*plain.learner));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, ShardedVariantTest,
    testing::Values(
        Variant{.name = "Fp32"}, Variant{.name = "Bf16", .bf16 = true},
        Variant{.name = "UntiedInSeveralMicrobatches", .tied = false, .small_microbatches = true},
        Variant{.name = "TiedInSeveralMicrobatches", .small_microbatches = true},
        Variant{.name = "Bf16WithReferenceOnThreads",
                .bf16 = true,
                .tied = false,
                .reference = true,
                .small_microbatches = true,
                .threads = 2},
        Variant{.name = "Minibatches", .reference = true, .minibatches = 2},
        Variant{.name = "Mixture", .bf16 = true, .tied = false, .mixture = true}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST_F(ShardedLearnerTest, AnyNumberOfRanksGivesTheSameGradient) {
  const auto alone = MakeLearner();
  TrainSteps(*alone, 1, 1);
  const std::vector<float> expected = ResultOf(*alone).first_moments;
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (const Sharding sharding : kDivided) {
    for (const int ranks : {3, 4}) {
      const Ranked ranked = MakeRanked(ranks, sharding);
      TrainSteps(*ranked.learner, 1, 1);
      EXPECT_LT(MaxDifference(ResultOf(*ranked.learner).first_moments, expected), 1e-5 * largest)
          << ranks << " ranks";
    }
  }
}

TEST_F(ShardedLearnerTest, ACheckpointContinuesWithAnyNumberOfRanksAndSharding) {
  const Ranked writer = MakeRanked(3, Sharding::kFull);
  TrainSteps(*writer.learner, 1, 2);
  const std::string path = Save(*writer.learner, 2);
  TrainSteps(*writer.learner, 3, 3);
  const LearnerResult expected = ResultOf(*writer.learner);
  for (const Sharding sharding : {Sharding::kNone, Sharding::kOptimizer, Sharding::kFull}) {
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(StrCat(ranks, " ranks"));
      const Ranked reader = MakeRanked(ranks, sharding);
      Load(*reader.policy, path, /*steps=*/2);
      TrainSteps(*reader.learner, 3, 3);
      const LearnerResult result = ResultOf(*reader.learner);
      EXPECT_LT(MaxDifference(result.masters, expected.masters), 1e-4);
      if (ranks != 3 || sharding != Sharding::kFull) continue;
      EXPECT_TRUE(result == expected);
    }
  }
}

// Whatever operation a rank dies in, the learner says that its state is lost, or is undisturbed,
// and a new one goes on from the checkpoint.
TEST_F(ShardedLearnerTest, ALostPartOfTheStateIsSaidAndACheckpointGoesOn) {
  for (const Sharding sharding : kDivided) {
    const Ranked undisturbed = MakeRanked(2, sharding);
    TrainSteps(*undisturbed.learner, 1, 1);
    const std::string path = Save(*undisturbed.learner, 1);
    TrainSteps(*undisturbed.learner, 2, 2);
    const LearnerResult expected = ResultOf(*undisturbed.learner);
    const auto groups = Groups(2);
    int losses = 0;
    bool died = true;
    for (int operation = 0; died; ++operation) {
      SCOPED_TRACE(StrCat("died at operation ", operation));
      Ranked ranked = MakeRanked(2, sharding);
      Load(*ranked.policy, path, /*steps=*/1);
      ranked.starter->Kill(operation);
      absl::StatusOr<LearnerResult> result;
      const auto step = ranked.learner->TrainStep(2, groups);
      result = step.ok() ? TryResultOf(*ranked.learner) : step.status();
      died = !result.ok() || ranked.starter->started() > 1;
      if (!result.ok()) {
        ++losses;
        EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
        EXPECT_TRUE(ranked.learner->StateLost());
        EXPECT_TRUE(absl::IsUnavailable(ranked.learner->TrainStep(2, groups).status()));
        EXPECT_TRUE(absl::IsUnavailable(ranked.learner->Arena().status()));
        EXPECT_TRUE(absl::IsUnavailable(ranked.learner->Snapshot().status()));
        ranked = MakeRanked(2, sharding);
        Load(*ranked.policy, path, /*steps=*/1);
        TrainSteps(*ranked.learner, 2, 2);
        result = TryResultOf(*ranked.learner);
      }
      EXPECT_FALSE(ranked.learner->StateLost());
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(*result == expected);
    }
    EXPECT_GT(losses, 5);
  }
}

// Its blocks are gathered when they are read.
TEST_F(ShardedLearnerTest, ASnapshotIsThatOfItsStepThoughItIsReadDuringTheNextOne) {
  for (const Sharding sharding : kDivided) {
    const Ranked plain = MakeRanked(2, sharding);
    const Ranked ranked = MakeRanked(2, sharding);
    for (int64_t step = 1; step <= 3; ++step) {
      TrainSteps(*plain.learner, step, step);
      const std::vector<float> expected = ResultOf(*plain.learner).masters;
      TrainSteps(*ranked.learner, step, step);
      const auto snapshot = *ranked.learner->Snapshot();
      snapshot->copy();
      TrainSteps(*plain.learner, step + 3, step + 3);
      TrainSteps(*ranked.learner, step + 3, step + 3);
      const auto masters = FloatsOf(snapshot->model);
      ASSERT_TRUE(masters.ok()) << masters.status();
      EXPECT_EQ(*masters, expected) << "step " << step;
    }
  }
}

TEST_F(ShardedLearnerTest, WhereMemoryIsShortTheNextUpdateWaitsUntilASnapshotIsRead) {
  for (const Sharding sharding : kDivided) {
    options_.available_memory = [] { return 0; };
    const Ranked ranked = MakeRanked(2, sharding);
    TrainSteps(*ranked.learner, 1, 1);
    const std::vector<float> before = ResultOf(*ranked.learner).masters;
    auto snapshot = *ranked.learner->Snapshot();
    Notification trained;
    std::jthread trainer([&] {
      UseOneTorchThread();
      TrainSteps(*ranked.learner, 2, 2);
      trained.Notify();
    });
    EXPECT_FALSE(trained.WaitFor(absl::Milliseconds(50)));
    const auto masters = FloatsOf(snapshot->model);
    ASSERT_TRUE(masters.ok()) << masters.status();
    EXPECT_EQ(*masters, before);
    snapshot = nullptr;
    trainer.join();
    EXPECT_NE(ResultOf(*ranked.learner).masters, before);
  }
}

TEST_F(ShardedLearnerTest, AFailedReadOfASnapshotLosesTheState) {
  const Ranked ranked = MakeRanked(2, Sharding::kFull);
  TrainSteps(*ranked.learner, 1, 1);
  ranked.starter->AbortSnapshots();
  const auto snapshot = ranked.learner->Snapshot();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_FALSE((*snapshot)->model[0].Read().ok());
  EXPECT_TRUE(ranked.learner->StateLost());
}

TEST_F(ShardedLearnerTest, ASnapshotThatOutlivesItsRanksCannotBeRead) {
  Ranked ranked = MakeRanked(2, Sharding::kOptimizer);
  TrainSteps(*ranked.learner, 1, 1);
  const auto snapshot = *ranked.learner->Snapshot();
  EXPECT_TRUE(snapshot->model[0].Read().ok());
  ranked.learner = nullptr;
  EXPECT_EQ(snapshot->optimizer[0].Read().status(), absl::AbortedError("the group of ranks ends"));
}

// Before the ranks have their parts, the state is in its files only.
TEST_F(ShardedLearnerTest, WhatIsLoadedCanBePublishedAndSavedBeforeItIsDivided) {
  options_.bf16 = true;
  options_.loss.kl.coef = 0.01;
  const Ranked writer = MakeRanked(2, Sharding::kNone, /*has_reference=*/true);
  TrainSteps(*writer.learner, 1, 1);
  const std::string path = Save(*writer.learner, 1, Dtype::kBf16);
  const LearnerResult saved = ResultOf(*writer.learner);
  TrainSteps(*writer.learner, 2, 2);
  for (const Sharding sharding : kDivided) {
    const Ranked reader = MakeRanked(2, sharding);
    Load(*reader.policy, path, /*steps=*/1);
    reader.policy->FreezeReference();
    EXPECT_TRUE(ResultOf(*reader.learner) == saved);
    EXPECT_EQ(reader.starter->started(), 0);
    TrainSteps(*reader.learner, 2, 2);
    EXPECT_TRUE(reader.policy->divided());
    const Ranked whole = MakeRanked(2, Sharding::kNone);
    Load(*whole.policy, path, /*steps=*/1);
    whole.policy->FreezeReference();
    TrainSteps(*whole.learner, 2, 2);
    EXPECT_TRUE(ResultOf(*reader.learner) == ResultOf(*whole.learner));
  }
}

TEST_F(ShardedLearnerTest, AnErrorOfOneRankIsThatOfAllAndTheyGoOn) {
  for (const Sharding sharding : kDivided) {
    const Ranked ranked = MakeRanked(2, sharding);
    TrainSteps(*ranked.learner, 1, 1);
    const LearnerResult before = ResultOf(*ranked.learner);
    auto groups = Groups(2);
    Response response = *groups[3].samples[0].sample.response;
    response.behavior_logprobs[0] = std::numeric_limits<float>::quiet_NaN();
    ReplaceResponse(groups[3].samples[0], response);
    const auto result = ranked.learner->TrainStep(2, groups);
    EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
    EXPECT_TRUE(ResultOf(*ranked.learner) == before);
    TrainSteps(*ranked.learner, 2, 2);
    EXPECT_EQ(ranked.starter->started(), 1);
  }
}

TEST_F(ShardedLearnerTest, ANonFiniteGradientOfAnotherRankIsNamed) {
  for (const Sharding sharding : kDivided) {
    const Ranked ranked = MakeRanked(2, sharding);
    ranked.starter->overflows_at = 1;  // a layer
    const absl::Status status = ranked.learner->TrainStep(1, Groups(1)).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(Message(status), testing::ContainsRegex("gradient of layers.*is not finite"));
    const auto untrained = MakeLearner();
    EXPECT_TRUE(ResultOf(*ranked.learner) == ResultOf(*untrained));
    TrainSteps(*ranked.learner, 1, 1);
    EXPECT_EQ(ranked.starter->started(), 1);
  }
}

TEST_F(ShardedLearnerTest, RanksThatComeLaterGetTheirParts) {
  options_.loss.kl.coef = 0.01;
  const Ranked plain = MakeRanked(3, Sharding::kNone, /*has_reference=*/true);
  const auto expected = TrainSteps(*plain.learner, 1, 3);
  for (const Sharding sharding : kDivided) {
    const Ranked ranked = MakeRanked(3, sharding, /*has_reference=*/true);
    ranked.starter->available = 1;
    auto results = TrainSteps(*ranked.learner, 1, 2);
    EXPECT_EQ(results.at(1).ranks, 2);
    ranked.starter->available = 2;
    results.push_back(TrainSteps(*ranked.learner, 3, 3).at(0));
    EXPECT_EQ(results.at(2).ranks, 3);
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_NEAR(results[i].kl_ref, expected[i].kl_ref,
                  1e-4 * std::abs(expected[i].kl_ref) + 1e-9);
    }
    EXPECT_LT(MaxDifference(ResultOf(*ranked.learner).masters, ResultOf(*plain.learner).masters),
              1e-3);
  }
}

TEST_F(ShardedLearnerTest, RankZeroDoesNotTrainAlone) {
  const Ranked ranked = MakeRanked(2, Sharding::kFull);
  ranked.starter->available = 0;
  const absl::Status status = ranked.learner->TrainStep(1, Groups(1)).status();
  EXPECT_EQ(status, absl::UnavailableError("no rank has joined"));
  EXPECT_FALSE(ranked.learner->StateLost()) << "it still has all of it";
  EXPECT_EQ(ranked.learner->LostRanks(), std::vector<std::string>(2, "no rank has joined"));
  ranked.starter->available = 1;
  TrainSteps(*ranked.learner, 1, 1);
}

}  // namespace
}  // namespace freshet
