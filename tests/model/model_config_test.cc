#include "model/model_config.h"

#include <algorithm>
#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json SmallConfig() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 160, "bos_token_id": 1, "eos_token_id": 2
  })");
}

ModelConfig Parse(const Json& json) {
  const auto config = ParseModelConfig(json.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.value_or(ModelConfig{});
}

std::string ErrorOf(const Json& json) {
  const auto config = ParseModelConfig(json.dump(), "config.json");
  return config.ok() ? "no error" : Message(config.status());
}

TEST(ModelConfig, TakesTheDefaultsOfTransformers) {
  const ModelConfig config = Parse(SmallConfig());
  EXPECT_EQ(config.head_dim, 16);  // 64 / 4
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, Dtype::kF32);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
}

TEST(ModelConfig, DerivesKeyValueHeads) {
  Json json = SmallConfig();
  json.erase("num_key_value_heads");
  EXPECT_EQ(Parse(json).num_key_value_heads, 4);
}

TEST(ModelConfig, ReadsTheOlderSpelling) {
  Json json = SmallConfig();
  json["rope_theta"] = 500000;
  json["rope_scaling"] = Json::parse(
      R"({"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64})");
  json["torch_dtype"] = "bfloat16";
  const ModelConfig config = Parse(json);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(config.rope_scaling.factor, 8.0);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 64);
  EXPECT_EQ(config.dtype, Dtype::kBf16);
}

TEST(ModelConfig, ReadsTheNewerSpelling) {
  Json json = SmallConfig();
  json["rope_parameters"] =
      Json::parse(R"({"rope_type": "linear", "factor": 2, "rope_theta": 1000000.0})");
  json["dtype"] = "float16";
  const ModelConfig config = Parse(json);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(config.rope_scaling.factor, 2.0);
  EXPECT_EQ(config.dtype, Dtype::kF16);
}

TEST(ModelConfig, NamesWhatIsNotSupported) {
  struct Case {
    const char* name;
    const char* value;
    const char* message;
  };
  const Case cases[] = {
      {"model_type", R"("gemma")",
       "config.json: model_type gemma is not supported; supported: llama, mistral, qwen2, qwen3, "
       "qwen3_moe"},
      {"model_type", "null", "model_type is missing, want one of llama, mistral"},
      {"model_type", "3", "model_type 3 is not supported"},
      {"architectures", R"(["LlamaForTokenClassification"])",
       "architecture \"LlamaForTokenClassification\" is not supported; supported: "
       "LlamaForCausalLM, LlamaForSequenceClassification"},
      {"architectures", "[]", "architecture an array is not supported"},
      {"hidden_act", R"("gelu")", "hidden_act \"gelu\" is not supported; supported: silu"},
      {"quantization_config", "{}", "quantized weights are not supported"},
      {"partial_rotary_factor", "0.5", "partial_rotary_factor other than 1"},
      {"torch_dtype", R"("int8")", "torch_dtype \"int8\" is not supported"},
      {"rope_scaling", R"({"rope_type": "yarn", "factor": 2})",
       "rope_type \"yarn\" is not supported; supported: default, linear, llama3"},
  };
  for (const Case& c : cases) {
    Json json = SmallConfig();
    json[c.name] = Json::parse(c.value);
    EXPECT_THAT(ErrorOf(json), HasSubstr(c.message)) << c.name;
  }
}

Json ConfigOf(const char* model_type, const char* class_name) {
  Json json = SmallConfig();
  json["model_type"] = model_type;
  json["architectures"] = {class_name};
  return json;
}

