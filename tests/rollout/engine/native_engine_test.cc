#include "rollout/engine/native_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "model/dtype.h"
#include "tests/rollout/engine/engine_run.h"

namespace freshet {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

using NativeEngineTest = EngineTest;

TEST_F(NativeEngineTest, FillsEveryColumnOfAResponse) {
  const Response response = Alone(Request(3));
  ASSERT_EQ(response.response_ids.size(), 20U);
  EXPECT_EQ(response.behavior_logprobs.size(), 20U);
  EXPECT_EQ(response.loss_mask, std::vector<uint8_t>(20, 1));
  ASSERT_EQ(response.spans.size(), 1U);
  EXPECT_EQ(response.spans[0], (Span{{0, 1}, 0, 20}));
  EXPECT_EQ(response.finish, FinishReason::kLength);
  for (const float logprob : response.behavior_logprobs) {
    EXPECT_TRUE(std::isfinite(logprob) && logprob <= 0.0F) << logprob;
  }
}

TEST_F(NativeEngineTest, LogprobsAreThoseOfScoring) {
  const GenerationRequest request = Request(3, 21, 1, 40);
  const Response response = Alone(request);
  std::vector<int32_t> ids = request.prompt_ids;
  ids.insert(ids.end(), response.response_ids.begin(), response.response_ids.end());
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  for (const bool one_by_one : {true, false}) {
    const auto scores = engine->Score(ids, one_by_one);
    ASSERT_TRUE(scores.ok()) << scores.status();
    ASSERT_EQ(scores->size(), ids.size() - 1);
    for (size_t t = 0; t < response.behavior_logprobs.size(); ++t) {
      EXPECT_NEAR(response.behavior_logprobs[t], (*scores)[20 + t], 1e-5) << one_by_one << " " << t;
    }
  }
  ExpectNothingHeld(*engine);
}

TEST_F(NativeEngineTest, RefusesWeightsThatGiveNoFiniteLogits) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  WeightSnapshot diverged = RandomWeights(config_, 1, {0, 2});
  std::vector<std::byte> bytes(diverged.bytes->begin(), diverged.bytes->end());
  std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});  // NaN
  diverged.bytes = MakeWeightBytes(std::move(bytes));
  ASSERT_TRUE(engine->LoadWeights(Lane::kRollout, diverged).ok());
  Submit(*engine, Request(3));
  EXPECT_THAT(Message(engine->Poll().status()), testing::HasSubstr("version 2 are not finite"));
  EXPECT_EQ(engine->Cancel(3).size(), 1U);
  ExpectNothingHeld(*engine);
  EXPECT_EQ(engine->Score({1, 2, 3}, false).status().code(), absl::StatusCode::kInternal);
}

TEST_F(NativeEngineTest, TheContextIsWhatTheCacheHolds) {
  EXPECT_EQ(MakeEngine()->context(), config_.max_position_embeddings);
  NativeEngineOptions options;
  options.cache_blocks = 4;
  const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
  ASSERT_EQ(engine->context(), 3 * 16);
  Submit(*engine, Request(3, 17, 1, 48 - 17));
  EXPECT_EQ(Drain(*engine).size(), 1U);
}

TEST_F(NativeEngineTest, SamplesOfOnePromptDifferBySampleIndexAndSeed) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  Submit(*engine, Request(3, 5, 4));
  GenerationRequest reseeded = Request(3);
  reseeded.id = 4;
  reseeded.seed = 8;
  Submit(*engine, reseeded);
  const Responses all = Drain(*engine);
  ASSERT_EQ(all.size(), 5U);
  std::set<std::vector<int32_t>> distinct;
  for (const auto& [key, response] : all) distinct.insert(response.response_ids);
  EXPECT_EQ(distinct.size(), 5U);
}

TEST_F(NativeEngineTest, StopsAtTheFirstStopTokenAndKeepsIt) {
  const Response whole = Alone(Request(3));
  const int32_t stop = whole.response_ids[7];
  const auto first = std::find(whole.response_ids.begin(), whole.response_ids.end(), stop);
  GenerationRequest request = Request(3);
  request.sampling.stop_ids = {99, stop};
  const Response stopped = Alone(request);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.response_ids, std::vector<int32_t>(whole.response_ids.begin(), first + 1));
}

