#include "rollout/engine/engine_scheduler.h"

#include <cmath>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "base/random.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rollout/engine/kv_cache.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kVocabulary = 8;
constexpr int32_t kStop = 7;

// A scheduler without a model. The logits make every sample draw `next_` or, if it is not empty,
// the token of `text_` at its position.
class EngineSchedulerTest : public testing::Test {
 protected:
  // With a cache of `blocks_`.
  EngineScheduler Make(const EngineLimits& limits) {
    ModelConfig config;
    config.vocab_size = kVocabulary;
    config.hidden_size = 8;
    config.num_hidden_layers = 1;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 1;
    config.head_dim = 4;
    config.intermediate_size = 8;
    config.max_position_embeddings = 256;
    return EngineScheduler(config, limits, caches_.emplace_back(KvCacheShape{1, 1, 4}, blocks_));
  }
  static GenerationRequest Request(int64_t id, int64_t prompt_tokens, int32_t samples = 1,
                                   Lane lane = Lane::kRollout) {
    GenerationRequest request;
    request.id = id;
    request.lane = lane;
    request.prompt_ids.assign(static_cast<size_t>(prompt_tokens), 1);
    for (int32_t i = 0; i < samples; ++i) request.sample_indices.push_back(i);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = 4;
    request.sampling.stop_ids = {kStop};
    return request;
  }
  std::vector<GenerationOutput> Accept(EngineScheduler& scheduler, const EngineBatch& batch,
                                       int64_t version = 3, Lane lane = Lane::kRollout) const {
    std::vector<float> logits(batch.wants.size() * kVocabulary, 0.0F);
    for (size_t row = 0; row < batch.wants.size(); ++row) {
      const auto position =
          static_cast<size_t>(batch.positions[static_cast<size_t>(batch.wants[row].row)]);
      const int32_t next = text_.empty() ? next_ : text_.at(position + 1);
      logits[row * kVocabulary + static_cast<size_t>(next)] = 5;
    }
    ThreadPool pool(1);
    return scheduler.Accept(lane, batch, logits.data(), {0, version}, pool);
  }
  // One turn of the rollout lane.
  std::vector<GenerationOutput> Turn(EngineScheduler& scheduler, int64_t version = 3) const {
    const EngineBatch batch = scheduler.Fill(Lane::kRollout);
    return Accept(scheduler, batch, version);
  }

  EngineLimits limits_{.max_sequences = 16, .max_batch_tokens = 64};
  int64_t blocks_ = 64;
  std::deque<KvCache> caches_;
  int32_t next_ = 2;
  std::vector<int32_t> text_;
};

TEST_F(EngineSchedulerTest, APromptIsComputedOnceForAllItsSamples) {
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(Request(1, 20, 3)).ok());
  const EngineBatch prefill = scheduler.Fill(Lane::kRollout);
  EXPECT_EQ(prefill.size(), 20);
  ASSERT_THAT(prefill.wants, SizeIs(1));
  EXPECT_EQ(prefill.wants[0].row, 19);
  EXPECT_THAT(Accept(scheduler, prefill), IsEmpty());
  EXPECT_EQ(scheduler.stats().tokens_generated, 3) << "each sample drew from the same row";
  EXPECT_EQ(scheduler.stats().tokens_prefilled, 20);
  const EngineBatch decode = scheduler.Fill(Lane::kRollout);
  EXPECT_THAT(decode.token_ids, ElementsAre(2, 2, 2));
  EXPECT_THAT(decode.positions, ElementsAre(20, 20, 20));
}

TEST_F(EngineSchedulerTest, RunningSamplesNeverWaitForALongPrompt) {
  limits_.max_batch_tokens = 8;
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(Request(1, 4, 2)).ok());
  Turn(scheduler);
  ASSERT_TRUE(scheduler.Submit(Request(2, 30)).ok());
  const EngineBatch batch = scheduler.Fill(Lane::kRollout);
  EXPECT_EQ(batch.size(), 8);
  EXPECT_THAT(batch.wants, SizeIs(2)) << "two decoded tokens; the prompt is not done";
  EXPECT_THAT(batch.positions, ElementsAre(4, 4, 0, 1, 2, 3, 4, 5));
}

