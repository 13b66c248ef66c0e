#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "gtest/gtest.h"
#include "model/model_weights.h"
#include "model/packed_forward.h"
#include "model/safetensors.h"
#include "model/tensor_convert.h"
#include "model/torch_threads.h"
#include "nlohmann/json.hpp"
#include "rollout/engine/native_engine.h"
#include "tests/model/test_directory.h"
#include "tests/testing/test_device.h"

namespace freshet {
namespace {

constexpr double kBound = 1e-4;

struct Model {
  std::string name;
  std::string weights;  // model directory
  std::string reference;
  bool committed = false;
};
void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

// A model of the reference data, with the outputs of transformers.
Model Reference(const char* name, const char* weights, const char* reference) {
  return {name, ReferencePath(weights), ReferencePath(reference)};
}
// A small model of tests/model/fixtures, with the outputs of its plain decoder.
Model Fixture(const char* name, const char* folder) {
  const std::string weights = std::string(FRESHET_SOURCE_DIR) + "/tests/model/fixtures/" + folder;
  return {name, weights, weights + "/reference", /*committed=*/true};
}

// A model with the outputs of another implementation.
class ParityTest : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    UseOneTorchThread();
    const auto& [name, weights, reference, committed] = GetParam();
    if (!committed && (!std::filesystem::exists(weights) || !std::filesystem::exists(reference))) {
      GTEST_SKIP() << "no reference data in " << reference;
    }
    auto files = ModelFiles::Open(weights);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    ASSERT_TRUE(files_->CheckTensors().empty());
    auto tensors = SafetensorsFile::Open(reference + "/reference.safetensors");
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    reference_ = *std::move(tensors);
    const auto text = ReadFile(reference + "/reference.json", 64 << 20);
    ASSERT_TRUE(text.ok()) << text.status();
    facts_ = nlohmann::json::parse(*text);
    layout_ = MakeParameterLayout(files_->config());
    flat_ = at::zeros({layout_.num_elements}, at::kFloat);
    ASSERT_TRUE(FillArena(*files_, layout_, flat_).ok());
    device_ = TestDevice();
    on_device_ = flat_.to(device_);
    model_.emplace(config(), device_);
  }

  template <typename T>
  std::vector<T> Read(const std::string& name, Dtype dtype) const {
    const TensorInfo* info = reference_->Find(name);
    if (info == nullptr || info->dtype != dtype) {
      ADD_FAILURE() << "reference has no " << name;
      return {};
    }
    std::vector<T> values(info->bytes / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), reference_->Data(*info).data(), info->bytes);
    return values;
  }
  std::vector<float> Floats(const std::string& name) const {
    return Read<float>(name, Dtype::kF32);
  }
  std::vector<int32_t> Ids(const std::string& name) const {
    const std::vector<int64_t> wide = Read<int64_t>(name, Dtype::kI64);
    return {wide.begin(), wide.end()};
  }
  std::vector<std::string> Prompts() const {
    std::vector<std::string> names;
    for (const auto& prompt : facts_["prompts"]) names.push_back(prompt["name"]);
    EXPECT_FALSE(names.empty());
    return names;
  }
  const ModelConfig& config() const { return files_->config(); }

  std::vector<float> TrainerScores(const std::vector<int32_t>& ids) const {
    const at::NoGradGuard no_grad;
    return Logprobs(ViewWeights(layout_, on_device_), {{ids, {}}});
  }
  // Computed as the trainer does.
  std::vector<float> Logprobs(const TransformerWeights& weights,
                              const std::vector<PackTree>& trees) const {
    return ToFloats(
        PackedForward(*model_, weights, PackTrees(trees), 1.0, Entropy::kNone).logprobs_M);
  }
  // The trainer's bf16 weights.
  TransformerWeights Rounded() const {
    return WidenVectors(ViewWeights(layout_, on_device_.to(at::kBFloat16)));
  }
  // Options of an engine with our kernels and of one with ATen, on the test's device.
  static std::vector<NativeEngineOptions> EngineKinds(bool bf16 = false) {
    NativeEngineOptions kernels;
    kernels.bf16 = bf16;
    kernels.threads = 2;
    NativeEngineOptions aten = kernels;
    aten.aten = true;
    aten.device = TestDeviceName();
    return {kernels, aten};
  }
  // With bf16 the engine gets its weights as a bf16 trainer publishes them.
  std::unique_ptr<NativeEngine> MakeEngine(const NativeEngineOptions& options) const {
    auto engine = NativeEngine::Create(config(), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    const at::Tensor arena = options.bf16 ? flat_.to(at::kBFloat16) : flat_;
    std::vector<std::byte> bytes(arena.nbytes());
    std::memcpy(bytes.data(), arena.const_data_ptr(), arena.nbytes());
    EXPECT_TRUE(
        (*engine)->LoadWeights(Lane::kRollout, {{}, MakeWeightBytes(std::move(bytes))}).ok());
    return *std::move(engine);
  }
  static void ExpectNear(const std::vector<float>& ours, const std::vector<float>& expected,
                         const std::string& what) {
    ASSERT_EQ(ours.size(), expected.size()) << what;
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_NEAR(ours[i], expected[i], kBound) << what << ", token " << i + 1;
    }
  }

  void ExpectGreedyContinuations(NativeEngine& engine) const {
    std::map<int64_t, std::string> prompts;
    for (const std::string& prompt : Prompts()) {
      GenerationRequest request;
      request.id = static_cast<int64_t>(prompts.size());
      request.prompt_ids = Ids(prompt + ".input_ids");
      request.sample_indices = {0};
      request.sampling.temperature = 0;
      request.sampling.max_new_tokens = facts_["new_tokens"];
      prompts[request.id] = prompt;
      const absl::Status status = engine.Submit(std::move(request));
      ASSERT_TRUE(status.ok()) << status;
    }
    size_t done = 0;
    while (!engine.Idle()) {
      const auto outputs = engine.Poll();
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      for (const GenerationOutput& output : *outputs) {
        const std::string& prompt = prompts[output.request_id];
        EXPECT_EQ(output.response.response_ids, Ids(prompt + ".greedy_ids")) << prompt;
        ExpectNear(output.response.behavior_logprobs, Floats(prompt + ".greedy_logprobs"),
                   prompt + ".greedy");
        ++done;
      }
    }
    EXPECT_EQ(done, prompts.size());
  }

  std::unique_ptr<ModelFiles> files_;
  std::unique_ptr<SafetensorsFile> reference_;
  nlohmann::json facts_;
  ParameterLayout layout_;
  at::Tensor flat_;
  at::Device device_ = at::kCPU;
  at::Tensor on_device_;  // flat_
  std::optional<Transformer> model_;
};