TEST_F(NativeEngineTest, AStopTokenInTheLastPlaceIsAStop) {
  const Response whole = Alone(Request(3));
  size_t place = whole.response_ids.size();
  // Find a token that first occurs after position 0.
  for (size_t i = 1; i < whole.response_ids.size(); ++i) {
    const auto begin = whole.response_ids.begin();
    if (std::find(begin, begin + static_cast<ptrdiff_t>(i), whole.response_ids[i]) ==
        begin + static_cast<ptrdiff_t>(i)) {
      place = i;
      break;
    }
  }
  ASSERT_LT(place, whole.response_ids.size());
  GenerationRequest request = Request(3, 5, 1, static_cast<int32_t>(place) + 1);
  request.sampling.stop_ids = {whole.response_ids[place]};
  EXPECT_EQ(Alone(request).finish, FinishReason::kStop);
}

TEST_F(NativeEngineTest, FillsTheContextToItsLastToken) {
  const auto context = static_cast<int32_t>(config_.max_position_embeddings);
  for (const int32_t prompt : {1, 15, 16, 17, 112, context - 1}) {
    const Response response = Alone(Request(3, prompt, 1, context - prompt));
    EXPECT_EQ(response.response_ids.size(), static_cast<size_t>(context - prompt)) << prompt;
  }
}

TEST_F(NativeEngineTest, ComputesAPromptOnceForAllItsSamples) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  Submit(*engine, Request(1, 40, 8));
  Responses responses;
  Poll(*engine, responses);
  EXPECT_EQ(engine->stats().tokens_prefilled, 40);
  EXPECT_EQ(engine->stats().tokens_generated, 8);
  // 3 blocks of the prompt, plus a copy of its last, partly filled block per sample.
  EXPECT_EQ(engine->stats().cache_blocks - engine->stats().cache_blocks_free, 3 + 8);
  Drain(*engine);
  EXPECT_EQ(engine->stats().tokens_generated, 8 * 20);
  ExpectNothingHeld(*engine);
}

TEST_F(NativeEngineTest, CancelReturnsPartialsAndFreesTheirBlocks) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  Submit(*engine, Request(1, 17, 3));
  Submit(*engine, Request(2, 17, 2));
  Responses responses;
  for (int i = 0; i < 6; ++i) Poll(*engine, responses);
  EXPECT_TRUE(responses.empty());
  const std::vector<GenerationOutput> partials = engine->Cancel(1);
  ASSERT_EQ(partials.size(), 3U);
  for (const GenerationOutput& partial : partials) {
    EXPECT_EQ(partial.request_id, 1);
    EXPECT_EQ(partial.response.finish, FinishReason::kNone);
    EXPECT_EQ(partial.response.response_ids.size(), 6U);
    EXPECT_EQ(partial.response.behavior_logprobs.size(), 6U);
    EXPECT_EQ(partial.response.spans, (std::vector<Span>{{{0, 1}, 0, 6}}));
  }
  EXPECT_EQ(engine->stats().running_sequences, 2);
  EXPECT_TRUE(engine->Cancel(1).empty());
  EXPECT_EQ(Drain(*engine).size(), 2U);
  ExpectNothingHeld(*engine);
}

TEST_F(NativeEngineTest, CancelBeforeTheFirstPollReturnsEmptyPartials) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  Submit(*engine, Request(1, 17, 2));
  const std::vector<GenerationOutput> partials = engine->Cancel(1);
  ASSERT_EQ(partials.size(), 2U);
  EXPECT_TRUE(partials[0].response.response_ids.empty());
  EXPECT_TRUE(engine->Idle());
  ExpectNothingHeld(*engine);
}

TEST_F(NativeEngineTest, CancelInTheMiddleOfAPrefillFreesItsBlocks) {
  NativeEngineOptions options;
  options.max_batch_tokens = 8;
  const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
  Submit(*engine, Request(1, 100, 2));
  Responses responses;
  Poll(*engine, responses);
  Poll(*engine, responses);
  EXPECT_EQ(engine->Cancel(1).size(), 2U);
  ExpectNothingHeld(*engine);
}

