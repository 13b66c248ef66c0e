#include "rollout/server_engine/server_engine.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/rollout/server_engine/server_fixture.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class ServerEngineTest : public ServerFixture {};
INSTANTIATE_TEST_SUITE_P(Kinds, ServerEngineTest, testing::ValuesIn(ServerKinds()), ServerKindName);

TEST_P(ServerEngineTest, GeneratesTokensWithLogprobsAndVersions) {
  const auto engine = Started();
  EXPECT_TRUE(engine->Idle());
  Submit(*engine, Request(4, /*samples=*/3));
  EXPECT_EQ(engine->stats().running_sequences, 3);
  ASSERT_TRUE(RunUntilIdle(*engine));
  ASSERT_THAT(responses_, SizeIs(3));
  EXPECT_NE((responses_[{4, 0}].response_ids), (responses_[{4, 1}].response_ids));
  for (const auto& [key, response] : responses_) {
    EXPECT_THAT(response.response_ids, SizeIs(8));
    EXPECT_THAT(response.behavior_logprobs, SizeIs(8));
    EXPECT_THAT(response.behavior_logprobs, testing::Each(testing::Lt(0)));
    EXPECT_THAT(response.loss_mask, SizeIs(8));
    EXPECT_THAT(response.sampling_logprobs, IsEmpty());
    EXPECT_EQ(response.finish, FinishReason::kLength);
    EXPECT_THAT(response.spans, ElementsAre(Span{{0, 1}, 0, 8}));
  }
  EXPECT_THAT(errors_, IsEmpty());
  EXPECT_EQ(engine->stats().running_sequences, 0);
  EXPECT_EQ(engine->stats().tokens_generated, 24);
}

TEST_P(ServerEngineTest, StopsAtStopTokensAndCountsTokensForItsCaller) {
  const auto engine = Started();
  GenerationRequest request = Request(1, 1, /*max_new_tokens=*/50);
  for (int32_t id = 0; id < 16; ++id) request.sampling.stop_ids.push_back(id);
  std::vector<GeneratedToken> shown;
  request.on_token = [&](const GeneratedToken& token) { shown.push_back(token); };
  Submit(*engine, std::move(request));
  ASSERT_TRUE(RunUntilIdle(*engine));
  const Response& response = responses_[{1, 0}];
  EXPECT_EQ(response.finish, FinishReason::kStop);
  EXPECT_LT(response.response_ids.back(), 16);
  ASSERT_EQ(shown.size(), response.response_ids.size());
  EXPECT_EQ(shown.back().finish, FinishReason::kStop);
  for (size_t i = 0; i < shown.size(); ++i) {
    EXPECT_EQ(shown[i].token.id, response.response_ids[i]);
    EXPECT_EQ(shown[i].policy, (PolicyVersion{0, 1}));
  }
}

TEST_P(ServerEngineTest, CutsAtStopStrings) {
  // Token i is character i of the alphabet.
  const auto tokenizer = CreateCharTokenizer("0123456789abcdefghijklmnopqrstu");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto engine = Started();
  GenerationRequest request = Request(1, 1, 12);
  Submit(*engine, request);
  ASSERT_TRUE(RunUntilIdle(*engine));
  const Response whole = responses_[{1, 0}];
  // Two of its tokens that are characters.
  size_t end = 3;
  std::string text;
  for (; text.size() != 2 && end < whole.response_ids.size(); ++end) {
    text = (*tokenizer)->Decode({whole.response_ids[end - 1], whole.response_ids[end]}, true);
  }
  ASSERT_THAT(text, SizeIs(2));
  request.id = 2;  // the same tokens, because ordinal and seed are the same
  request.sampling.stop_strings =
      std::make_shared<const StopStrings>(std::vector<std::string>{text}, **tokenizer);
  Submit(*engine, std::move(request));
  ASSERT_TRUE(RunUntilIdle(*engine));
  const Response& cut = responses_[{2, 0}];
  EXPECT_EQ(cut.finish, FinishReason::kStop);
  EXPECT_THAT(cut.response_ids, SizeIs(testing::Le(end)));
  EXPECT_EQ(cut.spans.back().end, std::ssize(cut.response_ids));
  EXPECT_THAT((*tokenizer)->Decode(cut.response_ids, true), testing::EndsWith(text));
}

