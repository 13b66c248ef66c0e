#include "model/model_files.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/parameter_layout.h"
#include "nlohmann/json.hpp"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

// A small model. Tests can modify its files before they are written.
class ModelFilesTest : public ::testing::Test {
 protected:
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
    Dtype dtype = Dtype::kF32;
  };

  void SetUp() override {
    config_.vocab_size = 5;
    config_.hidden_size = 4;
    config_.num_hidden_layers = 2;
    config_.num_attention_heads = 2;
    config_.num_key_value_heads = 1;
    config_.intermediate_size = 3;
    config_.DeriveDefaults();
    for (const ParameterEntry& expected : MakeParameterLayout(config_).entries) {
      Put(expected.name, expected.shape);
    }
    dir_.Write("config.json", config_.ToJson());
  }

  void Put(const std::string& name, const std::vector<int64_t>& shape) {
    tensors_[name] = {shape, std::vector<float>(*TensorBytes(Dtype::kF32, shape) / 4, 0.5F)};
  }

  std::vector<TensorToWrite> ToWrite() const {
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, tensor] : tensors_) {
      tensors.push_back(
          {name, tensor.dtype, tensor.shape, tensor.values.data(), 4 * tensor.values.size()});
    }
    return tensors;
  }

  void WriteSingle() const { ASSERT_TRUE(WriteSafetensors(dir_.File(kWeights), ToWrite()).ok()); }

  // Writes two shards and returns their index.
  Json WriteShards() const {
    std::vector<TensorToWrite> shards[2];
    Json map = Json::object();
    int i = 0;
    for (const TensorToWrite& tensor : ToWrite()) {
      map[tensor.name] = StrCat("model-", i % 2, ".safetensors");
      shards[i++ % 2].push_back(tensor);
    }
    for (int k = 0; k < 2; ++k) {
      EXPECT_TRUE(WriteSafetensors(dir_.File(StrCat("model-", k, ".safetensors")), shards[k]).ok());
    }
    return {{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
  }

  std::vector<std::string> Errors() const {
    const auto files = ModelFiles::Open(dir_.path());
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? (*files)->CheckTensors() : std::vector<std::string>{"not opened"};
  }

  std::string OpenError() const {
    const auto files = ModelFiles::Open(dir_.path());
    return files.ok() ? "no error" : Message(files.status());
  }

  TestDirectory dir_;
  ModelConfig config_;
  std::map<std::string, Tensor> tensors_;
};

TEST_F(ModelFilesTest, ReadsASingleFile) {
  tensors_["model.norm.weight"].values = {1, 2, 3, 4};
  WriteSingle();
  const auto files = ModelFiles::Open(dir_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT((*files)->CheckTensors(), IsEmpty());
  const StoredTensor* tensor = (*files)->Find("model.norm.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->shape, ElementsAre(4));
  float last = 0;
  std::memcpy(&last, tensor->data.data() + 12, 4);
  EXPECT_EQ(last, 4.0F);
  EXPECT_EQ((*files)->config().hidden_size, 4);
}

TEST_F(ModelFilesTest, ReadsShards) {
  tensors_["model.norm.weight"].values = {1, 2, 3, 4};
  dir_.Write(kIndex, WriteShards().dump());
  const auto files = ModelFiles::Open(dir_.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT((*files)->CheckTensors(), IsEmpty());
  float first = 0;
  std::memcpy(&first, (*files)->Find("model.norm.weight")->data.data(), 4);
  EXPECT_EQ(first, 1.0F);
}

TEST_F(ModelFilesTest, NamesMissingTensors) {
  tensors_.erase("model.layers.1.mlp.up_proj.weight");
  tensors_.erase("lm_head.weight");
  WriteSingle();
  EXPECT_THAT(Errors(),
              ElementsAre(StrCat(dir_.File(kWeights),
                                 ": tensor \"model.layers.1.mlp.up_proj.weight\" is missing"),
                          StrCat(dir_.File(kWeights), ": tensor \"lm_head.weight\" is missing")));
}

TEST_F(ModelFilesTest, NamesAMisshapenTensor) {
  Put("model.layers.0.self_attn.k_proj.weight", {4, 2});
  WriteSingle();
  EXPECT_THAT(Errors(), ElementsAre(HasSubstr("tensor \"model.layers.0.self_attn.k_proj.weight\" "
                                              "has shape [4, 2], want [2, 4]")));
}

TEST_F(ModelFilesTest, NamesAnUnsupportedDtype) {
  tensors_["model.norm.weight"].dtype = Dtype::kI32;
  WriteSingle();
  EXPECT_THAT(Errors(), ElementsAre(HasSubstr("dtype I32 is not supported for weights")));
}

TEST_F(ModelFilesTest, NamesNonFiniteValues) {
  tensors_["model.norm.weight"].values = {1, std::numeric_limits<float>::quiet_NaN(), 1,
                                          -std::numeric_limits<float>::infinity()};
  WriteSingle();
  EXPECT_THAT(Errors(),
              ElementsAre(HasSubstr(
                  "\"model.norm.weight\" holds 2 NaN or infinite values, the first at element 1")));
}

TEST_F(ModelFilesTest, NamesTensorsThatTheModelWouldIgnore) {
  Put("model.layers.0.self_attn.q_proj.bias", {4});
  Put("model.layers.0.self_attn.rotary_emb.inv_freq", {1});
  Put("v_head.weight", {1});
  WriteSingle();
  EXPECT_THAT(Errors(), ElementsAre(HasSubstr("\"model.layers.0.self_attn.q_proj.bias\" is not "
                                              "part of a llama model of this config")));
}

TEST_F(ModelFilesTest, NeedsNoHeadWhenTied) {
  config_.tie_word_embeddings = true;
  dir_.Write("config.json", config_.ToJson());
  WriteSingle();
  EXPECT_THAT(Errors(), IsEmpty());  // with an unused head
  tensors_.erase("lm_head.weight");
  WriteSingle();
  EXPECT_THAT(Errors(), IsEmpty());
}

TEST_F(ModelFilesTest, ARewardModelHasAScalarHead) {
  Json json = Json::parse(config_.ToJson());
  json["architectures"] = {"LlamaForSequenceClassification"};
  json["num_labels"] = 1;
  dir_.Write("config.json", json.dump());
  Put("score.weight", {1, 4});
  WriteSingle();
  EXPECT_THAT(Errors(), IsEmpty());  // with an unused head
  Put("score.weight", {2, 4});
  Put("score.bias", {1});
  WriteSingle();
  EXPECT_THAT(Errors(), ElementsAre(HasSubstr("\"score.weight\" has shape [2, 4], want [1, 4]"),
                                    HasSubstr("\"score.bias\" is not part of a llama model")));
  tensors_.erase("score.weight");
  tensors_.erase("score.bias");
  WriteSingle();
  EXPECT_THAT(Errors(), ElementsAre(HasSubstr("\"score.weight\" is missing")));
}

TEST_F(ModelFilesTest, RefusesATruncatedFile) {
  WriteSingle();
  std::filesystem::resize_file(dir_.File(kWeights),
                               std::filesystem::file_size(dir_.File(kWeights)) - 4);
  EXPECT_THAT(OpenError(), AllOf(HasSubstr(dir_.File(kWeights)), HasSubstr("is truncated")));
}

TEST_F(ModelFilesTest, RefusesPickles) {
  dir_.Write("pytorch_model.bin", "\x80\x02");
  EXPECT_THAT(OpenError(), HasSubstr("/pytorch_model.bin: pickle files are not read"));
  EXPECT_THAT(OpenError(), HasSubstr("convert the model to safetensors"));
}

TEST_F(ModelFilesTest, SaysThatThereAreNoWeights) {
  EXPECT_THAT(OpenError(), HasSubstr("there is neither model.safetensors nor"));
  EXPECT_EQ(ModelFiles::Open(dir_.path() + "/none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelFilesTest, RefusesAnIndexThatLeavesTheDirectory) {
  const Json index = WriteShards();
  for (const char* shard : {"../model-0.safetensors", "/etc/model.safetensors", ".safetensors", "",
                            "model-0.bin", "a/b.safetensors"}) {
    Json bad = index;
    bad["weight_map"]["model.norm.weight"] = shard;
    dir_.Write(kIndex, bad.dump());
    EXPECT_THAT(OpenError(),
                HasSubstr("want the name of a .safetensors file in the same directory"))
        << shard;
  }
}

TEST_F(ModelFilesTest, NamesEveryFaultOfTheShards) {
  Json index = WriteShards();
  index["weight_map"]["extra"] = "model-0.safetensors";
  index["weight_map"]["model.norm.weight"] = "model-9.safetensors";
  dir_.Write(kIndex, index.dump());
  const std::string error = OpenError();
  EXPECT_THAT(error, HasSubstr("/model-0.safetensors: tensor \"extra\" is missing"));
  EXPECT_THAT(error, HasSubstr("/model-9.safetensors: cannot be opened"));
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1);
}

TEST_F(ModelFilesTest, RefusesABrokenIndex) {
  WriteShards();
  for (const char* text :
       {"", "{}", "[]", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})"}) {
    dir_.Write(kIndex, text);
    EXPECT_THAT(OpenError(), HasSubstr(kIndex)) << text;
  }
}

TEST(CountNonFinite, KnowsEveryFloatFormat) {
  const auto count = [](Dtype dtype, std::vector<uint16_t> bits) {
    return CountNonFinite(dtype, {reinterpret_cast<const char*>(bits.data()), 2 * bits.size()})
        .count;
  };
  EXPECT_EQ(count(Dtype::kBf16, {0x7F80, 0xFF80, 0x7FC1, 0x7F7F, 0x0000}), 3U);
  EXPECT_EQ(count(Dtype::kF16, {0x7C00, 0xFC00, 0x7E01, 0x7BFF, 0x0000}), 3U);
}

TEST(ReferenceModels, CanBeRead) {
  for (const char* name : {"parity/llama3_rope", "parity/mistral_window", "parity/qwen2_tied",
                           "parity/qwen3_sharded", "parity/qwen3_moe_optional", "stories260K/hf"}) {
    if (!std::filesystem::exists(ReferencePath(name))) GTEST_SKIP() << "no reference data";
    const auto files = ModelFiles::Open(ReferencePath(name));
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_THAT((*files)->CheckTensors(), IsEmpty()) << name;
  }
}

TEST(ReferenceModels, LlamaRopeHasItsConfig) {
  const std::string path = ReferencePath("parity/llama3_rope");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no reference data";
  const auto config = LoadModelConfig(path);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(config->rope_scaling.original_max_position_embeddings, 64);
  EXPECT_EQ(config->dtype, Dtype::kBf16);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 2));
}

TEST(ReferenceModels, AnotherArchitectureIsRefused) {
  const std::string path = ReferencePath("parity/gemma2_optional");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no reference data";
  EXPECT_THAT(Message(ModelFiles::Open(path).status()),
              HasSubstr("model_type gemma2 is not supported; supported: llama"));
}

}  // namespace
}  // namespace freshet