TEST_F(NativeEngineTest, AdmitsUpToItsSequencesAndNoMore) {
  NativeEngineOptions options;
  options.max_sequences = 10;
  const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
  SamplingParams sampling;
  sampling.max_new_tokens = 20;
  EXPECT_EQ(engine->Admissible(5, 4, sampling, 64), 2);
  EXPECT_EQ(engine->Admissible(5, 4, sampling, 1), 1);
  Submit(*engine, Request(1, 5, 4));
  Submit(*engine, Request(2, 5, 4));
  EXPECT_EQ(engine->Admissible(5, 4, sampling, 64), 0);
  EXPECT_EQ(engine->Admissible(5, 2, sampling, 64), 1);
  EXPECT_EQ(engine->Submit(Request(3, 5, 4)).code(), absl::StatusCode::kResourceExhausted);
  Submit(*engine, Request(4, 5, 2));
  Drain(*engine);
  EXPECT_EQ(engine->Admissible(5, 4, sampling, 64), 2);
}

TEST_F(NativeEngineTest, AGroupLargerThanItsSequencesRunsAlone) {
  NativeEngineOptions options;
  options.max_sequences = 4;
  const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
  Submit(*engine, Request(1, 5, 9));
  EXPECT_FALSE(engine->Submit(Request(2, 5, 1)).ok());
  EXPECT_EQ(Drain(*engine).size(), 9U);
  EXPECT_TRUE(engine->Submit(Request(2, 5, 1)).ok());
}

TEST_F(NativeEngineTest, ReservesTheBlocksThatARequestMayNeed) {
  NativeEngineOptions options;
  options.cache_blocks = 12;
  const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
  // 17 prompt and 20 new tokens: 2 blocks of the prompt, and 3 - 1 per sample.
  SamplingParams sampling;
  sampling.max_new_tokens = 20;
  EXPECT_EQ(engine->Admissible(17, 2, sampling, 64), 2);
  EXPECT_EQ(engine->Admissible(17, 5, sampling, 64), 1);
  EXPECT_EQ(engine->Admissible(17, 6, sampling, 64), 0);
  Submit(*engine, Request(1, 17, 2));
  EXPECT_EQ(engine->Admissible(17, 2, sampling, 64), 1);
  Submit(*engine, Request(2, 17, 2));
  EXPECT_EQ(engine->Submit(Request(3, 17, 2)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Drain(*engine).size(), 4U);
  EXPECT_TRUE(engine->Submit(Request(3, 17, 2)).ok());
  Drain(*engine);
  ExpectNothingHeld(*engine);
}

// With no spare blocks, the reservation must suffice at every prompt length.
TEST_F(NativeEngineTest, ReservedBlocksAreEnoughAtEveryLength) {
  for (int32_t prompt = 1; prompt <= 34; ++prompt) {
    for (const int32_t fresh : {1, 2, 15, 16, 17}) {
      NativeEngineOptions options;
      const int64_t shared = prompt / 16;
      options.cache_blocks = (prompt + 15) / 16 + 3 * ((prompt + fresh + 15) / 16 - shared);
      const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
      ASSERT_TRUE(engine->Submit(Request(1, prompt, 3, fresh)).ok()) << prompt << " " << fresh;
      EXPECT_EQ(Drain(*engine).size(), 3U);
      ExpectNothingHeld(*engine);
    }
  }
}

TEST_F(NativeEngineTest, RefusesBadRequestsAndStaysUsable) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  const Response part = {{1, 2}, {-1.0F, -1.0F}, {1, 1}, {{{0, 1}, 0, 2}}, FinishReason::kNone, {}};
  const struct {
    const char* named;
    std::function<void(GenerationRequest&)> damage;
  } cases[] = {
      {"empty prompt", [](GenerationRequest& r) { r.prompt_ids.clear(); }},
      {"token -1", [](GenerationRequest& r) { r.prompt_ids[2] = -1; }},
      {"token 32", [](GenerationRequest& r) { r.prompt_ids[2] = 32; }},
      {"context of 128", [](GenerationRequest& r) { r.sampling.max_new_tokens = 124; }},
      {"no samples", [](GenerationRequest& r) { r.sample_indices.clear(); }},
      {"top_p", [](GenerationRequest& r) { r.sampling.top_p = 2; }},
      {"max_new_tokens", [](GenerationRequest& r) { r.sampling.max_new_tokens = 0; }},
      {"2 partial responses for 1",
       [&](GenerationRequest& r) {
         r.partials = {part, part};
       }},
      {"token 32",
       [&](GenerationRequest& r) {
         r.partials = {part};
         r.partials[0].response_ids[1] = 32;
       }},
      {"2 tokens",
       [&](GenerationRequest& r) {
         r.partials = {part};
         r.sampling.max_new_tokens = 2;
       }},
      {"columns",
       [&](GenerationRequest& r) {
         r.partials = {part};
         r.partials[0].behavior_logprobs.pop_back();
       }},
      {"columns",
       [&](GenerationRequest& r) {
         r.partials = {part};
         r.partials[0].loss_mask.push_back(1);
       }},
      {"finished",
       [&](GenerationRequest& r) {
         r.partials = {part};
         r.partials[0].finish = FinishReason::kStop;
       }},
  };
  for (const auto& c : cases) {
    GenerationRequest request = Request(1);
    c.damage(request);
    const absl::Status status = engine->Submit(std::move(request));
    EXPECT_EQ(status.code(), kInvalid) << c.named;
    EXPECT_NE(Message(status).find(c.named), std::string::npos) << status;
    EXPECT_TRUE(engine->Idle());
  }
  Submit(*engine, Request(1));
  EXPECT_EQ(Drain(*engine).size(), 1U);
}

