#include "trainer/learner/policy_learner.h"

#include <limits>

#include "rollout/engine/native_engine.h"
#include "tests/trainer/learner/policy_learner_fixture.h"

namespace freshet {
namespace {

using PolicyLearnerTest = PolicyLearnerFixture;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

TEST_F(PolicyLearnerTest, AGrpoStepMovesProbabilityTowardsTheRewardedSample) {
  const auto learner = MakeLearner();
  const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 3);
  std::vector<double> before;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) before.push_back(SumLogprob(*learner, sample));
  }
  const TrainStepResult result = Train(*learner, 1, groups);
  size_t i = 0;
  for (const TrainGroup& group : groups) {
    double others = 0;
    for (const TrainSample& sample : group.samples) {
      const double change = SumLogprob(*learner, sample) - before[i++];
      if (sample.sample.score->reward > 0) {
        EXPECT_GT(change, 0.0) << "group " << group.ordinal;
      } else {
        others += change;
      }
    }
    EXPECT_LT(others, 0.0) << "group " << group.ordinal;
  }
  EXPECT_GT(result.grad_norm, 0.0);
  EXPECT_GT(result.entropy, 0.0);
  EXPECT_EQ(result.learning_rate, 0.01);
  EXPECT_NEAR(result.kl_behavior, 0.0, 1e-6);
  EXPECT_NEAR(result.importance_weight_mean, 1.0, 1e-5);
  EXPECT_EQ(result.ratio_clip_fraction, 0.0);
  EXPECT_NEAR(result.logprob_diff, 0.0, 1e-5);
  EXPECT_NEAR(result.importance_ratios.sum, static_cast<double>(result.tokens_trained), 1e-3);
  EXPECT_GT(result.model_flops, static_cast<double>(6 * learner->num_parameters()));
}

TEST_F(PolicyLearnerTest, RepeatedStepsMakeTheRewardedSampleLikely) {
  const auto learner = MakeLearner();
  std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 1);
  const TrainSample rewarded = groups[0].samples[0];
  const double before = SumLogprob(*learner, rewarded);
  for (int64_t step = 1; step <= 30; ++step) {
    for (TrainSample& sample : groups[0].samples) {
      Response response = *sample.sample.response;
      response.behavior_logprobs = Logprobs(*learner, sample);
      ReplaceResponse(sample, std::move(response));
    }
    Train(*learner, step, groups);
  }
  EXPECT_GT(SumLogprob(*learner, rewarded), before / 2);
}

TEST_F(PolicyLearnerTest, WithoutAnAdvantageNothingMoves) {
  const auto learner = MakeLearner();
  std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 2);
  for (TrainGroup& group : groups) {
    for (TrainSample& sample : group.samples) {
      auto score = std::make_shared<Score>();
      score->reward = 0.5;
      sample.sample.score = score;
    }
  }
  const std::vector<float> before = Weights(*learner);
  Train(*learner, 1, groups);
  EXPECT_EQ(Weights(*learner), before);
}

TEST_F(PolicyLearnerTest, AStepWithoutALossMovesNothing) {
  options_.loss.entropy_control = {0.0, 0.0};
  options_.minibatches_per_step = 2;
  const auto learner = MakeLearner(options_);
  std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 2);
  for (TrainGroup& group : groups) group.samples[0].loss_mask.assign(2 + group.ordinal, 0);
  const std::vector<float> before = Weights(*learner);
  const TrainStepResult result = Train(*learner, 1, groups);
  EXPECT_EQ(result.selection.masked_samples, 6);
  EXPECT_EQ(result.tokens_trained, 0);
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(Weights(*learner), before);
}

// Groups of whole responses of 2 samples, with the rewards 0 and 1; the first was not asked for, or
// neither was.
std::vector<TrainGroup> PartlyAsked(bool any) {
  std::vector<TrainGroup> groups;
  for (int32_t g = 0; g < 2; ++g) {
    const auto prompt = MakePrompt(g, {1});
    TrainGroup& group = groups.emplace_back();
    group.ordinal = g;
    for (int32_t i = 0; i < 2; ++i) {
      const bool asked = any && i == 1;
      TrainSample& sample = group.samples.emplace_back(MakeTrainSample(
          prompt, i, asked ? std::vector<int32_t>{3, 4 + g, 5} : std::vector<int32_t>{2, 2},
          std::vector<float>(asked ? 3 : 2, -3.0F), i));
      Response response = *sample.sample.response;
      response.loss_mask = sample.loss_mask =
          asked ? std::vector<uint8_t>{0, 1, 1} : std::vector<uint8_t>{0, 0};
      if (!asked) response.finish = FinishReason::kNotAsked;
      ReplaceResponse(sample, std::move(response));
    }
  }
  return groups;
}