TEST_F(EngineSchedulerTest, SamplesEndWithAStopTokenOrAtTheirLimit) {
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(Request(1, 4)).ok());
  ASSERT_TRUE(scheduler.Submit(Request(2, 4)).ok());
  for (int turn = 0; turn < 3; ++turn) EXPECT_THAT(Turn(scheduler), IsEmpty());
  next_ = kStop;
  const std::vector<GenerationOutput> outputs = Turn(scheduler);
  ASSERT_THAT(outputs, SizeIs(2));
  EXPECT_EQ(outputs[0].response.finish, FinishReason::kStop) << "a stop token at the limit";
  EXPECT_THAT(outputs[0].response.response_ids, ElementsAre(2, 2, 2, kStop));
  EXPECT_FALSE(scheduler.HasWork(Lane::kRollout));

  next_ = 2;
  ASSERT_TRUE(scheduler.Submit(Request(3, 4)).ok());
  for (int turn = 0; turn < 3; ++turn) EXPECT_THAT(Turn(scheduler), IsEmpty());
  EXPECT_EQ(Turn(scheduler).at(0).response.finish, FinishReason::kLength);
}

TEST_F(EngineSchedulerTest, AStopStringEndsASampleAlsoWhereKeptTokensBeginIt) {
  const auto tokenizer = *CreateCharTokenizer("abcdefg");
  GenerationRequest request = Request(1, 4);
  request.sampling.max_new_tokens = 8;
  request.sampling.stop_strings =
      std::make_shared<const StopStrings>(std::vector<std::string>{"dcc"}, *tokenizer);
  Response kept;
  kept.response_ids = {2, 3};  // "cd"
  kept.behavior_logprobs = {0, 0};
  kept.loss_mask = {1, 1};
  kept.spans = {{{0, 3}, 0, 2}};
  request.partials = {kept};
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
  std::vector<GenerationOutput> outputs;
  for (int turn = 0; turn < 4 && outputs.empty(); ++turn) outputs = Turn(scheduler);
  ASSERT_THAT(outputs, SizeIs(1));
  EXPECT_EQ(outputs[0].response.finish, FinishReason::kStop);
  EXPECT_THAT(outputs[0].response.response_ids, ElementsAre(2, 3, 2, 2));
}

TEST_F(EngineSchedulerTest, PenaltiesCountPromptKeptAndNewTokens) {
  GenerationRequest request = Request(1, 4);  // the prompt is token 1
  request.sampling.frequency_penalty = 2;
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
  std::vector<GenerationOutput> outputs;
  for (int turn = 0; turn < 5 && outputs.empty(); ++turn) outputs = Turn(scheduler);
  ASSERT_THAT(outputs, SizeIs(1));
  // The logit of 2 is 5, then 3, 1 and -1; all others are 0.
  EXPECT_THAT(outputs[0].response.response_ids, ElementsAre(2, 2, 2, 0));
  EXPECT_THAT(outputs[0].response.sampling_logprobs, SizeIs(4));
}

TEST_F(EngineSchedulerTest, RefusesIdsOutsideOfTheVocabulary) {
  EngineScheduler scheduler = Make(limits_);
  GenerationRequest request = Request(1, 4);
  request.sampling.logit_bias = {{8, 1.0F}};
  EXPECT_THAT(Message(scheduler.Submit(request)), HasSubstr("logit_bias of token 8 is outside"));
  request.sampling.logit_bias.clear();
  request.sampling.min_new_tokens = 1;
  request.sampling.stop_ids = {-1};
  EXPECT_THAT(Message(scheduler.Submit(request)), HasSubstr("stop token -1 is outside"));
}