TEST(ModelConfig, ARewardModelHasOneOutputThatIsNotTied) {
  Json json = ConfigOf("qwen2", "Qwen2ForSequenceClassification");
  json["tie_word_embeddings"] = true;
  EXPECT_THAT(ErrorOf(json), HasSubstr("Qwen2ForSequenceClassification with 2 outputs"));
  json["id2label"] = {{"0", "LABEL_0"}};
  const ModelConfig config = Parse(json);
  EXPECT_TRUE(config.scalar_head);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.num_outputs(), 1);
  EXPECT_THAT(config.CheckGenerates("dir").message(), HasSubstr("dir: a reward model"));
  EXPECT_FALSE(Parse(ConfigOf("qwen2", "Qwen2ForCausalLM")).scalar_head);

  for (const char* labels : {"2", "0", "-1", "\"1\"", "[]"}) {
    json["num_labels"] = Json::parse(labels);
    EXPECT_THAT(ErrorOf(json), HasSubstr("supported: 1, a reward model")) << labels;
  }
}

TEST(ModelConfig, ReadsTheBiasesOfLlama) {
  Json json = SmallConfig();
  EXPECT_FALSE(Parse(json).qkv_bias || Parse(json).o_bias || Parse(json).mlp_bias);
  json["attention_bias"] = true;
  json["mlp_bias"] = true;
  EXPECT_TRUE(Parse(json).qkv_bias && Parse(json).o_bias && Parse(json).mlp_bias);
}

TEST(ModelConfig, ReadsMistralsWindow) {
  Json json = ConfigOf("mistral", "MistralForCausalLM");
  EXPECT_EQ(Parse(json).Window(1), 4096);  // the default of transformers
  json["sliding_window"] = 16;
  EXPECT_EQ(Parse(json).Window(0), 16);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(Parse(json).Window(0), 0);
}

TEST(ModelConfig, ReadsTheWindowOfQwen) {
  Json json = ConfigOf("qwen2", "Qwen2ForCausalLM");
  json["sliding_window"] = 8;
  json["max_window_layers"] = 1;
  EXPECT_EQ(Parse(json).Window(1), 0);  // use_sliding_window is false
  EXPECT_TRUE(Parse(json).qkv_bias);
  EXPECT_FALSE(Parse(json).o_bias);
  json["use_sliding_window"] = true;
  Json bare = json;
  bare.erase("sliding_window");
  EXPECT_EQ(Parse(bare).Window(1), 4096);  // the default of transformers
  EXPECT_EQ(Parse(json).Window(0), 0);
  EXPECT_EQ(Parse(json).Window(1), 8);
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(Parse(json).Window(0), 8);
  EXPECT_EQ(Parse(json).Window(1), 0);
  json["layer_types"] = {"sliding_attention"};
  EXPECT_THAT(ErrorOf(json), HasSubstr("want a list of 2 names"));
  json["layer_types"] = {"full_attention", "linear_attention"};
  EXPECT_THAT(ErrorOf(json), HasSubstr("layer_types holds \"linear_attention\""));
}

TEST(ModelConfig, ReadsTheExpertsOfQwen3Moe) {
  Json json = ConfigOf("qwen3_moe", "Qwen3MoeForCausalLM");
  json["num_experts"] = 8;
  json["num_experts_per_tok"] = 2;
  json["moe_intermediate_size"] = 48;
  json["norm_topk_prob"] = true;
  json["mlp_only_layers"] = {0};
  const ModelConfig config = Parse(json);
  EXPECT_TRUE(config.qk_norm && config.norm_topk_prob);
  EXPECT_FALSE(config.IsMoe(0));
  EXPECT_TRUE(config.IsMoe(1));
  json["num_experts_per_tok"] = 9;
  EXPECT_THAT(ErrorOf(json), HasSubstr("num_experts_per_tok is 9, want from 1 to num_experts 8"));
  json["num_experts_per_tok"] = 2;
  json["num_local_experts"] = 4;  // of files that transformers 5 writes
  json.erase("num_experts");
  EXPECT_EQ(Parse(json).num_experts, 4);
  json["mlp_only_layers"] = {2};
  EXPECT_THAT(ErrorOf(json), HasSubstr("mlp_only_layers is"));
}

TEST(ModelConfig, KeepsWhatItDoesNotKnow) {
  Json json = ConfigOf("qwen3", "Qwen3ForCausalLM");
  json["some_new_key"] = {1, 2};
  json["torch_dtype"] = "bfloat16";
  ModelConfig config = Parse(json);
  EXPECT_EQ(config.head_dim, 128);  // the default of transformers
  config.dtype = Dtype::kF32;
  json["torch_dtype"] = "float32";
  EXPECT_EQ(Json::parse(config.ToJson()), json);
}