TEST_F(PolicyLearnerTest, SamplesThatWereNotAskedForCountOnlyInTheBaseline) {
  options_.whole_responses = true;
  for (const AggregateKind aggregate :
       {AggregateKind::kSequenceMean, AggregateKind::kTokenMean, AggregateKind::kSequenceSumNorm}) {
    options_.loss.aggregate = aggregate;
    options_.minibatches_per_step = 1;
    const auto learner = MakeLearner(options_);
    const TrainStepResult result = Train(*learner, 1, PartlyAsked(true));
    EXPECT_EQ(result.tokens_trained, 4);
    EXPECT_GT(result.grad_norm, 0) << "the baseline has both rewards";
    EXPECT_THAT(result.advantages[0], testing::ElementsAre(testing::Lt(0), testing::Gt(0)));
    options_.minibatches_per_step = 2;
    const auto idle = MakeLearner(options_);
    const std::vector<float> before = Weights(*idle);
    const TrainStepResult none = Train(*idle, 1, PartlyAsked(false));
    EXPECT_EQ(none.tokens_trained, 0);
    for (const double value :
         {none.loss, none.grad_norm, none.entropy, none.kl_behavior, none.ratio_clip_fraction,
          none.importance_weight_mean, none.logprob_diff, none.selection.sampled_entropy}) {
      EXPECT_EQ(value, 0);
    }
    EXPECT_EQ(Weights(*idle), before);
  }
}

TEST_F(PolicyLearnerTest, MaskedTokensReachNothing) {
  const auto train = [&](bool rubbish) {
    const auto learner = MakeLearner();
    std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 2);
    TrainSample& sample = groups[0].samples[1];
    sample.loss_mask[0] = 0;
    if (rubbish) {
      Response response = *sample.sample.response;
      response.behavior_logprobs[0] = std::numeric_limits<float>::quiet_NaN();
      ReplaceResponse(sample, std::move(response));
    }
    const TrainStepResult result = Train(*learner, 1, groups);
    EXPECT_EQ(result.tokens_trained, 2 + 3 + 4 + 5 + 3 + 4 + 5 + 6 - 1);
    return Weights(*learner);
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(PolicyLearnerTest, TheSameBatchesGiveTheSameBits) {
  options_.minibatches_per_step = 2;
  const auto run = [&] {
    const auto learner = MakeLearner();
    const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 4);
    for (int64_t step = 1; step <= 3; ++step) Train(*learner, step, groups);
    return Weights(*learner);
  };
  EXPECT_EQ(run(), run());
}

TEST_F(PolicyLearnerTest, ThreadsDoNotChangeTheBits) {
  options_.minibatches_per_step = 2;
  options_.loss.kl = {KlKind::kK3, 0.1};
  const auto run = [&](int threads) {
    options_.threads = threads;
    const auto learner = MakeLearner();
    learner->FreezeReference();
    std::vector<SftExample> examples;
    for (uint64_t i = 0; i < 200; ++i) examples.push_back({Tokens(6, i), Tokens(5, 1000 + i)});
    EXPECT_TRUE(learner->SftStep(examples, 0.01).ok());
    Train(*learner, 1, OnPolicyGroups(*learner, 120));
    return Weights(*learner);
  };
  for (const ModelConfig& model : {TinyModel(), TinyMixedModel()}) {
    for (const bool bf16 : {false, true}) {
      options_.model = model;
      options_.bf16 = bf16;
      const std::vector<float> weights = run(1);
      EXPECT_EQ(run(3), weights) << model.model_type << ", bf16: " << bf16;
    }
  }
}

