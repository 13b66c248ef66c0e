#include <string>

#include "base/str_cat.h"
#include "tests/rollout/engine/engine_run.h"

namespace freshet {
namespace {

using NativeEngineSwapTest = EngineTest;

NativeEngineOptions With(KvPolicy kv) {
  NativeEngineOptions options;
  options.kv = kv;
  return options;
}

Response Beginning(const Response& whole, size_t tokens, PolicyVersion policy) {
  Response part;
  const auto count = static_cast<ptrdiff_t>(tokens);
  part.response_ids.assign(whole.response_ids.begin(), whole.response_ids.begin() + count);
  part.behavior_logprobs.assign(whole.behavior_logprobs.begin(),
                                whole.behavior_logprobs.begin() + count);
  part.loss_mask.assign(tokens, 1);
  part.spans = {{policy, 0, static_cast<int32_t>(tokens)}};
  return part;
}

// Runs one sample of `request`, switching to weights 2 after `tokens` tokens.
class Swapped {
 public:
  static Response Run(NativeEngine& engine, const ModelConfig& config, GenerationRequest request,
                      int tokens) {
    Responses responses;
    const std::pair<int64_t, int32_t> key(request.id, 0);
    EXPECT_TRUE(engine.Submit(std::move(request)).ok());
    for (int i = 0; i < tokens; ++i) EXPECT_TRUE(engine.Poll().ok());
    EXPECT_TRUE(engine.LoadWeights(Lane::kRollout, RandomWeights(config, 2, {0, 2})).ok());
    while (!engine.Idle()) {
      auto outputs = engine.Poll();
      if (!outputs.ok()) break;
      Collect(*std::move(outputs), responses);
    }
    return responses[key];
  }
};

TEST_F(NativeEngineSwapTest, TokensAfterASwapCarryTheNewVersion) {
  for (const KvPolicy kv : {KvPolicy::kKeep, KvPolicy::kRecompute}) {
    const std::unique_ptr<NativeEngine> engine = MakeEngine(With(kv));
    const Response swapped = Swapped::Run(*engine, config_, Request(3, 17), 6);
    const Response old = Alone(Request(3, 17), With(kv));
    EXPECT_EQ(swapped.spans, (std::vector<Span>{{{0, 1}, 0, 6}, {{0, 2}, 6, 20}}));
    EXPECT_EQ(swapped.finish, FinishReason::kLength);
    for (size_t t = 0; t < 6; ++t) {
      EXPECT_EQ(swapped.response_ids[t], old.response_ids[t]);
      EXPECT_EQ(swapped.behavior_logprobs[t], old.behavior_logprobs[t]);
    }
    EXPECT_NE(swapped.behavior_logprobs, old.behavior_logprobs);
    EXPECT_EQ(engine->stats().weight_swaps, 1);
    EXPECT_EQ(engine->version(Lane::kRollout), (PolicyVersion{0, 2}));
    ExpectNothingHeld(*engine);
  }
}

TEST_F(NativeEngineSwapTest, RecomputeEqualsAFreshPrefillUnderTheNewWeights) {
  for (const int64_t prompt : {1, 15, 16, 17, 40}) {
    for (const int tokens : {1, 6, 16}) {
      SCOPED_TRACE(StrCat("prompt ", prompt, ", swap after ", tokens));
      const std::unique_ptr<NativeEngine> engine = MakeEngine(With(KvPolicy::kRecompute));
      const Response swapped = Swapped::Run(*engine, config_, Request(3, prompt), tokens);
      GenerationRequest continued = Request(3, prompt);
      continued.partials = {Beginning(swapped, static_cast<size_t>(tokens), {0, 1})};
      ExpectSameBits(swapped, Alone(continued, {}, /*weights=*/2));
    }
  }
}

TEST_F(NativeEngineSwapTest, KeepGoesOnFromTheOldKeysAndValues) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine(With(KvPolicy::kKeep));
  const Response kept = Swapped::Run(*engine, config_, Request(3, 17), 6);
  const std::unique_ptr<NativeEngine> other = MakeEngine(With(KvPolicy::kRecompute));
  const Response recomputed = Swapped::Run(*other, config_, Request(3, 17), 6);
  EXPECT_NE(kept.behavior_logprobs[6], recomputed.behavior_logprobs[6]);
}

TEST_F(NativeEngineSwapTest, ASwapToTheSameNumbersChangesOnlyTheStamp) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  Submit(*engine, Request(3, 17));
  Responses responses;
  for (int i = 0; i < 5; ++i) Poll(*engine, responses);
  ASSERT_TRUE(engine->LoadWeights(Lane::kRollout, RandomWeights(config_, 1, {0, 2})).ok());
  const Response restamped = Drain(*engine)[{3, 0}];
  ExpectSameBits(restamped, Alone(Request(3, 17)));
  EXPECT_EQ(restamped.spans.size(), 2U);
}