TEST_P(ServerEngineTest, SwapsWeightsUnderRunningSamples) {
  options_.stream_interval = 1;
  const auto engine = Started();
  Tell({{"hold_after", 3}});
  Submit(*engine, Request(1, 2));
  ASSERT_TRUE(RunUntilTokens(*engine, 6));
  Load(*engine, Lane::kRollout, 2);
  EXPECT_EQ(engine->version(Lane::kRollout), (PolicyVersion{0, 2}));
  EXPECT_EQ(engine->stats().weight_swaps, 1);
  Tell({{"hold_after", nullptr}});
  ASSERT_TRUE(RunUntilIdle(*engine));
  for (const int32_t sample : {0, 1}) {
    EXPECT_THAT((responses_[{1, sample}].spans),
                ElementsAre(Span{{0, 1}, 0, 3}, Span{{0, 2}, 3, 8}));
  }
  EXPECT_THAT(GenerateCalls(), SizeIs(GetParam().protocol().traits().swaps_under_load ? 2 : 4));
  std::vector<std::string> calls = {"/update_weight_version", GetParam().version};
  calls.insert(calls.end(), GetParam().swap.begin(), GetParam().swap.end());
  EXPECT_EQ(ControlCalls(), calls);
  // Cached prefixes of one version are not found by samples of another.
  Submit(*engine, Request(2));
  ASSERT_TRUE(RunUntilIdle(*engine));
  std::set<std::string> salts;
  for (const Json& body : GenerateCalls()) {
    const char* key = body.contains("cache_salt") ? "cache_salt" : "extra_key";
    salts.insert(body.at(key).get<std::string>());
  }
  EXPECT_THAT(salts, SizeIs(2));
}

class VllmEngineTest : public ServerFixture {};
INSTANTIATE_TEST_SUITE_P(Kinds, VllmEngineTest, testing::Values(ServerKinds()[0]), ServerKindName);

TEST_P(VllmEngineTest, RecomputesTheCacheIfAsked) {
  options_.server.recompute_kv = true;
  const auto engine = Started();
  Load(*engine, Lane::kRollout, 2);
  const Json log = Ask().at("log");
  const auto pause =
      std::ranges::find_if(log, [](const Json& c) { return c.at("path") == "/pause"; });
  ASSERT_NE(pause, log.end());
  EXPECT_EQ(pause->at("query").at("clear_cache"), "true");
  EXPECT_THAT(ControlCalls(), testing::Not(testing::Contains("/reset_prefix_cache")));
}

TEST_P(ServerEngineTest, ReturnsAndContinuesPartialResponses) {
  const auto engine = Started();
  Tell({{"hold_after", 4}});
  GenerationRequest request = Request(1, 2);
  request.on_token = [](const GeneratedToken&) {};
  Submit(*engine, std::move(request));
  ASSERT_TRUE(RunUntilTokens(*engine, 8));
  std::vector<GenerationOutput> partials = engine->Cancel(1);
  ASSERT_THAT(partials, SizeIs(2));
  for (const GenerationOutput& partial : partials) {
    EXPECT_THAT(partial.response.response_ids, SizeIs(4));
    EXPECT_THAT(partial.response.spans, ElementsAre(Span{{0, 1}, 0, 4}));
    EXPECT_EQ(partial.response.finish, FinishReason::kNone);
  }
  EXPECT_TRUE(engine->Idle());
  EXPECT_THAT(engine->Cancel(1), IsEmpty());
  Tell({{"hold_after", nullptr}});
  Load(*engine, Lane::kRollout, 2);
  request = Request(2, 2);
  const std::vector<int32_t> kept = partials[0].response.response_ids;
  for (GenerationOutput& partial : partials)
    request.partials.push_back(std::move(partial.response));
  Submit(*engine, std::move(request));
  ASSERT_TRUE(RunUntilIdle(*engine));
  const Response& response = responses_[{2, 0}];
  EXPECT_THAT(response.response_ids, SizeIs(8));
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), response.response_ids.begin()));
  EXPECT_THAT(response.spans, ElementsAre(Span{{0, 1}, 0, 4}, Span{{0, 2}, 4, 8}));
}

TEST_P(ServerEngineTest, WaitsWhilePausedAndKeepsTokens) {
  const auto engine = Started();
  Tell({{"hold_after", 3}});
  GenerationRequest request = Request(1);
  request.on_token = [](const GeneratedToken&) {};
  Submit(*engine, std::move(request));
  ASSERT_TRUE(RunUntilTokens(*engine, 3));
  engine->Pause(true);
  EXPECT_TRUE(engine->Idle());
  ASSERT_TRUE(engine->Poll().ok());
  EXPECT_EQ(Ask().at("running"), 0);
  Tell({{"hold_after", nullptr}});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine->Poll().ok());
  EXPECT_EQ(engine->stats().tokens_generated, 3);
  engine->Pause(false);
  ASSERT_TRUE(RunUntilIdle(*engine));
  EXPECT_THAT((responses_[{1, 0}].response_ids), SizeIs(8));
  EXPECT_THAT((responses_[{1, 0}].spans), ElementsAre(Span{{0, 1}, 0, 8}));
}