TEST_F(NativeEngineTest, WithoutWeightsNothingIsAccepted) {
  const auto engine = NativeEngine::Create(config_, {});
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ((*engine)->version(Lane::kRollout), (PolicyVersion{-1, -1}));
  EXPECT_EQ((*engine)->Submit(Request(1)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*engine)->Score({1, 2, 3}, false).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE((*engine)->Idle());
}

TEST_F(NativeEngineTest, RefusesWeightsOfAnotherModel) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  ModelConfig other = config_;
  other.intermediate_size += 16;
  EXPECT_EQ(engine->LoadWeights(Lane::kRollout, RandomWeights(other, 1, {0, 2})).code(), kInvalid);
  EXPECT_EQ(engine->LoadWeights(Lane::kRollout, WeightSnapshot{}).code(), kInvalid);
  EXPECT_EQ(engine->version(Lane::kRollout), (PolicyVersion{0, 1}));
}

// fp32 weights, norms and biases among them, that bf16 does not hold; the same rounded to bf16; and
// these in fp32.
struct Arenas {
  WeightSnapshot fp32, bf16, widened;
};
Arenas MakeArenas(const ModelConfig& config) {
  Arenas arenas{RandomWeights(config, 1, {0, 2}), {}, {}};
  std::vector<float> numbers(arenas.fp32.bytes->size() / sizeof(float));
  std::memcpy(numbers.data(), arenas.fp32.bytes->data(), arenas.fp32.bytes->size());
  std::vector<uint16_t> rounded;
  std::vector<float> widened;
  for (float& number : numbers) {
    number += 0.003F;
    rounded.push_back(RoundToBf16(number));
    widened.push_back(WidenBf16(rounded.back()));
  }
  const auto bytes_of = [](const auto& vector) {
    const auto* data = reinterpret_cast<const std::byte*>(vector.data());
    return MakeWeightBytes({data, data + vector.size() * sizeof(vector[0])});
  };
  arenas.fp32.bytes = bytes_of(numbers);
  arenas.bf16.bytes = bytes_of(rounded);
  arenas.widened.bytes = bytes_of(widened);
  return arenas;
}

TEST_F(NativeEngineTest, ABf16EngineComputesTheSameWithFp32AndBf16Weights) {
  const std::vector<int32_t> ids = {1, 5, 9, 2, 30, 17, 4, 4, 8, 21};
  config_ = TinyMixedModel();
  const Arenas arenas = MakeArenas(config_);
  for (const bool aten : {false, true}) {
    NativeEngineOptions options;
    options.aten = aten;
    options.bf16 = true;
    const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
    ASSERT_TRUE(engine->LoadWeights(Lane::kRollout, arenas.fp32).ok());
    const std::vector<float> expected = engine->Score(ids, false).value();
    ASSERT_TRUE(engine->LoadWeights(Lane::kRollout, arenas.bf16).ok());
    EXPECT_EQ(engine->Score(ids, false).value(), expected) << (aten ? "ATen" : "our kernels");
  }
}

