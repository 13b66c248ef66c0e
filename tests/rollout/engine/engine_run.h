#ifndef FRESHET_TESTS_ROLLOUT_ENGINE_ENGINE_RUN_H_
#define FRESHET_TESTS_ROLLOUT_ENGINE_ENGINE_RUN_H_

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/torch_threads.h"
#include "rollout/engine/native_engine.h"
#include "tests/testing/tiny_model.h"

namespace freshet {

// Responses by (request id, sample index).
using Responses = std::map<std::pair<int64_t, int32_t>, Response>;

inline void Collect(std::vector<GenerationOutput> outputs, Responses& into) {
  for (GenerationOutput& output : outputs) {
    const std::pair<int64_t, int32_t> key(output.request_id, output.sample_index);
    EXPECT_FALSE(into.contains(key)) << "sample delivered twice";
    into[key] = std::move(output.response);
  }
}

// Creates an engine of TinyModel (or `config`) with weights of version (0, 1).
class EngineTest : public testing::Test {
 protected:
  EngineTest() { UseOneTorchThread(); }

  std::unique_ptr<NativeEngine> MakeEngine(const NativeEngineOptions& options = {},
                                           uint64_t weights = 1) {
    auto engine = NativeEngine::Create(config_, options);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.status();
      return nullptr;
    }
    EXPECT_TRUE(
        (*engine)->LoadWeights(Lane::kRollout, RandomWeights(config_, weights, {0, 1})).ok());
    return *std::move(engine);
  }

  // A request whose prompt is derived from its id.
  GenerationRequest Request(int64_t id, int64_t prompt_tokens = 5, int32_t samples = 1,
                            int32_t max_new_tokens = 20) const {
    GenerationRequest request;
    request.id = id;
    request.ordinal = id;
    request.seed = 7;
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      request.prompt_ids.push_back(
          static_cast<int32_t>((id * 13 + i * 7 + 1) % config_.vocab_size));
    }
    for (int32_t i = 0; i < samples; ++i) request.sample_indices.push_back(i);
    request.sampling.max_new_tokens = max_new_tokens;
    return request;
  }

  static void Submit(NativeEngine& engine, GenerationRequest request) {
    const absl::Status status = engine.Submit(std::move(request));
    ASSERT_TRUE(status.ok()) << status;
  }
  static void Poll(NativeEngine& engine, Responses& into) {
    auto outputs = engine.Poll();
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    Collect(*std::move(outputs), into);
  }
  // Polls until the engine is idle.
  static Responses Drain(NativeEngine& engine) {
    Responses responses;
    for (int i = 0; i < 100'000 && !engine.Idle() && !testing::Test::HasFatalFailure(); ++i) {
      Poll(engine, responses);
    }
    EXPECT_TRUE(engine.Idle());
    return responses;
  }
  // The single response of `request`, generated alone in a fresh engine.
  Response Alone(GenerationRequest request, const NativeEngineOptions& options = {},
                 uint64_t weights = 1) {
    const std::unique_ptr<NativeEngine> engine = MakeEngine(options, weights);
    const std::pair<int64_t, int32_t> key(request.id, request.sample_indices[0]);
    Submit(*engine, std::move(request));
    return Drain(*engine)[key];
  }

  static void ExpectSameBits(const Response& a, const Response& b) {
    EXPECT_EQ(a.response_ids, b.response_ids);
    EXPECT_EQ(a.behavior_logprobs, b.behavior_logprobs);
    EXPECT_EQ(a.loss_mask, b.loss_mask);
    EXPECT_EQ(a.finish, b.finish);
  }
  static void ExpectNothingHeld(const NativeEngine& engine) {
    EXPECT_EQ(engine.stats().running_sequences, 0);
    EXPECT_EQ(engine.stats().cache_blocks_free, engine.stats().cache_blocks);
  }

  ModelConfig config_ = TinyModel();
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_ENGINE_ENGINE_RUN_H_