TEST_P(ServerEngineTest, GeneratesEvaluationsWithTheirOwnVersion) {
  const auto engine = Started();
  Tell({{"hold_after", 2}});
  GenerationRequest rollout = Request(1);
  rollout.on_token = [](const GeneratedToken&) {};
  Submit(*engine, std::move(rollout));
  ASSERT_TRUE(RunUntilTokens(*engine, 2));
  Load(*engine, Lane::kEvaluation, 1);
  Load(*engine, Lane::kRollout, 2);
  EXPECT_EQ(engine->version(Lane::kEvaluation), (PolicyVersion{0, 1}));
  EXPECT_EQ(engine->version(Lane::kRollout), (PolicyVersion{0, 2}));
  GenerationRequest evaluation = Request(-5);
  evaluation.prompt_ids = {9};
  evaluation.lane = Lane::kEvaluation;
  evaluation.sampling.top_p = 0.5;
  Submit(*engine, std::move(evaluation));
  Submit(*engine, Request(2));
  Tell({{"hold_after", nullptr}});
  ASSERT_TRUE(RunUntilIdle(*engine));
  EXPECT_THAT((responses_[{-5, 0}].spans), ElementsAre(Span{{0, 1}, 0, 8}));
  EXPECT_THAT((responses_[{-5, 0}].sampling_logprobs), SizeIs(8));
  EXPECT_THAT((responses_[{1, 0}].response_ids), SizeIs(8));
  EXPECT_THAT((responses_[{2, 0}].spans), ElementsAre(Span{{0, 2}, 0, 8}));
  EXPECT_THAT(errors_, IsEmpty());
  EXPECT_EQ(engine->stats().tokens_generated_evaluation, 8);
}

