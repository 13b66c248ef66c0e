#include "trainer/ranks/data_parallel_learner.h"

#include <cstring>
#include <utility>

#include "tests/trainer/learner/policy_learner_fixture.h"
#include "tests/trainer/ranks/batch_store.h"
#include "tests/trainer/ranks/thread_ranks.h"

namespace freshet {
namespace {

// A group that fails after its error has been asked for `good` times.
class FailingCommunicator final : public Communicator {
 public:
  explicit FailingCommunicator(int good) : good_(good) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  absl::Status Broadcast(std::span<std::byte>, int, absl::Duration) override { return Failed(); }
  absl::Status AllReduce(std::span<float>, absl::Duration) override { return Failed(); }
  absl::Status ReduceScatter(std::span<const float>, std::span<float>, absl::Duration) override {
    return Failed();
  }
  absl::Status AllGather(std::span<const std::byte>, std::span<std::byte>,
                         absl::Duration) override {
    return Failed();
  }
  absl::Status Gather(std::span<const std::byte>, std::span<std::byte>, absl::Duration) override {
    return Failed();
  }
  absl::Status Barrier(absl::Duration) override { return Failed(); }
  void Abort(const std::string&) override {}
  absl::Status error() override { return asked_++ < good_ ? absl::OkStatus() : Failed(); }
  int asked() const { return asked_; }

 private:
  static absl::Status Failed() { return absl::UnavailableError("rank 1 is gone"); }
  const int good_;
  int asked_ = 0;
};

class DataParallelLearnerTest : public PolicyLearnerFixture {
 protected:
  // The gradient of the first step, scaled: the first moments after it.
  static std::vector<float> Gradient(const PolicyLearner& learner) {
    std::vector<float> gradient;
    const auto snapshot = *learner.Snapshot();
    for (const StateTensor& tensor : snapshot->optimizer) {
      if (tensor.name.starts_with("exp_avg_sq.")) continue;
      const size_t begin = gradient.size();
      gradient.resize(begin + tensor.Read()->size() / sizeof(float));
      std::memcpy(gradient.data() + begin, tensor.Read()->data(), tensor.Read()->size());
    }
    return gradient;
  }
  // A learner with ranks that are threads.
  struct Ranked {
    std::shared_ptr<PolicyLearner> policy;
    ThreadRanks* starter = nullptr;
    std::shared_ptr<Learner> learner;
  };
  // With one rank `learner` is `policy`.
  Ranked MakeRanked(int ranks, bool has_reference = false) const {
    Ranked ranked;
    ranked.policy = MakeLearner();
    if (has_reference) ranked.policy->FreezeReference();
    if (ranks == 1) {
      ranked.learner = ranked.policy;
      return ranked;
    }
    auto starter = std::make_unique<ThreadRanks>(options_);
    ranked.starter = starter.get();
    ranked.learner =
        std::make_shared<DataParallelLearner>(ranked.policy, std::move(starter), ranks);
    return ranked;
  }
  // Trains `steps` steps of the same batches.
  std::vector<TrainStepResult> TrainWith(Learner& learner, PolicyLearner& policy, int64_t steps) {
    std::vector<TrainStepResult> results;
    for (int64_t step = 1; step <= steps; ++step) {
      const auto groups = OnPolicyGroups(policy, 5, static_cast<uint64_t>(step));
      absl::StatusOr<TrainStepResult> result = learner.TrainStep(step, groups);
      EXPECT_TRUE(result.ok()) << result.status();
      if (result.ok()) results.push_back(*std::move(result));
    }
    return results;
  }
};

TEST_F(DataParallelLearnerTest, ACheckpointOfAnyNumberOfRanksContinuesWithAnyOther) {
  for (const int from : {1, 2, 3, 4}) {
    const Ranked writer = MakeRanked(from);
    TrainWith(*writer.learner, *writer.policy, 2);
    const std::string path = Save(*writer.policy, from);
    const auto groups = OnPolicyGroups(*writer.policy, 5, 3);
    ASSERT_TRUE(writer.learner->TrainStep(3, groups).ok());
    const std::vector<float> expected = Gradient(*writer.policy);
    float largest = 0;
    for (const float value : expected) largest = std::max(largest, std::abs(value));
    for (const int to : {1, 2, 3, 4}) {
      SCOPED_TRACE(StrCat(from, " ranks, then ", to));
      const Ranked reader = MakeRanked(to);
      ASSERT_TRUE(reader.policy->LoadCheckpoint(path, /*optimizer_steps=*/2).ok());
      ASSERT_TRUE(reader.learner->TrainStep(3, groups).ok());
      EXPECT_LT(MaxDifference(Gradient(*reader.policy), expected), 1e-5 * largest);
      if (to == from) {
        EXPECT_EQ(Weights(*reader.policy), Weights(*writer.policy));
      }
    }
  }
}

TEST_F(DataParallelLearnerTest, AnyNumberOfRanksGivesTheSameGradientAndStep) {
  options_.loss.kl.coef = 0.01;
  const auto alone = MakeLearner();
  alone->FreezeReference();
  const TrainStepResult expected = TrainWith(*alone, *alone, 1).at(0);
  const std::vector<float> gradient = Gradient(*alone);
  float largest = 0;
  for (const float value : gradient) largest = std::max(largest, std::abs(value));
  for (const int ranks : {2, 4}) {
    const Ranked ranked = MakeRanked(ranks, /*has_reference=*/true);
    const TrainStepResult result = TrainWith(*ranked.learner, *ranked.policy, 1).at(0);
    EXPECT_LT(MaxDifference(Gradient(*ranked.policy), gradient), 1e-5 * largest)
        << ranks << " ranks";
    EXPECT_NEAR(result.loss, expected.loss, 1e-6);
    EXPECT_NEAR(result.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm);
    EXPECT_NEAR(result.entropy, expected.entropy, 1e-5);
    EXPECT_NEAR(result.kl_ref, expected.kl_ref, 1e-6);
    EXPECT_EQ(result.tokens_trained, expected.tokens_trained);
    EXPECT_DOUBLE_EQ(result.model_flops, expected.model_flops);
    EXPECT_EQ(result.advantages, expected.advantages);
  }
}

TEST_F(DataParallelLearnerTest, RanksThatReadTheirRowsFromTheStoreTakeTheSameSteps) {
  options_.minibatches_per_step = 2;
  const Ranked sent = MakeRanked(3);
  const Ranked stored = MakeRanked(3);
  const auto batch = std::make_shared<StoredBatch>();
  stored.starter->open_store = OpensBatch(batch);
  for (int64_t step = 1; step <= 2; ++step) {
    const auto groups = OnPolicyGroups(*sent.policy, 5, static_cast<uint64_t>(step));
    batch->Set(groups);
    ASSERT_TRUE(sent.learner->TrainStep(step, groups).ok());
    const auto result = stored.learner->TrainStep(step, groups);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->ranks, 3);
  }
  EXPECT_EQ(Weights(*stored.policy), Weights(*sent.policy));
  EXPECT_GT(batch->read().size(), 0U);
}

TEST_F(DataParallelLearnerTest, StepsWithSeveralMinibatchesGiveTheSameCurve) {
  options_.minibatches_per_step = 2;
  const auto alone = MakeLearner();
  const std::vector<TrainStepResult> expected = TrainWith(*alone, *alone, 4);
  const Ranked ranked = MakeRanked(2);
  const std::vector<TrainStepResult> results = TrainWith(*ranked.learner, *ranked.policy, 4);
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_NEAR(results[i].loss, expected[i].loss, 1e-4);
    EXPECT_NEAR(results[i].grad_norm, expected[i].grad_norm, 1e-3 * expected[i].grad_norm);
  }
  EXPECT_EQ(ranked.starter->started(), 1);
}