TEST_F(EngineSchedulerTest, TokensCarryTheVersionThatDrewThem) {
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(Request(1, 4)).ok());
  Turn(scheduler, 3);
  Turn(scheduler, 3);
  Turn(scheduler, 4);
  const std::vector<GenerationOutput> outputs = Turn(scheduler, 4);
  ASSERT_THAT(outputs, SizeIs(1));
  EXPECT_THAT(outputs[0].response.spans, ElementsAre(Span{{0, 3}, 0, 2}, Span{{0, 4}, 2, 4}));
}

TEST_F(EngineSchedulerTest, ReportsEveryTokenAsItIsDrawn) {
  EngineScheduler scheduler = Make(limits_);
  std::vector<GeneratedToken> tokens;
  GenerationRequest request = Request(1, 4, 2);
  request.sampling.max_new_tokens = 2;
  request.on_token = [&](const GeneratedToken& token) { tokens.push_back(token); };
  ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
  Turn(scheduler, 3);
  ASSERT_THAT(tokens, SizeIs(2));
  EXPECT_EQ(tokens[1].sample_index, 1);
  EXPECT_EQ(tokens[1].token.id, next_);
  EXPECT_EQ(tokens[1].policy, (PolicyVersion{0, 3}));
  EXPECT_EQ(tokens[1].finish, FinishReason::kNone);
  EXPECT_THAT(Turn(scheduler, 4), SizeIs(2));
  ASSERT_THAT(tokens, SizeIs(4));
  EXPECT_EQ(tokens[3].policy, (PolicyVersion{0, 4}));
  EXPECT_EQ(tokens[3].finish, FinishReason::kLength);
}

TEST_F(EngineSchedulerTest, WhatEndsGivesItsBlocksBack) {
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(Request(1, 20, 4)).ok());
  ASSERT_TRUE(scheduler.Submit(Request(2, 33, 2)).ok());
  Turn(scheduler);
  EXPECT_LT(scheduler.stats().cache_blocks_free, 64);
  EXPECT_THAT(scheduler.Cancel(2), SizeIs(2));
  next_ = kStop;
  EXPECT_THAT(Turn(scheduler), SizeIs(4));
  EXPECT_EQ(scheduler.stats().cache_blocks_free, 64);
  EXPECT_EQ(scheduler.stats().running_sequences, 0);
  EXPECT_EQ(scheduler.Admissible(20, 4, Request(1, 20).sampling, 100), 4) << "16 samples";
}

TEST_F(EngineSchedulerTest, KeptTokensAreComputedBeforeOneIsDrawn) {
  EngineScheduler scheduler = Make(limits_);
  GenerationRequest request = Request(1, 4);
  Response kept;
  kept.response_ids = {5, 6};
  kept.behavior_logprobs = {-1, -1};
  kept.loss_mask = {1, 1};
  kept.spans = {{{0, 2}, 0, 2}};
  request.partials = {kept};
  ASSERT_TRUE(scheduler.Submit(request).ok());
  Turn(scheduler);
  const EngineBatch batch = scheduler.Fill(Lane::kRollout);
  EXPECT_THAT(batch.token_ids, ElementsAre(5, 6));
  ASSERT_THAT(batch.wants, SizeIs(1));
  EXPECT_EQ(batch.wants[0].row, 1);
  Accept(scheduler, batch);
  const std::vector<GenerationOutput> partial = scheduler.Cancel(1);
  ASSERT_THAT(partial, SizeIs(1));
  EXPECT_THAT(partial[0].response.response_ids, ElementsAre(5, 6, 2));
}