TEST_P(ServerEngineTest, SendsNothingThatTheServerCannotTake) {
  options_.max_sequences = 4;
  const auto engine = Started();
  GenerationRequest outside = Request(1);
  outside.prompt_ids = {1, 32};  // would end the server
  EXPECT_EQ(engine->Submit(outside).code(), absl::StatusCode::kInvalidArgument);
  outside.prompt_ids = {-1};
  EXPECT_EQ(engine->Submit(outside).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Submit(Request(1, 1, 62)).code(), absl::StatusCode::kInvalidArgument);
  using Change = std::function<void(SamplingParams&)>;
  for (const Change& change : std::vector<Change>{
           [](SamplingParams& s) { s.top_p = 0.9; }, [](SamplingParams& s) { s.top_k = 5; },
           [](SamplingParams& s) { s.min_p = 0.1; },
           [](SamplingParams& s) { s.repetition_penalty = 1.1; },
           [](SamplingParams& s) { s.presence_penalty = 0.1; },
           [](SamplingParams& s) { s.frequency_penalty = 0.1; },
           [](SamplingParams& s) {
             s.logit_bias = {{1, 2.0F}};
           },
           [](SamplingParams& s) { s.min_new_tokens = 1; },
           [](SamplingParams& s) { s.top_logprobs = 1; }}) {
    GenerationRequest request = Request(1);
    change(request.sampling);
    EXPECT_EQ(engine->Submit(request).code(), absl::StatusCode::kInvalidArgument);
  }
  Submit(*engine, Request(1, 3));
  EXPECT_EQ(engine->Admissible(3, 2, {}, 9), 0);
  EXPECT_EQ(engine->Admissible(3, 1, {}, 9), 1);
  EXPECT_EQ(engine->Submit(Request(2, 2)).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(RunUntilIdle(*engine));
  EXPECT_THAT(GenerateCalls(), SizeIs(3));
}

TEST_P(ServerEngineTest, HasNoWeightsAtFirstAndRefusesThoseOfAnotherModel) {
  const auto engine = MakeEngine();
  EXPECT_TRUE(engine->Idle());
  EXPECT_EQ(engine->version(Lane::kRollout), (PolicyVersion{-1, -1}));
  EXPECT_EQ(engine->Submit(Request(1)).code(), absl::StatusCode::kFailedPrecondition);
  ModelConfig other = ServedConfig();
  other.intermediate_size = 16;
  EXPECT_EQ(engine->LoadWeights(Lane::kRollout, ServedWeights(other, {0, 1})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->LoadWeights(Lane::kRollout, ServedWeights(ServedConfig(), {0, 1}, true)).code(),
            absl::StatusCode::kInternal);
  EXPECT_TRUE(engine->Idle());
  EXPECT_THAT(scratch_.Read("serve"), IsEmpty()) << "no server was asked for";
}

TEST_P(ServerEngineTest, TakesOverAServerOfTheSameModel) {
  Started();
  const std::string name = scratch_.Read("serve");
  const auto next = MakeEngine("b");
  Load(*next, Lane::kRollout, 7);
  EXPECT_EQ(next->version(Lane::kRollout), (PolicyVersion{0, 7}));
  EXPECT_EQ(scratch_.Read("serve"), name);
  Submit(*next, Request(1));
  ASSERT_TRUE(RunUntilIdle(*next));
  EXPECT_THAT((responses_[{1, 0}].spans), ElementsAre(Span{{0, 7}, 0, 8}));
  // Also after its weights were replaced.
  const auto again = MakeEngine("d");
  Load(*again, Lane::kRollout, 8);
  EXPECT_EQ(again->version(Lane::kRollout), (PolicyVersion{0, 8}));
  EXPECT_EQ(scratch_.Read("serve"), name);
  // Another model needs another server.
  ModelConfig other = ServedConfig();
  other.intermediate_size = 16;
  const auto third = MakeEngine("c", other);
  ASSERT_TRUE(third->LoadWeights(Lane::kRollout, ServedWeights(other, {0, 1})).ok());
  EXPECT_NE(scratch_.Read("serve"), name);
  EXPECT_TRUE(RunUntil(*third, [&] { return third->version(Lane::kRollout).version == 1; }));
}

// Also if tokens of the old version arrive while the new weights are loaded.
TEST_P(ServerEngineTest, ShownTokensHaveTheVersionOfTheirSpan) {
  const auto engine = Started();
  Tell({{"hold_after", 3}});
  GenerationRequest request = Request(1);
  std::vector<GeneratedToken> shown;
  request.on_token = [&](const GeneratedToken& token) { shown.push_back(token); };
  Submit(*engine, std::move(request));
  ASSERT_TRUE(RunUntilTokens(*engine, 3));
  Load(*engine, Lane::kRollout, 2);
  Tell({{"hold_after", nullptr}});
  ASSERT_TRUE(RunUntilIdle(*engine));
  EXPECT_THAT((responses_[{1, 0}].spans), ElementsAre(Span{{0, 1}, 0, 3}, Span{{0, 2}, 3, 8}));
  EXPECT_THAT(GenerateCalls(), SizeIs(2));
  ASSERT_THAT(shown, SizeIs(8));
  for (size_t i = 0; i < shown.size(); ++i) {
    EXPECT_EQ(shown[i].policy, (PolicyVersion{0, i < 3 ? 1 : 2}));
  }
}

class SglangEngineTest : public ServerFixture {};
INSTANTIATE_TEST_SUITE_P(Kinds, SglangEngineTest, testing::Values(ServerKinds()[1]),
                         ServerKindName);

TEST_P(SglangEngineTest, ContinuesOnNewWeightsWithItsTokensInThePrompt) {
  const auto engine = Started();
  Tell({{"hold_after", 3}});
  GenerationRequest request = Request(1);
  std::vector<int32_t> prompt = request.prompt_ids;
  request.on_token = [](const GeneratedToken&) {};
  Submit(*engine, std::move(request));
  ASSERT_TRUE(RunUntilTokens(*engine, 3));
  Load(*engine, Lane::kRollout, 2);
  Tell({{"hold_after", nullptr}});
  ASSERT_TRUE(RunUntilIdle(*engine));
  const Response& response = responses_[{1, 0}];
  EXPECT_THAT(response.spans, ElementsAre(Span{{0, 1}, 0, 3}, Span{{0, 2}, 3, 8}));
  const std::vector<Json> calls = GenerateCalls();
  ASSERT_THAT(calls, SizeIs(2));
  prompt.insert(prompt.end(), response.response_ids.begin(), response.response_ids.begin() + 3);
  EXPECT_EQ(calls[1].at("input_ids"), Json(prompt));
  EXPECT_EQ(calls[1].at("sampling_params").at("max_new_tokens"), 5);
}

TEST_P(SglangEngineTest, TakesPiecesWithAllTokensSoFar) {
  const auto engine = Started();
  GenerationRequest request = Request(1, 2);
  request.on_token = [](const GeneratedToken&) {};
  Submit(*engine, request);
  ASSERT_TRUE(RunUntilIdle(*engine));
  const Response pieces = responses_[{1, 1}];
  responses_.clear();
  Tell({{"cumulative", true}});
  Submit(*engine, request);
  ASSERT_TRUE(RunUntilIdle(*engine));
  EXPECT_EQ((responses_[{1, 1}].response_ids), pieces.response_ids);
  EXPECT_EQ((responses_[{1, 1}].behavior_logprobs), pieces.behavior_logprobs);
}

TEST_P(SglangEngineTest, FillsTheContextThatTheServerHas) {
  const auto engine = Started();
  EXPECT_EQ(engine->Submit(Request(1, 1, 60)).code(), absl::StatusCode::kInvalidArgument);
  Submit(*engine, Request(1, 1, 59));  // 3 + 59 = 64 - 2
  ASSERT_TRUE(RunUntilIdle(*engine));
  EXPECT_THAT((responses_[{1, 0}].response_ids), SizeIs(59));
}

}  // namespace
}  // namespace freshet
