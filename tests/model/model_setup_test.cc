#include "model/model_setup.h"

#include <filesystem>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A job with random weights and a tokenizer over the digits.
job::v1::JobSpec RandomModelJob() {
  job::v1::JobSpec spec;
  spec.mutable_tokenizer()->set_type("char");
  spec.mutable_tokenizer()->set_alphabet("0123456789=");
  job::v1::Model& model = *spec.mutable_model();
  model.set_init("random");
  job::v1::ModelConfig& config = *model.mutable_config();
  config.set_hidden_size(32);
  config.set_num_hidden_layers(1);
  config.set_num_attention_heads(2);
  config.set_num_key_value_heads(1);
  config.set_intermediate_size(64);
  config.set_max_position_embeddings(8);
  config.set_rms_norm_eps(1e-5);
  config.set_rope_theta(10000);
  config.set_initializer_range(0.02);
  return spec;
}

ModelSetup MustOpen(const job::v1::JobSpec& spec) {
  absl::StatusOr<ModelSetup> model = OpenModel(spec, DataRoots::Unlimited());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : ModelSetup{};
}

// The same job with a tokenizer in a directory.
job::v1::JobSpec WithTokenizerFiles(job::v1::JobSpec spec, const TestDirectory& directory) {
  const ModelSetup model = MustOpen(spec);
  for (const TokenizerFile& file : model.tokenizer->Files()) {
    directory.Write(file.name, file.content);
  }
  spec.mutable_tokenizer()->clear_alphabet();
  spec.mutable_tokenizer()->set_type("file");
  spec.mutable_tokenizer()->set_path(directory.path());
  return spec;
}

TEST(OpenModel, TakesSizesFromTheJobAndTheVocabularyFromTheTokenizer) {
  const ModelSetup model = MustOpen(RandomModelJob());
  EXPECT_EQ(model.files, nullptr);
  EXPECT_EQ(model.config.vocab_size, 12) << "11 characters and the end token";
  EXPECT_EQ(model.config.head_dim, 16);
  EXPECT_EQ(model.config.num_key_value_heads, 1);
  EXPECT_THAT(model.config.eos_token_ids, ElementsAre(11));
}

TEST(OpenModel, NamesWhatIsWrong) {
  job::v1::JobSpec spec = RandomModelJob();
  spec.mutable_tokenizer()->set_alphabet("00");
  EXPECT_THAT(Message(OpenModel(spec, DataRoots::Unlimited()).status()),
              HasSubstr("tokenizer.alphabet: "));
  spec = RandomModelJob();
  spec.mutable_model()->clear_init();
  spec.mutable_model()->set_path("/no/such/directory");
  EXPECT_EQ(OpenModel(spec, DataRoots::Unlimited()).status().code(), absl::StatusCode::kNotFound);
}

TEST(OpenModel, OpensNoFileThatJobsMayNotName) {
  const TestDirectory directory;
  std::filesystem::create_directories(directory.File("data"));
  const job::v1::JobSpec tokenizer = WithTokenizerFiles(RandomModelJob(), directory);
  job::v1::JobSpec weights = RandomModelJob();
  weights.mutable_model()->clear_init();
  weights.mutable_model()->set_path(directory.path());
  // An allowed folder with links to files outside of it.
  job::v1::JobSpec linked = tokenizer;
  linked.mutable_tokenizer()->set_path(directory.File("data"));
  std::filesystem::create_symlink("../tokenizer.json", directory.File("data/tokenizer.json"));
  const DataRoots roots = *DataRoots::Create({directory.File("data")});
  for (const job::v1::JobSpec& spec : {tokenizer, weights, linked}) {
    const absl::Status refused = OpenModel(spec, roots).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(refused), HasSubstr("--data-root"));
  }
  EXPECT_TRUE(OpenModel(tokenizer, *DataRoots::Create({directory.path()})).ok());
  EXPECT_TRUE(OpenModel(linked, *DataRoots::Create({directory.path()})).ok());
}