TEST_P(ParityTest, LogitsOfAllPositions) {
  for (const std::string& prompt : Prompts()) {
    const std::vector<int32_t> ids = Ids(prompt + ".input_ids");
    const std::vector<float> logits = Floats(prompt + ".logits");
    const int64_t vocab = config().vocab_size;
    // Scores every token of the vocabulary after every prefix.
    const at::NoGradGuard no_grad;
    std::vector<PackTree> trees;
    for (size_t t = 0; t < ids.size(); ++t) {
      PackTree& tree = trees.emplace_back();
      tree.prefix.assign(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(t) + 1);
      for (int32_t token = 0; token < vocab; ++token) tree.suffixes.push_back({token});
    }
    const std::vector<float> ours = Logprobs(ViewWeights(layout_, on_device_), trees);
    const at::Tensor expected =
        at::log_softmax(ToTensor(logits).view({static_cast<int64_t>(ids.size()), vocab}), -1);
    ExpectNear(ours, ToFloats(expected), prompt);
  }
}

TEST_P(ParityTest, LogprobsOfTrainerAndEngine) {
  for (const std::string& prompt : Prompts()) {
    ExpectNear(TrainerScores(Ids(prompt + ".input_ids")), Floats(prompt + ".logprobs"), prompt);
  }
  for (const NativeEngineOptions& options : EngineKinds()) {
    const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
    for (const std::string& prompt : Prompts()) {
      SCOPED_TRACE(prompt + (options.aten ? " by ATen" : " by our kernels"));
      for (const bool one_by_one : {false, true}) {
        const auto scores = engine->Score(Ids(prompt + ".input_ids"), one_by_one);
        ASSERT_TRUE(scores.ok()) << scores.status();
        ExpectNear(*scores, Floats(prompt + ".logprobs"), one_by_one ? "decoding" : "prefill");
      }
    }
  }
}

TEST_P(ParityTest, PackedPromptsEqualSingleOnes) {
  std::vector<PackTree> trees;
  std::vector<float> expected;
  for (const std::string& prompt : Prompts()) {
    trees.push_back({Ids(prompt + ".input_ids"), {}});
    const std::vector<float> logprobs = Floats(prompt + ".logprobs");
    expected.insert(expected.end(), logprobs.begin(), logprobs.end());
  }
  const at::NoGradGuard no_grad;
  ExpectNear(Logprobs(ViewWeights(layout_, on_device_), trees), expected, "all prompts packed");
}