TEST_F(DataParallelLearnerTest, MoreRanksThanTreesWork) {
  const Ranked ranked = MakeRanked(3);
  const auto result = ranked.learner->TrainStep(1, OnPolicyGroups(*ranked.policy, 1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->grad_norm, 0);
}

// Whatever operation a rank dies in, each step is trained exactly once.
TEST_F(DataParallelLearnerTest, ADeadRankIsReplacedAndTheStepIsTrainedOnce) {
  options_.minibatches_per_step = 2;
  constexpr int64_t kSteps = 2;
  const Ranked undisturbed = MakeRanked(2);
  TrainWith(*undisturbed.learner, *undisturbed.policy, kSteps);
  int deaths = 0;
  for (int operation = 0; operation == deaths; ++operation) {
    const Ranked ranked = MakeRanked(2);
    ranked.starter->Kill(operation);
    EXPECT_EQ(TrainWith(*ranked.learner, *ranked.policy, kSteps).size(), 2U);
    EXPECT_EQ(Weights(*ranked.policy), Weights(*undisturbed.policy))
        << "died at operation " << operation;
    EXPECT_LE(ranked.starter->started(), 2);
    deaths += ranked.starter->started() - 1;
  }
  // Four broadcasts; in each step two all-gathers of proximal log-probs, and for each of two
  // minibatches an all-gather and an all-reduce.
  EXPECT_EQ(deaths, 4 + kSteps * 6);
}

TEST_F(DataParallelLearnerTest, RanksThatDieAgainLeaveTheRestOfTheStepToRankZero) {
  options_.minibatches_per_step = 2;
  const auto alone = MakeLearner();
  TrainWith(*alone, *alone, 1);
  const Ranked ranked = MakeRanked(2);
  ranked.starter->Kill(/*operation=*/0, /*groups=*/2);
  TrainWith(*ranked.learner, *ranked.policy, 1);
  EXPECT_EQ(Weights(*ranked.policy), Weights(*alone));
  EXPECT_EQ(ranked.starter->started(), 2);
  const auto next = ranked.learner->TrainStep(2, OnPolicyGroups(*ranked.policy, 3));
  EXPECT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(ranked.starter->started(), 3) << "the next one is trained by all ranks again";
}

TEST_F(DataParallelLearnerTest, ANonFiniteLossOnOneRankIsTheErrorOfAll) {
  const Ranked ranked = MakeRanked(2);
  auto groups = OnPolicyGroups(*ranked.policy, 4);
  Response response = *groups[3].samples[0].sample.response;
  response.behavior_logprobs[0] = std::numeric_limits<float>::quiet_NaN();
  const Response good = *groups[3].samples[0].sample.response;
  ReplaceResponse(groups[3].samples[0], response);
  const std::vector<float> before = Weights(*ranked.policy);
  const auto result = ranked.learner->TrainStep(1, groups);
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
  EXPECT_EQ(Weights(*ranked.policy), before);
  ReplaceResponse(groups[3].samples[0], good);
  EXPECT_TRUE(ranked.learner->TrainStep(1, groups).ok());
  EXPECT_EQ(ranked.starter->started(), 1) << "the ranks go on";
}

TEST_F(DataParallelLearnerTest, AShareIsGivenUpWhenTheGroupHasFailed) {
  options_.max_tokens_per_microbatch = 1;  // a microbatch for each group
  const auto learner = MakeLearner();
  const auto groups = OnPolicyGroups(*learner, 5);
  FailingCommunicator group(/*good=*/2);
  RankUse use;
  use.ranks = &group;
  learner->SetRanks(use);
  const auto result = learner->TrainStep(1, groups);
  EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
  EXPECT_EQ(group.asked(), 3) << "before each microbatch, and the third one is not computed";
}

TEST_F(DataParallelLearnerTest, ARankWithOtherWeightsIsReplaced) {
  const Ranked undisturbed = MakeRanked(2);
  TrainWith(*undisturbed.learner, *undisturbed.policy, 2);
  const Ranked ranked = MakeRanked(2);
  PolicyLearner* other = nullptr;
  ranked.starter->on_made = [&](int, PolicyLearner& learner) { other = &learner; };
  TrainWith(*ranked.learner, *ranked.policy, 1);
  ranked.starter->AwaitIdle(/*step=*/1);
  other->InitializeRandom(6);
  const auto result = ranked.learner->TrainStep(2, OnPolicyGroups(*ranked.policy, 5, 2));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->lost_ranks,
              testing::ElementsAre("the weights of rank 6 differ from those of rank 0"));
  EXPECT_EQ(ranked.starter->started(), 2);
  EXPECT_EQ(Weights(*ranked.policy), Weights(*undisturbed.policy));
}