// On data of the starting policy, the proximal log-probs equal the behaviour's. If they were taken
// after the first update, every ratio of the second minibatch would be 1.
TEST_F(PolicyLearnerTest, MinibatchesShareTheProximalPolicyFromBeforeTheFirst) {
  options_.minibatches_per_step = 2;
  options_.epsilon = 1e-3;
  options_.loss.clip = {0.02, 0.02, std::nullopt};
  const auto proximal = MakeLearner();
  const std::vector<TrainGroup> groups = OnPolicyGroups(*proximal, 4);
  PolicyLearnerOptions with_behavior = options_;
  with_behavior.loss.anchor = AnchorKind::kBehavior;
  const auto behavior = MakeLearner(with_behavior);
  PolicyLearnerOptions at_once = options_;
  at_once.minibatches_per_step = 1;
  const auto single = MakeLearner(at_once);

  const TrainStepResult result = Train(*proximal, 1, groups);
  const TrainStepResult expected = Train(*behavior, 1, groups);
  EXPECT_LT(MaxDifference(Weights(*proximal), Weights(*behavior)), 1e-6);
  EXPECT_GT(result.ratio_clip_fraction, 0.0);
  EXPECT_EQ(result.ratio_clip_fraction, expected.ratio_clip_fraction);
  EXPECT_EQ(Train(*single, 1, groups).ratio_clip_fraction, 0.0);
  EXPECT_GT(MaxDifference(Weights(*proximal), Weights(*single)), 1e-4);
}

TEST_F(PolicyLearnerTest, OneUpdateAMinibatch) {
  options_.minibatches_per_step = 3;
  const auto learner = MakeLearner();
  const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 4);
  Train(*learner, 1, groups);
  EXPECT_EQ((*learner->Snapshot())->optimizer_steps, 3);
  // There are no more minibatches than groups.
  Train(*learner, 2, {groups[0], groups[1]});
  EXPECT_EQ((*learner->Snapshot())->optimizer_steps, 5);
}

TEST_F(PolicyLearnerTest, MicrobatchesAddUpToTheWholeBatch) {
  options_.epsilon = 1e-3;  // makes the update proportional to tiny gradients
  for (const AggregateKind aggregate :
       {AggregateKind::kTokenMean, AggregateKind::kSequenceMean, AggregateKind::kSequenceSumNorm}) {
    for (const RatioLevel ratio : {RatioLevel::kToken, RatioLevel::kSequence}) {
      options_.loss.aggregate = aggregate;
      options_.loss.ratio = ratio;
      const auto run = [&](int64_t max_tokens, TrainStepResult& result) {
        PolicyLearnerOptions options = options_;
        options.minibatches_per_step = 2;
        options.max_tokens_per_microbatch = max_tokens;
        const auto learner = MakeLearner(options);
        result = Train(*learner, 1, OnPolicyGroups(*learner, 5));
        return Weights(*learner);
      };
      TrainStepResult whole, split, halves;
      const std::vector<float> weights = run(8192, whole);
      EXPECT_LT(MaxDifference(run(1, split), weights), 1e-6);
      EXPECT_LT(MaxDifference(run(40, halves), weights), 1e-6);
      EXPECT_NEAR(split.loss, whole.loss, 1e-5);
      EXPECT_NEAR(split.entropy, whole.entropy, 1e-5);
      EXPECT_NEAR(split.grad_norm, whole.grad_norm, 1e-4);
      EXPECT_EQ(split.tokens_trained, whole.tokens_trained);
    }
  }
}

TEST_F(PolicyLearnerTest, AStepThatFailsSaysWhetherWeightsHaveChanged) {
  for (const size_t broken_group : {0, 3}) {
    options_.minibatches_per_step = 4;
    const auto learner = MakeLearner();
    std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 4);
    Train(*learner, 1, groups);
    const std::vector<float> before = Weights(*learner);
    const int64_t optimizer_steps = (*learner->Snapshot())->optimizer_steps;
    const std::vector<float> moments = NumbersOf((*learner->Snapshot())->optimizer);
    std::vector<TrainGroup> broken = groups;
    Response response = *broken[broken_group].samples[2].sample.response;
    response.behavior_logprobs[1] = std::numeric_limits<float>::quiet_NaN();
    ReplaceResponse(broken[broken_group].samples[2], std::move(response));
    const auto refused = learner->TrainStep(2, broken);
    if (broken_group == 3) {  // after three updates
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kAborted) << refused.status();
      EXPECT_THAT(Message(refused.status()), HasSubstr("minibatch 4 of 4: "));
      EXPECT_NE(Weights(*learner), before);
      continue;
    }
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
    EXPECT_EQ(Weights(*learner), before);
    EXPECT_EQ((*learner->Snapshot())->optimizer_steps, optimizer_steps);
    EXPECT_EQ(NumbersOf((*learner->Snapshot())->optimizer), moments);
    // Training continues as if the failed step had not happened.
    const auto undisturbed = MakeLearner();
    Train(*undisturbed, 1, groups);
    Train(*undisturbed, 2, groups);
    Train(*learner, 2, groups);
    EXPECT_EQ(Weights(*learner), Weights(*undisturbed));
  }
}