TEST(ModelConfig, RefusesBadValues) {
  struct Case {
    const char* name;
    const char* value;
    const char* message;
  };
  const Case cases[] = {
      {"vocab_size", "null",
       "config.json: vocab_size is missing, want an integer from 1 to 16777216"},
      {"vocab_size", "0", "vocab_size is 0, want an integer from 1"},
      {"vocab_size", "16777217", "vocab_size is 16777217"},
      {"hidden_size", "-64", "hidden_size is -64"},
      {"hidden_size", "\"64\"", "hidden_size is \"64\", want an integer"},
      {"hidden_size", "64.5", "hidden_size is 64.5"},
      {"hidden_size", "9223372036854775808", "hidden_size is 9223372036854775808"},
      {"hidden_size", "66",
       "hidden_size 66 is not a multiple of num_attention_heads 4; set head_dim"},
      {"head_dim", "7", "head_dim is 7, want an even number"},
      {"num_key_value_heads", "3",
       "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
      {"num_hidden_layers", "100000", "num_hidden_layers is 100000"},
      {"rms_norm_eps", "0", "rms_norm_eps is 0, want between 0 and 1"},
      {"rms_norm_eps", "\"x\"", "rms_norm_eps is \"x\", want a number"},
      {"rope_theta", "-1", "rope_theta is -1, want a number above 0"},
      {"rope_scaling", R"("linear")", "rope_scaling: is \"linear\", want an object"},
      {"rope_scaling", R"({"rope_type": "linear"})", "rope_scaling: factor is missing"},
      {"rope_scaling", R"({"rope_type": "linear", "factor": 0.5})",
       "rope scaling factor is 0.5, want at least 1"},
      {"rope_scaling", R"({"rope_type": "llama3", "factor": 8})",
       "original_max_position_embeddings is missing"},
      {"rope_scaling",
       R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
           "original_max_position_embeddings": 64})",
       "low_freq_factor is 4, want above 0 and below high_freq_factor 4"},
      {"tie_word_embeddings", "1", "tie_word_embeddings is 1, want true or false"},
      {"eos_token_id", "512", "eos_token_id is 512, want from 0 to vocab_size - 1 = 511"},
      {"eos_token_id", "[2, -1]", "eos_token_id holds -1, want token ids"},
      {"bos_token_id", "\"1\"", "bos_token_id holds \"1\", want token ids"},
  };
  for (const Case& c : cases) {
    Json json = SmallConfig();
    json[c.name] = Json::parse(c.value);
    EXPECT_THAT(ErrorOf(json), HasSubstr(c.message)) << c.name << " = " << c.value;
  }
}

TEST(ModelConfig, GivesOneLinePerFault) {
  Json json = SmallConfig();
  json["vocab_size"] = 0;
  json["hidden_act"] = "relu";
  json["torch_dtype"] = "int8";
  const std::string error = ErrorOf(json);
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 2);
}