// The prompt's last token has logit 5 for token 2 and 0 for the seven others.
TEST_F(EngineSchedulerTest, ATruncatedTokenHasBothLogprobs) {
  const float whole = static_cast<float>(-std::log(1 + 7 * std::exp(-5.0)));
  for (const double temperature : {1.0, 0.0}) {
    EngineScheduler scheduler = Make(limits_);
    GenerationRequest request = Request(1, 4);
    request.sampling.temperature = temperature;
    request.sampling.top_k = 1;
    ASSERT_TRUE(scheduler.Submit(request).ok());
    Turn(scheduler);
    Turn(scheduler);
    const Response response = scheduler.Cancel(1).at(0).response;
    EXPECT_THAT(response.behavior_logprobs, Each(testing::FloatNear(whole, 1e-6F)));
    if (temperature == 0.0) {
      EXPECT_THAT(response.sampling_logprobs, IsEmpty()) << "greedy";
    } else {
      EXPECT_THAT(response.sampling_logprobs, ElementsAre(0.0F, 0.0F));
    }
  }
}

TEST_F(EngineSchedulerTest, AMixedResponseHasASamplingLogprobPerToken) {
  Response kept;
  kept.response_ids = {5, 6};
  kept.behavior_logprobs = {-1, -2};
  kept.loss_mask = {1, 1};
  kept.spans = {{{0, 2}, 0, 2}};
  for (const bool cut_before : {false, true}) {
    EngineScheduler scheduler = Make(limits_);
    GenerationRequest request = Request(1, 4);
    request.sampling.temperature = 1;
    request.sampling.top_k = cut_before ? 0 : 1;
    if (cut_before) kept.sampling_logprobs = {-0.5, -0.25};
    request.partials = {kept};
    ASSERT_TRUE(scheduler.Submit(request).ok());
    Turn(scheduler);
    Turn(scheduler);
    const Response response = scheduler.Cancel(1).at(0).response;
    ASSERT_THAT(response.behavior_logprobs, SizeIs(3));
    if (cut_before) {
      EXPECT_THAT(response.sampling_logprobs,
                  ElementsAre(-0.5F, -0.25F, response.behavior_logprobs[2]));
    } else {
      EXPECT_THAT(response.sampling_logprobs, ElementsAre(-1, -2, 0));
    }
  }
}

TEST_F(EngineSchedulerTest, AColumnOfSamplingLogprobsIsWholeOrEmpty) {
  EngineScheduler scheduler = Make(limits_);
  GenerationRequest request = Request(1, 4);
  Response kept;
  kept.response_ids = {5, 6};
  kept.behavior_logprobs = {-1, -2};
  kept.loss_mask = {1, 1};
  kept.spans = {{{0, 2}, 0, 2}};
  kept.sampling_logprobs = {-1};
  request.partials = {kept};
  EXPECT_EQ(scheduler.Submit(request).code(), absl::StatusCode::kInvalidArgument);
}

// Runs the only request to its end; returns how many tokens were computed for it.
int64_t RunAlone(const std::function<std::vector<GenerationOutput>(const EngineBatch&)>& accept,
                 EngineScheduler& scheduler, GenerationRequest request, Response* response) {
  int64_t computed = 0;
  EXPECT_TRUE(scheduler.Submit(std::move(request)).ok());
  while (scheduler.HasWork(Lane::kRollout)) {
    const EngineBatch batch = scheduler.Fill(Lane::kRollout);
    computed += batch.size();
    for (GenerationOutput& output : accept(batch)) *response = std::move(output.response);
  }
  return computed;
}

TEST_F(EngineSchedulerTest, ALaterTurnComputesOnlyItsNewTokens) {
  EngineScheduler scheduler = Make(limits_);
  const auto accept = [&](const EngineBatch& batch) { return Accept(scheduler, batch); };
  GenerationRequest request = Request(1, 40);
  request.sampling.max_new_tokens = 30;
  Response response;
  EXPECT_EQ(RunAlone(accept, scheduler, request, &response), 40 + 29);
  EXPECT_EQ(scheduler.stats().cache_blocks_free, 64) << "what is kept is free for others";

  // The same prompt: its last token is computed for its logits, with the block it is in.
  EXPECT_EQ(RunAlone(accept, scheduler, request, &response), 40 - 32 + 29);
  EXPECT_EQ(scheduler.stats().tokens_reused, 32);

  // The response continues with 10 tokens of an observation. Blocks hold the first 64 of the 69
  // tokens that were computed.
  response.finish = FinishReason::kNone;
  response.response_ids.insert(response.response_ids.end(), 10, 3);
  response.behavior_logprobs.resize(40);
  response.loss_mask.resize(40);
  request.sampling.max_new_tokens = 42;
  request.partials = {response};
  EXPECT_EQ(RunAlone(accept, scheduler, request, &response), (40 - 32) + (80 - 64) + 1);
  EXPECT_EQ(response.response_ids.size(), 42U);
}