TEST_F(NativeEngineTest, Fp32AndInt8EnginesComputeWithBf16WeightsAsTheyAre) {
  const std::vector<int32_t> ids = {1, 5, 9, 2, 30, 17, 4, 4, 8, 21};
  config_ = TinyMixedModel();
  const Arenas arenas = MakeArenas(config_);
  NativeEngineOptions exact, aten, int8;
  aten.aten = true;
  int8.int8_weights = true;
  for (const NativeEngineOptions& options : {exact, aten, int8}) {
    const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
    ASSERT_TRUE(engine->LoadWeights(Lane::kRollout, arenas.widened).ok());
    const std::vector<float> expected = engine->Score(ids, false).value();
    ASSERT_TRUE(engine->LoadWeights(Lane::kRollout, arenas.bf16).ok());
    EXPECT_EQ(engine->Score(ids, false).value(), expected);
  }
}

TEST_F(NativeEngineTest, RefusesATensorOfAnotherNumberFormatThanTheArena) {
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  const Arenas arenas = MakeArenas(config_);
  const struct {
    const WeightSnapshot& weights;
    const char* dtype;
    bool accepted;
  } cases[] = {{arenas.fp32, "F32", true},
               {arenas.fp32, "BF16", false},
               {arenas.bf16, "BF16", true},
               {arenas.bf16, "F16", false}};
  for (const auto& [weights, dtype, accepted] : cases) {
    WeightSnapshot named = weights;
    named.manifest.entries = {{"model.norm.weight", dtype, {32}, 0}};
    const absl::Status loaded = engine->LoadWeights(Lane::kRollout, named);
    EXPECT_EQ(loaded.code(), accepted ? absl::StatusCode::kOk : kInvalid) << loaded;
    if (!accepted) {
      EXPECT_THAT(Message(loaded), testing::HasSubstr("model.norm.weight has dtype "));
    }
  }
}

TEST_F(NativeEngineTest, RefusesBadOptionsAndConfigs) {
  NativeEngineOptions options;
  options.max_sequences = 0;
  EXPECT_EQ(NativeEngine::Create(config_, options).status().code(), kInvalid);
  options = {};
  options.max_batch_tokens = 0;
  EXPECT_EQ(NativeEngine::Create(config_, options).status().code(), kInvalid);
  options = {};
  options.cache_blocks = -1;
  EXPECT_EQ(NativeEngine::Create(config_, options).status().code(), kInvalid);
  options = {};
  options.speculative_tokens = kMaxDraftTokens + 1;
  EXPECT_EQ(NativeEngine::Create(config_, options).status().code(), kInvalid);
  ModelConfig broken = config_;
  broken.num_key_value_heads = 3;
  EXPECT_EQ(NativeEngine::Create(broken, {}).status().code(), kInvalid);
}

TEST_F(NativeEngineTest, ScoreRefusesWhatItCannotHold) {
  NativeEngineOptions options;
  options.cache_blocks = 2;
  const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
  EXPECT_EQ(engine->Score({}, false).status().code(), kInvalid);
  EXPECT_EQ(engine->Score({1, 99}, false).status().code(), kInvalid);
  EXPECT_TRUE(engine->Score(std::vector<int32_t>(33, 1), false).ok());
  EXPECT_EQ(engine->Score(std::vector<int32_t>(34, 1), false).status().code(),
            absl::StatusCode::kResourceExhausted);
  ExpectNothingHeld(*engine);
}

TEST_F(NativeEngineTest, ScoreOfOneTokenIsEmpty) {
  const auto scores = MakeEngine()->Score({5}, true);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_TRUE(scores->empty());
}

TEST_F(NativeEngineTest, Bf16StaysCloseToFp32) {
  const std::vector<int32_t> ids = {1, 5, 9, 2, 30, 17, 4, 4, 8, 21};
  NativeEngineOptions options;
  options.bf16 = true;
  const auto exact = MakeEngine()->Score(ids, false);
  const auto rounded = MakeEngine(options)->Score(ids, false);
  ASSERT_TRUE(exact.ok() && rounded.ok());
  double difference = 0;
  for (size_t i = 0; i < exact->size(); ++i) difference += std::abs((*exact)[i] - (*rounded)[i]);
  difference /= static_cast<double>(exact->size());
  EXPECT_LT(difference, 2e-2);
  EXPECT_GT(difference, 0.0) << "bf16 was not used";
}

}  // namespace
}  // namespace freshet
