#include <cmath>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "tests/rollout/engine/engine_run.h"
#include "tests/testing/sanitized.h"

namespace freshet {
namespace {

// A sample's bits must not depend on the rest of the batch, at any matrix width. This detects
// kernels that split their sums by the number of rows.
struct Width {
  int64_t vocab, hidden, heads, kv_heads, head_dim, inner;
  bool every_part = false;  // of TinyMixedModel
};
void PrintTo(const Width& width, std::ostream* out) {
  *out << "hidden " << width.hidden << (width.every_part ? ", every part" : "");
}

class NativeEngineBatchTest : public EngineTest, public testing::WithParamInterface<Width> {
 protected:
  NativeEngineBatchTest() {
    const Width& width = GetParam();
    if (width.every_part) config_ = TinyMixedModel();
    config_.vocab_size = width.vocab;
    config_.hidden_size = width.hidden;
    config_.num_attention_heads = width.heads;
    config_.num_key_value_heads = width.kv_heads;
    config_.head_dim = width.head_dim;
    config_.intermediate_size = width.inner;
    config_.initializer_range = 1.5 / std::sqrt(static_cast<double>(width.hidden));
  }
  GenerationRequest Watched() const { return Request(100, 37, 1, 24); }
};

TEST_P(NativeEngineBatchTest, TwentyNeighboursChangeNothing) {
  const Response alone = Alone(Watched());
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  Responses responses;
  for (int64_t id = 0; id < 10; ++id) Submit(*engine, Request(id, 3 + 5 * id, 1 + id % 4));
  Poll(*engine, responses);
  Submit(*engine, Watched());
  for (int64_t id = 10; id < 20; ++id) {
    Poll(*engine, responses);
    Submit(*engine, Request(id, 3 + 5 * (id - 10), 8));
  }
  while (!engine->Idle()) Poll(*engine, responses);
  ExpectSameBits(responses[{100, 0}], alone);
}

TEST_P(NativeEngineBatchTest, ChunkedPrefillChangesNothing) {
  const Response alone = Alone(Watched());
  for (const int64_t room : {1, 7, 16, 33}) {
    NativeEngineOptions options;
    options.max_batch_tokens = room;
    SCOPED_TRACE(StrCat(room, " tokens a batch"));
    ExpectSameBits(Alone(Watched(), options), alone);
    const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
    for (int64_t id = 0; id < 6; ++id) Submit(*engine, Request(id, 9 * id + 1, 2));
    Submit(*engine, Watched());
    ExpectSameBits(Drain(*engine)[{100, 0}], alone);
  }
}

TEST_P(NativeEngineBatchTest, SiblingsChangeNothing) {
  const Response alone = Alone(Watched());
  GenerationRequest group = Watched();
  group.sample_indices = {5, 3, 0, 9, 1};
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  Submit(*engine, group);
  Responses responses = Drain(*engine);
  ASSERT_EQ(responses.size(), 5U);
  ExpectSameBits(responses[{100, 0}], alone);
}

// The second turn continues the response of the first one with an observation.
TEST_P(NativeEngineBatchTest, TheCacheOfEarlierTurnsChangesNothing) {
  NativeEngineOptions options;
  options.prefix_cache = false;
  const Response turn = Alone(Watched(), options);
  GenerationRequest next = Watched();
  next.sampling.max_new_tokens = 64;
  next.partials = {turn};
  next.partials[0].finish = FinishReason::kNone;
  for (int32_t id = 0; id < 20; ++id) {
    next.partials[0].response_ids.push_back(id);
    next.partials[0].behavior_logprobs.push_back(0);
    next.partials[0].loss_mask.push_back(0);
  }
  const Response alone = Alone(next, options);
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  Submit(*engine, Watched());
  ExpectSameBits(Drain(*engine)[{100, 0}], turn);
  for (int64_t id = 0; id < 3; ++id) Submit(*engine, Request(id, 37, 3));
  Submit(*engine, next);
  ExpectSameBits(Drain(*engine)[{100, 0}], alone);
  EXPECT_EQ(engine->stats().tokens_reused, 32 + (48 - 37));
  ExpectNothingHeld(*engine);
}

TEST_P(NativeEngineBatchTest, PreemptionChangesNothing) {
  const Response alone = Alone(Watched());
  NativeEngineOptions options;
  options.expected_new_tokens = 1;
  options.cache_blocks = 10;  // of 4 per request at its longest
  const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
  for (int64_t id = 0; id < 2; ++id) Submit(*engine, Request(id, 20, 1, 40));
  Submit(*engine, Watched());
  ExpectSameBits(Drain(*engine)[{100, 0}], alone);
  EXPECT_GT(engine->stats().preemptions, 0);
  ExpectNothingHeld(*engine);
}

TEST_P(NativeEngineBatchTest, LargeBatchesChangeNothing) {
  const Response alone = Alone(Watched());
  const std::unique_ptr<NativeEngine> engine = MakeEngine();
  for (int64_t id = 0; id < 12; ++id) Submit(*engine, Request(id, 90, 16, 8));
  Submit(*engine, Watched());
  ExpectSameBits(Drain(*engine)[{100, 0}], alone);
}

// The widest model is slow under a sanitizer.
std::vector<Width> Widths() {
  std::vector<Width> widths = {{32, 32, 4, 2, 8, 48},
                               {48, 32, 4, 2, 8, 48, true},
                               {512, 64, 8, 4, 8, 172},
                               {40, 96, 6, 2, 16, 200}};
  if (kHistoryDivisor == 1) widths.push_back({1000, 256, 8, 8, 32, 688});
  return widths;
}

INSTANTIATE_TEST_SUITE_P(Widths, NativeEngineBatchTest, testing::ValuesIn(Widths()),
                         [](const auto& tested) {
                           return StrCat("Hidden", tested.param.hidden,
                                         tested.param.every_part ? "EveryPart" : "");
                         });

}  // namespace
}  // namespace freshet