TEST_F(EngineSchedulerTest, NewWeightsHideWhatOldOnesComputed) {
  for (const bool recompute : {false, true}) {
    EngineScheduler scheduler = Make(limits_);
    const auto accept = [&](const EngineBatch& batch) { return Accept(scheduler, batch); };
    Response response;
    RunAlone(accept, scheduler, Request(1, 40), &response);
    ASSERT_TRUE(scheduler.Submit(Request(2, 40)).ok());
    Turn(scheduler);  // runs with both versions
    scheduler.WeightsChanged(Lane::kRollout, recompute);
    ASSERT_TRUE(scheduler.Submit(Request(3, 40)).ok());
    EXPECT_EQ(scheduler.Fill(Lane::kRollout).size(), 40 + (recompute ? 24 : 1));
    scheduler.Cancel(2);
    scheduler.Cancel(3);
    EXPECT_EQ(RunAlone(accept, scheduler, Request(4, 40), &response), 40 + 3)
        << "the forward pass of the batch before failed";
    EXPECT_EQ(RunAlone(accept, scheduler, Request(5, 40), &response), 8 + 3);
  }
}

TEST_F(EngineSchedulerTest, LanesDoNotShareTheCache) {
  EngineScheduler scheduler = Make(limits_);
  const auto accept = [&](const EngineBatch& batch) { return Accept(scheduler, batch); };
  Response response;
  RunAlone(accept, scheduler, Request(1, 40), &response);
  ASSERT_TRUE(scheduler.Submit(Request(2, 40, 1, Lane::kEvaluation)).ok());
  EXPECT_EQ(scheduler.Fill(Lane::kEvaluation).size(), 40);
}

TEST_F(EngineSchedulerTest, WhatIsKeptMakesRoomForOtherTokens) {
  blocks_ = 6;
  EngineScheduler scheduler = Make(limits_);
  const auto accept = [&](const EngineBatch& batch) { return Accept(scheduler, batch); };
  Response response;
  RunAlone(accept, scheduler, Request(1, 60), &response);
  GenerationRequest other = Request(2, 60);
  other.prompt_ids.assign(60, 4);
  EXPECT_EQ(RunAlone(accept, scheduler, other, &response), 60 + 3);
  EXPECT_EQ(RunAlone(accept, scheduler, other, &response), 12 + 3);
  EXPECT_EQ(scheduler.stats().cache_blocks_free, 6);
}

TEST_F(EngineSchedulerTest, AForgottenCacheIsComputedAgain) {
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(Request(1, 20, 2)).ok());
  Turn(scheduler);
  Turn(scheduler);
  const int64_t free = scheduler.stats().cache_blocks_free;
  scheduler.WeightsChanged(Lane::kRollout, /*recompute=*/true);
  const EngineBatch batch = scheduler.Fill(Lane::kRollout);
  EXPECT_EQ(batch.size(), 20);
  Accept(scheduler, batch);
  EXPECT_EQ(scheduler.stats().cache_blocks_free, free);
}

