// Reward models in the engine: numbers, batches and the cache.
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/model_files.h"
#include "model/model_weights.h"
#include "model/safetensors.h"
#include "model/torch_threads.h"
#include "rollout/engine/native_engine.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tiny_model.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr int kPrompts = 4;

NativeEngineOptions Aten(bool bf16 = false) {
  NativeEngineOptions options;
  options.aten = true;
  options.bf16 = bf16;
  options.device = TestDeviceName();
  return options;
}

class RewardModelTest : public testing::Test {
 protected:
  RewardModelTest() { UseOneTorchThread(); }

  void SetUp() override {
    const std::string folder =
        std::string(FRESHET_SOURCE_DIR) + "/tests/model/fixtures/qwen2_reward";
    auto files = ModelFiles::Open(folder);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    ASSERT_TRUE(files_->CheckTensors().empty());
    auto reference = SafetensorsFile::Open(folder + "/reference/reference.safetensors");
    ASSERT_TRUE(reference.ok()) << reference.status();
    for (int k = 0; k < kPrompts; ++k) {
      prompts_.push_back(Read<int64_t, int32_t>(**reference, StrCat("p", k, ".input_ids")));
      expected_.push_back(Read<float, float>(**reference, StrCat("p", k, ".score")).at(0));
    }
  }

  template <typename Stored, typename T>
  static std::vector<T> Read(const SafetensorsFile& file, const std::string& name) {
    const TensorInfo* info = file.Find(name);
    EXPECT_NE(info, nullptr) << name;
    std::vector<Stored> values(info->bytes / sizeof(Stored));
    std::memcpy(values.data(), file.Data(*info).data(), info->bytes);
    return {values.begin(), values.end()};
  }

  // An engine with the weights of the directory.
  std::unique_ptr<NativeEngine> MakeEngine(const NativeEngineOptions& options = {}) const {
    const ParameterLayout layout = MakeParameterLayout(files_->config());
    std::vector<std::byte> bytes(static_cast<size_t>(layout.num_elements) * 4);
    EXPECT_TRUE(
        FillArena(*files_, layout, at::from_blob(bytes.data(), {layout.num_elements}, at::kFloat))
            .ok());
    return Load(files_->config(), {{}, MakeWeightBytes(std::move(bytes))}, options);
  }
  static std::unique_ptr<NativeEngine> Load(const ModelConfig& config,
                                            const WeightSnapshot& weights,
                                            const NativeEngineOptions& options) {
    auto engine = NativeEngine::Create(config, options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    EXPECT_TRUE((*engine)->LoadWeights(Lane::kRollout, weights).ok());
    return *std::move(engine);
  }

  static GenerationRequest Pooled(int64_t id, const std::vector<int32_t>& prompt) {
    GenerationRequest request;
    request.id = id;
    request.prompt_ids = prompt;
    request.sample_indices = {0};
    request.sampling.max_new_tokens = 0;
    request.on_score = [](float) {};
    return request;
  }

  // The scores of `prompts`, all submitted at once.
  static std::vector<float> Scores(NativeEngine& engine,
                                   const std::vector<std::vector<int32_t>>& prompts) {
    std::vector<float> scores(prompts.size(), std::numeric_limits<float>::quiet_NaN());
    for (size_t i = 0; i < prompts.size(); ++i) {
      GenerationRequest request = Pooled(static_cast<int64_t>(i), prompts[i]);
      request.on_score = [&scores, i](float score) { scores[i] = score; };
      const absl::Status status = engine.Submit(std::move(request));
      EXPECT_TRUE(status.ok()) << status;
    }
    size_t finished = 0;
    for (int turn = 0; turn < 1000 && !engine.Idle(); ++turn) {
      const auto outputs = engine.Poll();
      EXPECT_TRUE(outputs.ok()) << outputs.status();
      if (!outputs.ok()) break;
      for (const GenerationOutput& output : *outputs) {
        EXPECT_TRUE(output.error.ok()) << output.error;
        EXPECT_TRUE(output.response.response_ids.empty());
        ++finished;
      }
    }
    EXPECT_EQ(finished, prompts.size());
    EXPECT_EQ(engine.stats().running_sequences, 0);
    EXPECT_EQ(engine.stats().cache_blocks_free, engine.stats().cache_blocks);
    return scores;
  }

  static void ExpectNear(const std::vector<float>& scores, const std::vector<float>& expected,
                         float bound) {
    ASSERT_EQ(scores.size(), expected.size());
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_NEAR(scores[i], expected[i], bound) << "prompt " << i;
    }
  }

  std::unique_ptr<ModelFiles> files_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<float> expected_;
};

TEST_F(RewardModelTest, ScoresAreThoseOfTheReference) {
  ExpectNear(Scores(*MakeEngine(), prompts_), expected_, 1e-4F);
  ExpectNear(Scores(*MakeEngine(Aten()), prompts_), expected_, 1e-4F);
}