TEST_F(PolicyLearnerTest, KlIsMeasuredFromTheFrozenReference) {
  options_.loss.kl = {KlKind::kK3, 0.1};
  const auto learner = MakeLearner();
  const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 3);
  EXPECT_EQ(learner->TrainStep(1, groups).status().code(), absl::StatusCode::kFailedPrecondition)
      << "there is no reference yet";
  learner->FreezeReference();
  EXPECT_NEAR(Train(*learner, 1, groups).kl_ref, 0.0, 1e-7);
  const double moved = Train(*learner, 2, groups).kl_ref;
  EXPECT_GT(moved, 1e-4);
  learner->FreezeReference();
  EXPECT_NEAR(Train(*learner, 3, groups).kl_ref, 0.0, 1e-7);
}

TEST_F(PolicyLearnerTest, AStrongKlHoldsThePolicyBack) {
  const auto distance = [&](double coef) {
    options_.loss.kl = {KlKind::kK3, coef};
    const auto learner = MakeLearner();
    const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 3);
    learner->FreezeReference();
    double last = 0;
    for (int64_t step = 1; step <= 12; ++step) last = Train(*learner, step, groups).kl_ref;
    return last;
  };
  EXPECT_LT(distance(50.0), 0.5 * distance(1e-6));
}

// Three groups of four samples, generated by an engine with the learner's weights.
std::vector<TrainGroup> Generated(const PolicyLearner& learner, const ModelConfig& model,
                                  const SamplingParams& sampling,
                                  const NativeEngineOptions& options = {}) {
  const auto engine = NativeEngine::Create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  WeightSnapshot snapshot;
  snapshot.bytes = CopyWeightBytes(*learner.Arena());
  EXPECT_TRUE((*engine)->LoadWeights(Lane::kRollout, snapshot).ok());
  std::vector<TrainGroup> groups;
  for (int64_t g = 0; g < 3; ++g) {
    groups.push_back({g, {}});
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < 15 + g; ++i) ids.push_back(static_cast<int32_t>((7 * g + 5 * i) % 32));
    const auto prompt = MakePrompt(g, std::move(ids));
    GenerationRequest request;
    request.id = g;
    request.ordinal = g;
    request.prompt_ids = prompt->prompt_ids;
    request.sample_indices = {0, 1, 2, 3};
    request.sampling = sampling;
    EXPECT_TRUE((*engine)->Submit(request).ok());
    while (!(*engine)->Idle()) {
      const auto outputs = (*engine)->Poll();
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      if (!outputs.ok()) return groups;
      for (const GenerationOutput& output : *outputs) {
        groups.back().samples.push_back(MakeTrainSample(
            prompt, output.sample_index, output.response.response_ids, {}, output.sample_index));
        ReplaceResponse(groups.back().samples.back(), output.response);
      }
    }
  }
  return groups;
}

TEST_F(PolicyLearnerTest, EnginesLogprobsAreThoseOfTheTrainingForward) {
  SamplingParams whole, nucleus, likeliest;
  nucleus.top_p = 0.9;
  likeliest.top_k = 8;
  for (SamplingParams sampling : {whole, nucleus, likeliest}) {
    SCOPED_TRACE(StrCat("top_p ", sampling.top_p, " top_k ", sampling.top_k));
    sampling.temperature = options_.temperature = 0.7;
    sampling.max_new_tokens = 8;
    const auto learner = MakeLearner();
    const std::vector<TrainGroup> groups = Generated(*learner, options_.model, sampling);
    const TrainStepResult result = Train(*learner, 1, groups);
    EXPECT_LT(result.kl_behavior, 1e-8);
    EXPECT_LT(result.logprob_diff, 1e-6);
    // Scored at another temperature, the same samples differ widely.
    PolicyLearnerOptions other = options_;
    other.temperature = 1.0;
    EXPECT_GT(Train(*MakeLearner(other), 1, groups).kl_behavior, 1e-3);
  }
}