TEST_F(EngineSchedulerTest, TheLanesAreApart) {
  EngineScheduler scheduler = Make(limits_);
  ASSERT_TRUE(scheduler.Submit(Request(1, 4, 1, Lane::kEvaluation)).ok());
  EXPECT_FALSE(scheduler.HasWork(Lane::kRollout));
  EXPECT_EQ(scheduler.Fill(Lane::kRollout).size(), 0);
  const EngineBatch batch = scheduler.Fill(Lane::kEvaluation);
  EXPECT_EQ(batch.size(), 4);
  Accept(scheduler, batch, 9, Lane::kEvaluation);
  EXPECT_EQ(scheduler.stats().tokens_generated, 0);
  EXPECT_EQ(scheduler.stats().tokens_generated_evaluation, 1);
}

TEST_F(EngineSchedulerTest, TheNewestRequestsGiveTheirBlocksUpAndLoseNoTokens) {
  blocks_ = 6;
  limits_.expected_new_tokens = 1;
  EngineScheduler scheduler = Make(limits_);
  // Each takes 2 blocks to begin with, and 4 at its longest.
  for (int64_t id = 1; id <= 2; ++id) {
    GenerationRequest request = Request(id, 16);
    request.prompt_ids.assign(16, static_cast<int32_t>(id));
    request.sampling.max_new_tokens = 40;
    ASSERT_TRUE(scheduler.Submit(request).ok());
  }
  std::vector<GenerationOutput> finished;
  for (int turn = 0; turn < 200 && scheduler.HasWork(Lane::kRollout); ++turn) {
    for (GenerationOutput& output : Turn(scheduler)) finished.push_back(std::move(output));
    if (scheduler.stats().preemptions > 0 && finished.empty()) {
      EXPECT_EQ(scheduler.Admissible(16, 1, Request(3, 16).sampling, 1), 0)
          << "the second request comes first";
    }
  }
  EXPECT_EQ(scheduler.stats().preemptions, 1);
  ASSERT_THAT(finished, SizeIs(2));
  EXPECT_EQ(finished[0].request_id, 1);
  for (const GenerationOutput& output : finished) {
    EXPECT_THAT(output.response.response_ids, SizeIs(40));
    EXPECT_THAT(output.response.behavior_logprobs, SizeIs(40));
    EXPECT_EQ(output.response.finish, FinishReason::kLength);
  }
  EXPECT_EQ(scheduler.stats().tokens_generated, 80) << "no token was sampled twice";
  EXPECT_EQ(scheduler.stats().cache_blocks_free, 6);
  EXPECT_EQ(scheduler.Admissible(16, 1, Request(3, 16).sampling, 1), 1);
}

TEST_F(EngineSchedulerTest, ALanePreemptsTheOther) {
  blocks_ = 6;
  limits_.expected_new_tokens = 1;
  EngineScheduler scheduler = Make(limits_);
  GenerationRequest request = Request(1, 16);
  request.sampling.max_new_tokens = 60;  // 5 blocks at its longest
  ASSERT_TRUE(scheduler.Submit(request).ok());
  GenerationRequest other = Request(2, 16, 1, Lane::kEvaluation);
  other.sampling.max_new_tokens = 60;
  ASSERT_TRUE(scheduler.Submit(other).ok());
  Accept(scheduler, scheduler.Fill(Lane::kEvaluation), 3, Lane::kEvaluation);
  int64_t ended = 0;
  for (int turn = 0; turn < 60; ++turn) ended += std::ssize(Turn(scheduler));
  EXPECT_EQ(ended, 1) << "the evaluation's blocks were taken";
  EXPECT_EQ(scheduler.stats().preemptions, 1);
  const EngineBatch batch = scheduler.Fill(Lane::kEvaluation);
  EXPECT_EQ(batch.size(), 16) << "the prompt comes first";
  Accept(scheduler, batch, 3, Lane::kEvaluation);
}