TEST(OpenModel, RefusesARewardModelAsAPolicy) {
  job::v1::JobSpec spec = RandomModelJob();
  spec.mutable_model()->clear_init();
  const std::string folder = std::string(FRESHET_SOURCE_DIR) + "/tests/model/fixtures/qwen2_reward";
  spec.mutable_model()->set_path(folder);
  EXPECT_THAT(Message(OpenModel(spec, DataRoots::Unlimited()).status()),
              HasSubstr(folder + ": a reward model with a scalar head, which generates no text"));
  ModelBundle bundle = MakeModelBundle(RandomModelJob(), MustOpen(RandomModelJob()));
  bundle.config_json = ModelFiles::Open(folder).value()->config().ToJson();
  EXPECT_THAT(Message(OpenModelBundle(RandomModelJob(), bundle).status()),
              HasSubstr("a reward model"));
}

TEST(ModelBundle, CarriesAModelToARoleWithoutFiles) {
  const TestDirectory directory;
  const job::v1::JobSpec spec = WithTokenizerFiles(RandomModelJob(), directory);
  const ModelSetup model = MustOpen(spec);
  const ModelBundle bundle = MakeModelBundle(spec, model);
  EXPECT_THAT(bundle.tokenizer_files, Not(IsEmpty()));
  job::v1::JobSpec elsewhere = spec;
  elsewhere.mutable_tokenizer()->set_path("/not/on/this/machine");
  const auto opened = OpenModelBundle(elsewhere, bundle);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->files, nullptr);
  EXPECT_EQ(opened->config.ToJson(), model.config.ToJson());
  EXPECT_EQ(opened->config.eos_token_ids, model.config.eos_token_ids);
  EXPECT_EQ(*opened->tokenizer->Encode("42="), *model.tokenizer->Encode("42="));
}

TEST(ModelBundle, ATokenizerOfTheJobNeedNotTravel) {
  const job::v1::JobSpec spec = RandomModelJob();
  const ModelBundle bundle = MakeModelBundle(spec, MustOpen(spec));
  EXPECT_THAT(bundle.tokenizer_files, IsEmpty());
  const auto opened = OpenModelBundle(spec, bundle);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(*opened->tokenizer->Encode("42"), ElementsAre(4, 2));
}

TEST(ModelBundle, ABrokenOneIsRefused) {
  const job::v1::JobSpec spec = RandomModelJob();
  const ModelBundle good = MakeModelBundle(spec, MustOpen(spec));
  for (const char* config : {"", "{", "[]", "{\"model_type\": \"gpt2\"}"}) {
    const auto opened = OpenModelBundle(spec, {config, "", {}});
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << config;
    EXPECT_THAT(Message(opened.status()), HasSubstr("the trainer's model"));
  }
  job::v1::JobSpec other = spec;
  other.mutable_tokenizer()->set_alphabet("0123456789=abc");
  EXPECT_THAT(Message(OpenModelBundle(other, good).status()),
              HasSubstr("the tokenizer has 15 ids, the model's vocab_size is 12"));
  other.mutable_tokenizer()->set_type("file");
  EXPECT_FALSE(OpenModelBundle(other, good).ok()) << "the bundle has no tokenizer";
}

TEST(ModelTextFiles, MakeAHuggingFaceDirectory) {
  const ModelSetup model = MustOpen(RandomModelJob());
  std::vector<std::string> names;
  for (const auto& [name, content] : ModelTextFiles(model.config, *model.tokenizer, Dtype::kBf16)) {
    names.push_back(name);
    EXPECT_FALSE(content.empty()) << name;
    if (name == "config.json") {
      EXPECT_THAT(content, HasSubstr(R"("torch_dtype": "bfloat16")"));
    }
  }
  EXPECT_THAT(names, AllOf(Contains("config.json"), Contains("generation_config.json"),
                           Contains("tokenizer.json")));
}

}  // namespace
}  // namespace freshet