TEST_F(PolicyLearnerTest, Bf16EnginesLogprobsAreCloseToThoseOfTheTrainingForward) {
  options_.bf16 = true;
  options_.model = TinyMixedModel();
  options_.model.initializer_range = 0.15;
  const auto learner = MakeLearner();
  // Norms and biases move away from numbers that bf16 holds exactly.
  for (int64_t step = 1; step <= 3; ++step) Train(*learner, step, OnPolicyGroups(*learner, 2));
  SamplingParams sampling;
  sampling.max_new_tokens = 8;
  for (const bool aten : {false, true}) {
    NativeEngineOptions engine;
    engine.bf16 = true;
    engine.aten = aten;
    double difference = 0;
    size_t tokens = 0;
    for (const TrainGroup& group : Generated(*learner, options_.model, sampling, engine)) {
      for (const TrainSample& sample : group.samples) {
        const std::vector<float>& logprobs = sample.sample.response->behavior_logprobs;
        const std::vector<float> expected = Logprobs(*learner, sample);
        ASSERT_EQ(logprobs.size(), expected.size());
        for (size_t t = 0; t < expected.size(); ++t) {
          difference += std::abs(logprobs[t] - expected[t]);
        }
        tokens += expected.size();
      }
    }
    EXPECT_LT(difference / static_cast<double>(tokens), 2e-2) << (aten ? "ATen" : "our kernels");
  }
}

TEST_F(PolicyLearnerTest, EachTruncatedTokenHasTheLogprobOfTheTrainingForward) {
  SamplingParams nucleus, likeliest;
  nucleus.top_p = 0.9;
  likeliest.top_k = 8;
  for (SamplingParams sampling : {nucleus, likeliest}) {
    SCOPED_TRACE(StrCat("top_p ", sampling.top_p, " top_k ", sampling.top_k));
    sampling.max_new_tokens = 8;
    const auto learner = MakeLearner();
    for (const TrainGroup& group : Generated(*learner, options_.model, sampling)) {
      for (const TrainSample& sample : group.samples) {
        const Response& response = *sample.sample.response;
        const std::vector<float> expected = Logprobs(*learner, sample);
        EXPECT_THAT(response.behavior_logprobs, Pointwise(FloatNear(1e-4F), expected));
        ASSERT_EQ(response.sampling_logprobs.size(), expected.size());
        for (size_t t = 0; t < expected.size(); ++t) {
          EXPECT_GT(response.sampling_logprobs[t], response.behavior_logprobs[t]) << t;
        }
      }
    }
  }
}

TEST_F(PolicyLearnerTest, FollowsItsSchedule) {
  options_.schedule.warmup_steps = 4;
  const auto learner = MakeLearner();
  const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 1);
  EXPECT_DOUBLE_EQ(Train(*learner, 1, groups).learning_rate, 0.0025);
  EXPECT_DOUBLE_EQ(Train(*learner, 2, groups).learning_rate, 0.005);
}

TEST_F(PolicyLearnerTest, TrainsInBf16) {
  options_.bf16 = true;
  const auto learner = MakeLearner();
  const std::vector<TrainGroup> groups = OnPolicyGroups(*learner, 3);
  const double before = SumLogprob(*learner, groups[0].samples[0]);
  for (int64_t step = 1; step <= 5; ++step) Train(*learner, step, groups);
  EXPECT_GT(SumLogprob(*learner, groups[0].samples[0]), before);
}

TEST_F(PolicyLearnerTest, RefusesOptionsThatCannotWork) {
  const auto refused = [&](const PolicyLearnerOptions& options) {
    return PolicyLearner::Create(options, clock_).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  PolicyLearnerOptions options = options_;
  options.minibatches_per_step = 0;
  EXPECT_TRUE(refused(options));
  options = options_;
  options.max_tokens_per_microbatch = 0;
  EXPECT_TRUE(refused(options));
  options = options_;
  options.beta1 = 1.0;
  EXPECT_TRUE(refused(options));
  options = options_;
  options.schedule.peak = -1;
  EXPECT_TRUE(refused(options));
  options = options_;
  options.model.hidden_size = 0;
  EXPECT_TRUE(refused(options));
}

}  // namespace
}  // namespace freshet