TEST(ModelConfig, RefusesTextThatIsNoConfig) {
  for (const char* text : {"", "[]", "{", "null", "\x7F\x45\x4C\x46"}) {
    EXPECT_EQ(ParseModelConfig(text, "config.json").status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(ModelConfig, ReadsBackWhatItWrites) {
  ModelConfig config;
  config.vocab_size = 512;
  config.hidden_size = 64;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 32;
  config.intermediate_size = 160;
  config.max_position_embeddings = 77;
  config.rope_theta = 123456.5;
  config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = true;
  config.initializer_range = 0.5;
  config.dtype = Dtype::kBf16;
  config.bos_token_id = 3;
  config.eos_token_ids = {2, 7};
  const ModelConfig again = Parse(Json::parse(config.ToJson()));
  EXPECT_EQ(again.vocab_size, 512);
  EXPECT_EQ(again.hidden_size, 64);
  EXPECT_EQ(again.num_hidden_layers, 2);
  EXPECT_EQ(again.num_attention_heads, 4);
  EXPECT_EQ(again.num_key_value_heads, 2);
  EXPECT_EQ(again.head_dim, 32);
  EXPECT_EQ(again.intermediate_size, 160);
  EXPECT_EQ(again.max_position_embeddings, 77);
  EXPECT_EQ(again.rope_theta, 123456.5);
  EXPECT_EQ(again.rms_norm_eps, 1e-5);
  EXPECT_TRUE(again.tie_word_embeddings);
  EXPECT_EQ(again.initializer_range, 0.5);
  EXPECT_EQ(again.dtype, Dtype::kBf16);
  EXPECT_EQ(again.bos_token_id, 3);
  EXPECT_THAT(again.eos_token_ids, ElementsAre(2, 7));
  EXPECT_EQ(again.ToJson(), ParseModelConfig(again.ToJson(), "again")->ToJson());
}

TEST(ModelConfig, RopeScalingWinsOverRopeParameters) {
  Json json = SmallConfig();
  json["rope_parameters"] = Json::parse(R"({"rope_type": "default", "rope_theta": 5.0})");
  json["rope_scaling"] = Json::parse(R"({"rope_type": "linear", "factor": 2})");
  EXPECT_EQ(Parse(json).rope_scaling.kind, RopeScaling::Kind::kLinear);
  json["rope_scaling"] = Json::object();
  EXPECT_EQ(Parse(json).rope_theta, 5.0);
  json["rope_parameters"]["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(ErrorOf(json), HasSubstr("rope_parameters: partial_rotary_factor other than 1"));
}

TEST(ModelConfig, WritesEverySpellingOfTheDtype) {
  Json json = SmallConfig();
  json["dtype"] = "bfloat16";
  json["torch_dtype"] = "bfloat16";
  ModelConfig config = Parse(json);
  config.dtype = Dtype::kF32;
  EXPECT_EQ(Json::parse(config.ToJson())["dtype"], "float32");
  EXPECT_EQ(Json::parse(config.ToJson())["torch_dtype"], "float32");
}

TEST(ModelConfig, WritesTheGenerationFileThatItMerges) {
  Json json = SmallConfig();
  json["eos_token_id"] = {2, 7};
  ModelConfig bare = Parse(SmallConfig());
  bare.eos_token_ids.clear();
  ASSERT_TRUE(MergeGenerationConfig(Parse(json).GenerationJson(), "g.json", bare).ok());
  EXPECT_THAT(bare.eos_token_ids, ElementsAre(2, 7));
}

TEST(ModelConfig, ValidatesAConfigMadeInCode) {
  ModelConfig config;
  EXPECT_EQ(config.Validate().code(), absl::StatusCode::kInvalidArgument);
  config.vocab_size = 13;
  config.hidden_size = 128;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.intermediate_size = 512;
  config.DeriveDefaults();
  EXPECT_THAT(config.Errors(), IsEmpty());
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 32);
}

TEST(LoadModelConfig, MergesTheStopIdsOfTheGenerationConfig) {
  const TestDirectory dir;
  dir.Write("config.json", SmallConfig().dump());
  dir.Write("generation_config.json", R"({"eos_token_id": [5, 2]})");
  EXPECT_THAT(LoadModelConfig(dir.path())->eos_token_ids, ElementsAre(2, 5));
  dir.Write("generation_config.json", R"({"eos_token_id": 7, "temperature": 0.6})");
  EXPECT_THAT(LoadModelConfig(dir.path())->eos_token_ids, ElementsAre(2, 7));
  dir.Write("generation_config.json", R"({"eos_token_id": 512})");
  EXPECT_THAT(Message(LoadModelConfig(dir.path()).status()),
              HasSubstr("generation_config.json: eos_token_id is 512"));
}

TEST(LoadModelConfig, SaysThatThereIsNone) {
  const TestDirectory dir;
  EXPECT_EQ(LoadModelConfig(dir.path()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace freshet