TEST_F(NativeEngineSwapTest, SwapsInTheMiddleOfAPrefillAndOfAGroup) {
  NativeEngineOptions options = With(KvPolicy::kRecompute);
  options.max_batch_tokens = 16;
  const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
  Submit(*engine, Request(1, 5, 4));
  Submit(*engine, Request(2, 100, 2));
  Responses responses;
  for (int i = 0; i < 4; ++i) Poll(*engine, responses);
  ASSERT_TRUE(engine->LoadWeights(Lane::kRollout, RandomWeights(config_, 2, {0, 2})).ok());
  responses = Drain(*engine);
  ASSERT_EQ(responses.size(), 6U);
  // The second prompt was not finished, so all of its tokens are computed anew.
  const Response fresh = Alone(Request(2, 100), {}, /*weights=*/2);
  ExpectSameBits(responses[{2, 0}], fresh);
  EXPECT_EQ(responses.at({2, 0}).spans, (std::vector<Span>{{{0, 2}, 0, 20}}));
  EXPECT_EQ(responses.at({1, 3}).spans.size(), 2U);
  ExpectNothingHeld(*engine);
}

TEST_F(NativeEngineSwapTest, AContinuationEqualsTheUninterruptedGeneration) {
  const Response whole = Alone(Request(3, 17));
  for (const size_t tokens : {1U, 2U, 14U, 15U, 16U, 19U}) {
    GenerationRequest request = Request(3, 17);
    request.partials = {Beginning(whole, tokens, {0, 1})};
    const Response continued = Alone(request);
    SCOPED_TRACE(StrCat("after ", tokens));
    ExpectSameBits(continued, whole);
    EXPECT_EQ(continued.spans, whole.spans);
  }
}

TEST_F(NativeEngineSwapTest, CancelledSamplesContinueElsewhere) {
  const std::unique_ptr<NativeEngine> first = MakeEngine();
  Submit(*first, Request(3, 17, 3));
  const Responses whole = Drain(*first);

  Submit(*first, Request(3, 17, 3));
  Responses none;
  for (int i = 0; i < 7; ++i) Poll(*first, none);
  GenerationRequest request = Request(3, 17, 3);
  for (GenerationOutput& output : first->Cancel(3)) request.partials.push_back(output.response);
  // One of the three samples restarts from nothing.
  request.partials[1] = Response{};
  NativeEngineOptions options;
  options.max_batch_tokens = 9;
  const std::unique_ptr<NativeEngine> second = MakeEngine(options);
  Submit(*second, request);
  const Responses continued = Drain(*second);
  ASSERT_EQ(continued.size(), 3U);
  for (const auto& [key, response] : whole) ExpectSameBits(continued.at(key), response);
}

TEST_F(NativeEngineSwapTest, TheEvaluationLaneKeepsItsVersion) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  GenerationRequest evaluation = Request(40);
  evaluation.lane = Lane::kEvaluation;
  EXPECT_EQ(engine->Submit(evaluation).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(engine->LoadWeights(Lane::kEvaluation, RandomWeights(config_, 1, {0, 1})).ok());
  Submit(*engine, evaluation);
  Submit(*engine, Request(3));
  Responses responses;
  for (int i = 0; i < 5; ++i) Poll(*engine, responses);
  ASSERT_TRUE(engine->LoadWeights(Lane::kRollout, RandomWeights(config_, 2, {0, 2})).ok());
  responses = Drain(*engine);
  EXPECT_EQ(engine->version(Lane::kEvaluation), (PolicyVersion{0, 1}));
  const Response& evaluated = responses.at({40, 0});
  EXPECT_EQ(evaluated.spans, (std::vector<Span>{{{0, 1}, 0, 20}}));
  ExpectSameBits(evaluated, Alone(Request(40)));
  EXPECT_EQ(responses.at({3, 0}).spans.size(), 2U);
  EXPECT_EQ(engine->stats().tokens_generated, 20);
  EXPECT_EQ(engine->stats().tokens_generated_evaluation, 20);
}

TEST_F(NativeEngineSwapTest, PauseHoldsRolloutsButNotEvaluations) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  ASSERT_TRUE(engine->LoadWeights(Lane::kEvaluation, RandomWeights(config_, 1, {0, 1})).ok());
  Submit(*engine, Request(3));
  GenerationRequest evaluation = Request(40);
  evaluation.lane = Lane::kEvaluation;
  Submit(*engine, evaluation);
  engine->Pause(true);
  const Responses evaluated = Drain(*engine);
  EXPECT_EQ(evaluated.size(), 1U);
  EXPECT_TRUE(evaluated.contains({40, 0}));
  EXPECT_EQ(engine->stats().tokens_generated, 0);
  engine->Pause(false);
  EXPECT_FALSE(engine->Idle());
  ExpectSameBits(Drain(*engine)[{3, 0}], Alone(Request(3)));
}

}  // namespace
}  // namespace freshet
