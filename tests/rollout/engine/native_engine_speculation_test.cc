#include <string>

#include "base/str_cat.h"
#include "tests/rollout/engine/engine_run.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

NativeEngineOptions Drafting(NativeEngineOptions options = {}) {
  options.speculative_tokens = 4;
  return options;
}

void ExpectSame(const Response& a, const Response& b) {
  EXPECT_EQ(a.response_ids, b.response_ids);
  EXPECT_EQ(a.behavior_logprobs, b.behavior_logprobs);
  EXPECT_EQ(a.sampling_logprobs, b.sampling_logprobs);
  EXPECT_EQ(a.loss_mask, b.loss_mask);
  EXPECT_EQ(a.spans, b.spans);
  EXPECT_EQ(a.finish, b.finish);
}

// With drafts, every response is what it is without.
class NativeEngineSpeculationTest : public EngineTest {
 protected:
  struct Outcome {
    Responses responses;
    EngineStats stats;
    int polls = 0;
  };
  Outcome Run(const std::vector<GenerationRequest>& requests, const NativeEngineOptions& options) {
    const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
    for (const GenerationRequest& request : requests) Submit(*engine, request);
    Outcome outcome;
    for (; outcome.polls < 10'000 && !engine->Idle(); ++outcome.polls) {
      Poll(*engine, outcome.responses);
    }
    ExpectNothingHeld(*engine);
    outcome.stats = engine->stats();
    return outcome;
  }
  // Runs the requests without and with drafts; returns the latter's outcome.
  Outcome Compare(const std::vector<GenerationRequest>& requests,
                  const NativeEngineOptions& options = {}) {
    const Outcome plain = Run(requests, options);
    Outcome drafted = Run(requests, Drafting(options));
    EXPECT_EQ(plain.stats.tokens_drafted, 0);
    EXPECT_EQ(drafted.stats.tokens_generated, plain.stats.tokens_generated);
    EXPECT_EQ(drafted.responses.size(), plain.responses.size());
    for (const auto& [key, response] : plain.responses) {
      SCOPED_TRACE(StrCat("request ", key.first, " sample ", key.second));
      ExpectSame(drafted.responses[key], response);
    }
    return drafted;
  }
  GenerationRequest Group(int64_t id, double temperature, int32_t samples = 8) const {
    GenerationRequest request = Request(id, 21, samples, 60);
    request.sampling.temperature = temperature;
    return request;
  }
  // Polls until a draft was accepted.
  static void PollUntilAccepted(NativeEngine& engine) {
    Responses none;
    while (engine.stats().tokens_accepted == 0 && !engine.Idle()) Poll(engine, none);
    EXPECT_TRUE(none.empty());
    ASSERT_GT(engine.stats().tokens_accepted, 0);
  }
};

TEST_F(NativeEngineSpeculationTest, GroupsStayTheSameInFewerPasses) {
  for (const ModelConfig& config : {TinyModel(), TinyMixedModel()}) {
    config_ = config;
    for (const double temperature : {0.0, 0.5, 1.0}) {
      SCOPED_TRACE(StrCat("experts ", config.num_experts, " temperature ", temperature));
      const Outcome drafted =
          Compare({Group(1, temperature), Group(2, temperature), Group(3, temperature, 1)}, {});
      EXPECT_GT(drafted.stats.tokens_accepted, 0);
      // At higher temperatures, a sample without accepted drafts may need all 60.
      if (temperature == 0) {
        EXPECT_LT(drafted.polls, 60);
      }
    }
  }
}

TEST_F(NativeEngineSpeculationTest, ChunksPreemptionAndABf16CacheChangeNothing) {
  NativeEngineOptions chunks, tight, bf16;
  chunks.max_batch_tokens = 5;
  tight.expected_new_tokens = 1;
  tight.cache_blocks = 12;
  bf16.bf16 = true;
  for (const NativeEngineOptions& options : {chunks, tight, bf16}) {
    SCOPED_TRACE(
        StrCat(options.max_batch_tokens, " tokens a batch, blocks ", options.cache_blocks));
    const Outcome drafted = Compare({Group(1, 0, 1), Group(2, 0.5, 1), Group(3, 0, 1)}, options);
    EXPECT_GT(drafted.stats.tokens_accepted, 0);
    EXPECT_EQ(drafted.stats.preemptions > 0, options.cache_blocks > 0);
  }
}

TEST_F(NativeEngineSpeculationTest, PenaltiesTruncationAndStopsChangeNothing) {
  const auto tokenizer = *CreateCharTokenizer("abcdefghijklmnopqrstuvwxyz01234");
  const Outcome whole = Run({Group(1, 0.5)}, {});
  const std::vector<int32_t>& ids = whole.responses.at({1, 3}).response_ids;
  for (size_t at = 1; at < ids.size(); at += 4) {
    SCOPED_TRACE(at);
    GenerationRequest tokens = Group(1, 0.5), texts = Group(1, 0.5), limit = Group(1, 0.5);
    tokens.sampling.stop_ids = {ids[at]};
    texts.sampling.stop_strings = std::make_shared<const StopStrings>(
        std::vector<std::string>{tokenizer->Decode({ids[at - 1], ids[at]}, false)}, *tokenizer);
    limit.sampling.max_new_tokens = static_cast<int32_t>(at);
    for (const GenerationRequest& request : {tokens, texts, limit}) Compare({request});
  }
  GenerationRequest adjusted = Group(1, 0.5);
  adjusted.sampling.top_p = 0.8;
  adjusted.sampling.frequency_penalty = 0.1;
  adjusted.sampling.min_new_tokens = 9;
  adjusted.sampling.stop_ids = {ids[2]};
  Compare({adjusted});
}

TEST_F(NativeEngineSpeculationTest, ASwapOfWeightsSeesTheSameCache) {
  for (const KvPolicy kv : {KvPolicy::kKeep, KvPolicy::kRecompute}) {
    NativeEngineOptions options;
    options.kv = kv;
    const WeightSnapshot next = RandomWeights(config_, 2, {0, 2});
    const std::unique_ptr<NativeEngine> drafting = MakeEngine(Drafting(options));
    Submit(*drafting, Group(1, 0, 1));
    PollUntilAccepted(*drafting);
    const int64_t tokens = drafting->stats().tokens_generated;
    ASSERT_TRUE(drafting->LoadWeights(Lane::kRollout, next).ok());

    const std::unique_ptr<NativeEngine> plain = MakeEngine(options);
    Submit(*plain, Group(1, 0, 1));
    Responses none;
    while (plain->stats().tokens_generated < tokens) Poll(*plain, none);
    ASSERT_TRUE(plain->LoadWeights(Lane::kRollout, next).ok());
    ExpectSame(Drain(*drafting)[{1, 0}], Drain(*plain)[{1, 0}]);
    ExpectNothingHeld(*drafting);
  }
}

TEST_F(NativeEngineSpeculationTest, CancelledSamplesGoOnElsewhere) {
  const Outcome plain = Run({Group(1, 0)}, {});
  const std::unique_ptr<NativeEngine> first = MakeEngine(Drafting());
  Submit(*first, Group(1, 0));
  PollUntilAccepted(*first);
  GenerationRequest rest = Group(1, 0);
  for (GenerationOutput& output : first->Cancel(1)) rest.partials.push_back(output.response);
  ExpectNothingHeld(*first);
  ASSERT_EQ(rest.partials.size(), 8U);
  Outcome second = Run({rest}, Drafting());
  for (const auto& [key, response] : plain.responses) ExpectSame(second.responses[key], response);
}

}  // namespace
}  // namespace freshet