TEST_F(DataParallelLearnerTest, TrainsWithTheRanksThatThereAreAndTakesInThoseThatCome) {
  const Ranked ranked = MakeRanked(3);
  ranked.starter->available = 0;
  int64_t step = 0;
  // Returns the number of ranks that trained the next step.
  const auto train = [&] {
    ++step;
    const auto groups = OnPolicyGroups(*ranked.policy, 5, static_cast<uint64_t>(step));
    const auto result = ranked.learner->TrainStep(step, groups);
    EXPECT_TRUE(result.ok()) << result.status();
    return 1 + ranked.starter->in_group();
  };
  EXPECT_EQ(train(), 1);
  const int starts = ranked.starter->started();
  EXPECT_EQ(train(), 1);
  EXPECT_EQ(ranked.starter->started(), starts) << "there is nobody to wait for";
  ranked.starter->available = 1;
  EXPECT_EQ(train(), 2);
  EXPECT_EQ(train(), 2);
  EXPECT_EQ(ranked.starter->started(), starts + 1);
  ranked.starter->available = 2;
  EXPECT_EQ(train(), 3);
}

TEST(DecideRanks, AllThenAllAgainThenRankZeroAlone) {
  EXPECT_EQ(DecideRanks(4, 0).ranks, 4);
  EXPECT_EQ(DecideRanks(4, 1).ranks, 4);
  EXPECT_EQ(DecideRanks(4, 2).ranks, 1);
}

}  // namespace
}  // namespace freshet