TEST_P(ParityTest, Bf16LogprobsStayCloseToFp32) {
  const at::NoGradGuard no_grad;
  const TransformerWeights rounded = Rounded();
  double difference = 0;
  size_t tokens = 0;
  for (const std::string& prompt : Prompts()) {
    const std::vector<float> expected = Floats(prompt + ".logprobs");
    if (expected.empty()) continue;
    const std::vector<float> ours = Logprobs(rounded, {{Ids(prompt + ".input_ids"), {}}});
    for (size_t i = 0; i < expected.size(); ++i) difference += std::abs(ours[i] - expected[i]);
    tokens += expected.size();
  }
  // bf16 matrices alone must be closer than the reference entirely in bf16. The fixtures have only
  // 32 tokens, too few for a precise mean.
  const double slack = GetParam().committed ? 1.5 : 1.0;
  const double noise =
      slack * facts_["noise_max_abs_logits"]["eager_bf16_mean_abs_logprob"].get<double>();
  EXPECT_LT(difference / static_cast<double>(tokens), noise);
  EXPECT_GT(difference, 0.0);
}

// Against the trainer in bf16, which rounds the same numbers.
TEST_P(ParityTest, Bf16EnginesStayCloseToTheTrainer) {
  const at::NoGradGuard no_grad;
  const TransformerWeights rounded = Rounded();
  for (const NativeEngineOptions& options : EngineKinds(/*bf16=*/true)) {
    if (!options.aten && !TestsOnCpu()) continue;  // the trainer rounds as the device does
    const std::unique_ptr<NativeEngine> engine = MakeEngine(options);
    double difference = 0;
    size_t tokens = 0;
    for (const std::string& prompt : Prompts()) {
      const std::vector<int32_t> ids = Ids(prompt + ".input_ids");
      const std::vector<float> trainer = Logprobs(rounded, {{ids, {}}});
      const auto scores = engine->Score(ids, /*one_by_one=*/false);
      ASSERT_TRUE(scores.ok()) << scores.status();
      for (size_t i = 0; i < trainer.size(); ++i) difference += std::abs((*scores)[i] - trainer[i]);
      tokens += trainer.size();
    }
    EXPECT_LT(difference / static_cast<double>(tokens), 2e-2) << (options.aten ? "ATen" : "ours");
  }
}

TEST_P(ParityTest, GradientsOfTheMeanNegativeLogLikelihood) {
  const std::vector<int32_t> ids = Ids(facts_["grad"]["prompt"].get<std::string>() + ".input_ids");
  const at::Tensor flat = on_device_.clone().set_requires_grad(true);
  const std::vector<int32_t> tail(ids.begin() + 2, ids.end());
  // Once as a prompt with one continuation, once with its second token as a target, too.
  const std::vector<PackTree> trees = {{{ids[0], ids[1]}, {tail}}, {{ids[0]}, {{ids[1]}}}};
  const TargetLogprobs out =
      PackedForward(*model_, ViewWeights(layout_, flat), PackTrees(trees), 1.0, Entropy::kNone);
  const at::Tensor loss = -out.logprobs_M.sum() / static_cast<double>(ids.size() - 1);
  const at::Tensor gradient = torch::autograd::grad({loss}, {flat})[0].to(at::kCPU);
  int compared = 0;
  for (const ParameterEntry& entry : layout_.entries) {
    if (reference_->Find("grad." + entry.name) == nullptr) continue;
    const at::Tensor expected = ToTensor(Floats("grad." + entry.name));
    const at::Tensor ours = gradient.narrow(0, entry.offset, entry.size);
    const double largest = expected.abs().max().item<double>();
    EXPECT_LT((ours - expected).abs().max().item<double>(), kBound * largest) << entry.name;
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

TEST_P(ParityTest, GreedyContinuationsOfTheEngine) {
  for (const NativeEngineOptions& options : EngineKinds()) {
    SCOPED_TRACE(options.aten ? "ATen" : "our kernels");
    ExpectGreedyContinuations(*MakeEngine(options));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reference, ParityTest,
    testing::Values(
        Reference("Stories260K", "stories260K/hf", "parity/stories260K/reference"),
        Reference("Llama3Rope", "parity/llama3_rope", "parity/llama3_rope/reference"),
        Reference("MistralWindow", "parity/mistral_window", "parity/mistral_window/reference"),
        Reference("Qwen2Tied", "parity/qwen2_tied", "parity/qwen2_tied/reference"),
        Reference("Qwen3Sharded", "parity/qwen3_sharded", "parity/qwen3_sharded/reference"),
        Reference("Qwen3Moe", "parity/qwen3_moe_optional", "parity/qwen3_moe_optional/reference")),
    [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Fixtures, ParityTest,
    testing::Values(Fixture("LlamaBias", "llama_bias"), Fixture("Llama3Rope", "llama_rope3"),
                    Fixture("MistralWindow", "mistral_window"), Fixture("Qwen2Tied", "qwen2_tied"),
                    Fixture("Qwen3Sharded", "qwen3_sharded"), Fixture("Qwen3Moe", "qwen3_moe")),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace freshet