// Random requests in a cache that holds few of them.
TEST_F(EngineSchedulerTest, EverySampleEndsOnceInATightCache) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    limits_ = {.max_sequences = 12, .max_batch_tokens = 24};
    blocks_ = 16;
    limits_.expected_new_tokens = 1 + static_cast<int64_t>(RandomBits(seed, 0) % 20);
    limits_.prefix_cache = seed % 2 == 0;
    limits_.speculative_tokens = static_cast<int64_t>(seed % 3) * 8;
    EngineScheduler scheduler = Make(limits_);
    uint64_t draws = 0;
    const auto random = [&](int64_t below) {
      return static_cast<int64_t>(RandomBits(seed, ++draws) % static_cast<uint64_t>(below));
    };
    std::map<std::pair<int64_t, int32_t>, int64_t> missing;  // their lengths
    int64_t next = 1;
    for (int turn = 0; turn < 400 || !missing.empty(); ++turn) {
      ASSERT_LT(turn, 20'000) << "seed " << seed;
      if (turn < 400 && random(3) == 0) {
        const Lane lane = random(4) == 0 ? Lane::kEvaluation : Lane::kRollout;
        GenerationRequest request =
            Request(next, 1 + random(40), static_cast<int32_t>(1 + random(4)), lane);
        request.sampling.max_new_tokens = static_cast<int32_t>(1 + random(40));
        const absl::Status submitted = scheduler.Submit(request);
        if (submitted.ok()) {
          for (const int32_t index : request.sample_indices) {
            missing[{next, index}] = request.sampling.max_new_tokens;
          }
          ++next;
        }
      }
      if (random(40) == 0) scheduler.WeightsChanged(Lane::kRollout, random(2) == 0);
      if (random(40) == 0 && next > 1) {
        const int64_t id = 1 + random(next - 1);
        for (const GenerationOutput& output : scheduler.Cancel(id)) {
          EXPECT_EQ(missing.erase({id, output.sample_index}), 1U);
        }
      }
      for (const Lane lane : {Lane::kRollout, Lane::kEvaluation}) {
        if (random(8) == 0) next_ = static_cast<int32_t>(random(3));
        const EngineBatch batch = scheduler.Fill(lane);
        EXPECT_LE(batch.size(), limits_.max_batch_tokens);
        if (batch.size() == 0) continue;
        for (const GenerationOutput& output : Accept(scheduler, batch, 3, lane)) {
          const auto found = missing.find({output.request_id, output.sample_index});
          ASSERT_NE(found, missing.end()) << "seed " << seed << " request " << output.request_id;
          EXPECT_EQ(std::ssize(output.response.response_ids), found->second);
          missing.erase(found);
        }
      }
    }
    EXPECT_EQ(scheduler.stats().cache_blocks_free, blocks_) << "seed " << seed;
    EXPECT_EQ(scheduler.stats().running_sequences, 0);
  }
}

TEST_F(EngineSchedulerTest, ADraftCountsAsFarAsItsTokensAreDrawn) {
  limits_.speculative_tokens = 4;
  EngineScheduler scheduler = Make(limits_);
  GenerationRequest request = Request(1, 0);
  request.prompt_ids = {1, 2, 3, 4, 5, 6, 1, 2};
  request.sampling.max_new_tokens = 20;
  text_ = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 0, 0, 0};
  ASSERT_TRUE(scheduler.Submit(request).ok());
  Turn(scheduler);
  const EngineBatch batch = scheduler.Fill(Lane::kRollout);
  EXPECT_THAT(batch.token_ids, ElementsAre(3, 4, 5, 6, 1));
  EXPECT_THAT(batch.positions, ElementsAre(8, 9, 10, 11, 12));
  EXPECT_THAT(batch.wants, SizeIs(5));
  Accept(scheduler, batch);
  EXPECT_EQ(scheduler.stats().tokens_drafted, 4);
  EXPECT_EQ(scheduler.stats().tokens_accepted, 2);
  const EngineBatch next = scheduler.Fill(Lane::kRollout);
  EXPECT_THAT(next.token_ids, ElementsAre(0)) << "nothing has followed 5, 0 yet";
  EXPECT_THAT(next.positions, ElementsAre(11));
  EXPECT_THAT(scheduler.Cancel(1).at(0).response.response_ids, ElementsAre(3, 4, 5, 0));
}