// The weights are stored in bf16; activations lose 8 bits, the head none.
TEST_F(RewardModelTest, Bf16ScoresAreCloseAndNotRounded) {
  NativeEngineOptions bf16;
  bf16.bf16 = true;
  for (const NativeEngineOptions& options : {bf16, Aten(/*bf16=*/true)}) {
    const std::vector<float> scores = Scores(*MakeEngine(options), prompts_);
    ExpectNear(scores, expected_, 0.1F);
    size_t rounded = 0;
    for (const float score : scores) rounded += WidenBf16(RoundToBf16(score)) == score;
    EXPECT_LT(rounded, scores.size());
  }
}

TEST_F(RewardModelTest, NeitherBatchesNorChunksNorTheCacheChangeAScore) {
  std::vector<float> alone;
  for (const std::vector<int32_t>& prompt : prompts_) {
    alone.push_back(Scores(*MakeEngine(), {prompt}).at(0));
  }
  NativeEngineOptions chunked;
  chunked.max_batch_tokens = 3;
  const auto engine = MakeEngine(chunked);
  EXPECT_EQ(Scores(*engine, prompts_), alone);
  // p3, of 20 tokens, has one full block.
  EXPECT_EQ(engine->stats().tokens_reused, 0);
  EXPECT_EQ(Scores(*engine, prompts_), alone);
  EXPECT_EQ(engine->stats().tokens_reused, 16);
}

TEST_F(RewardModelTest, EnginesAgreeOnEveryPartOfAModel) {
  ModelConfig config = TinyMixedModel();
  config.scalar_head = true;
  const WeightSnapshot weights = RandomWeights(config, 3, {0, 1});
  const std::vector<std::vector<int32_t>> prompts = {{5}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {9, 8, 7}};
  const std::vector<float> ours = Scores(*Load(config, weights, {}), prompts);
  ExpectNear(Scores(*Load(config, weights, Aten()), prompts), ours, 1e-4F);
  EXPECT_NE(ours[0], ours[1]);
}

TEST_F(RewardModelTest, APromptMayFillTheContext) {
  const auto engine = MakeEngine();
  const std::vector<int32_t> full(64, 2);
  EXPECT_EQ(Scores(*engine, {full}).size(), 1U);
  GenerationRequest beyond = Pooled(1, std::vector<int32_t>(65, 2));
  EXPECT_THAT(Message(engine->Submit(std::move(beyond))), HasSubstr("context of 64"));
}

TEST_F(RewardModelTest, ItScoresAndDoesNothingElse) {
  const auto engine = MakeEngine();
  GenerationRequest request = Pooled(1, {2, 3});
  request.on_score = nullptr;
  request.sampling.max_new_tokens = 1;
  EXPECT_THAT(Message(engine->Submit(request)), HasSubstr("generates no text"));
  EXPECT_THAT(Message(engine->Score({2, 3}, false).status()), HasSubstr("generates no text"));
  request = Pooled(1, {2, 3});
  request.sampling.max_new_tokens = 1;
  EXPECT_THAT(Message(engine->Submit(request)), HasSubstr("max_new_tokens 0"));
  request = Pooled(1, {2, 3});
  request.sample_indices = {0, 1};
  EXPECT_THAT(Message(engine->Submit(request)), HasSubstr("one sample"));

  const ModelConfig generator = TinyModel();
  const auto generating = Load(generator, RandomWeights(generator, 1, {0, 1}), {});
  EXPECT_THAT(Message(generating->Submit(Pooled(1, {2, 3}))), HasSubstr("no scalar head"));
}

TEST_F(RewardModelTest, AScoreThatIsNotFiniteFailsItsOwnRequest) {
  ModelConfig config = TinyModel();
  config.scalar_head = true;
  const WeightSnapshot good = RandomWeights(config, 1, {0, 1});
  std::vector<std::byte> bytes(good.bytes->begin(), good.bytes->end());
  // The embedding of token 5 is infinite.
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data() + 5 * config.hidden_size * 4, &infinite, 4);
  const auto engine = Load(config, {{}, MakeWeightBytes(std::move(bytes))}, {});
  ASSERT_TRUE(engine->Submit(Pooled(1, {4})).ok());
  ASSERT_TRUE(engine->Submit(Pooled(2, {4, 5})).ok());
  const auto outputs = engine->Poll();
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  std::map<int64_t, absl::Status> ends;
  for (const GenerationOutput& output : *outputs) ends[output.request_id] = output.error;
  EXPECT_TRUE(ends.at(1).ok()) << ends.at(1);
  EXPECT_THAT(Message(ends.at(2)), HasSubstr("not finite"));
  EXPECT_TRUE(engine->Idle());
}

}  // namespace
}  // namespace freshet