TEST_F(EngineSchedulerTest, ASampleEndsWithinADraft) {
  const auto tokenizer = *CreateCharTokenizer("abcdefg");
  limits_.speculative_tokens = 4;
  GenerationRequest token = Request(1, 0);
  token.prompt_ids = {1, 2, 3, 4, kStop, 5, 1, 2};
  token.sampling.max_new_tokens = 20;
  text_ = {1, 2, 3, 4, kStop, 5, 1, 2, 3, 4, kStop, 5, 1, 2};
  GenerationRequest string = token, length = token;
  string.sampling.stop_strings =
      std::make_shared<const StopStrings>(std::vector<std::string>{"de"}, *tokenizer);
  length.sampling.stop_ids.clear();
  length.sampling.max_new_tokens = 4;
  const struct {
    const GenerationRequest& request;
    int64_t drafted, accepted;
    std::vector<int32_t> response;
    FinishReason finish;
  } cases[] = {{token, 4, 2, {3, 4, kStop}, FinishReason::kStop},
               {string, 4, 1, {3, 4}, FinishReason::kStop},
               {length, 2, 2, {3, 4, kStop, 5}, FinishReason::kLength}};
  for (const auto& expected : cases) {
    EngineScheduler scheduler = Make(limits_);
    size_t told = 0;
    GenerationRequest request = expected.request;
    request.on_token = [&](const GeneratedToken&) { ++told; };
    ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
    Turn(scheduler);
    const std::vector<GenerationOutput> outputs = Turn(scheduler);
    ASSERT_THAT(outputs, SizeIs(1));
    EXPECT_EQ(outputs[0].response.response_ids, expected.response);
    EXPECT_EQ(outputs[0].response.finish, expected.finish);
    EXPECT_EQ(told, expected.response.size());
    EXPECT_EQ(scheduler.stats().tokens_drafted, expected.drafted);
    EXPECT_EQ(scheduler.stats().tokens_accepted, expected.accepted);
    EXPECT_EQ(scheduler.stats().cache_blocks_free, blocks_);
  }
}

TEST_F(EngineSchedulerTest, DraftsTakeTheRoomThatOthersLeave) {
  limits_.max_batch_tokens = 8;
  limits_.speculative_tokens = 8;
  EngineScheduler scheduler = Make(limits_);
  next_ = 1;  // as in the prompt
  GenerationRequest request = Request(1, 4, 2);
  request.sampling.max_new_tokens = 40;
  ASSERT_TRUE(scheduler.Submit(request).ok());
  Turn(scheduler);
  ASSERT_TRUE(scheduler.Submit(Request(2, 7)).ok());
  EXPECT_THAT(scheduler.Fill(Lane::kRollout).positions, ElementsAre(4, 4, 0, 1, 2, 3, 4, 5));
  scheduler.Cancel(1);
  scheduler.Cancel(2);
  request.id = 3;
  ASSERT_TRUE(scheduler.Submit(request).ok());
  Turn(scheduler);
  EXPECT_THAT(scheduler.Fill(Lane::kRollout).positions, ElementsAre(4, 5, 6, 7, 8, 4, 5, 6))
      << "4 tokens to begin with, then what is left";
  EXPECT_EQ(scheduler.Fill(Lane::kRollout).size(), 0) << "the forward pass failed";
  scheduler.Cancel(3);
  EXPECT_EQ(scheduler.stats().cache_blocks_free, blocks_);
}

TEST_F(EngineSchedulerTest, RefusesWhatDoesNotFit) {
  limits_.max_sequences = 4;
  blocks_ = 6;
  EngineScheduler scheduler = Make(limits_);
  EXPECT_THAT(Message(scheduler.Submit(Request(1, 100))), HasSubstr("cache blocks"));
  ASSERT_TRUE(scheduler.Submit(Request(2, 4, 3)).ok());
  EXPECT_EQ(scheduler.Submit(Request(3, 4, 2)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(scheduler.Submit(Request(4, 300)).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
