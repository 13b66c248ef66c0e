// Model directories that cannot be trained, each refused before anything is made.
#include <fstream>
#include <limits>

#include "tests/e2e/refusal_fixture.h"
#include "tests/testing/model_directory.h"

namespace freshet {
namespace {

class BadModelTest : public RefusalFixture {
 protected:
  static TinyJob ModelJob() {
    TinyJob job = MakeTinyJob();
    job["model"] = "{path: model}";
    job["tokenizer"] = "";
    return job;
  }
  // Writes the model and expects the job to be refused with exactly one line, or `num_lines`.
  std::vector<std::string> Refuse(const ModelDirectory& model,
                                  const std::vector<std::string>& parts, size_t num_lines = 1) {
    model.Write(Path("model"));
    return RefuseJob(ModelJob(), parts, num_lines);
  }
  void Remove(const std::string& name) { std::filesystem::remove_all(Path(name)); }

  ModelDirectory model_;
};

TEST_F(BadModelTest, TheUnspoiltModelTrains) {
  model_.Write(Path("model"));
  TinyJob job = ModelJob();
  job["trainer"] = "{steps: 2}";
  Train(job);
  ExpectComplete(2);
}

TEST_F(BadModelTest, NoDirectory) { RefuseJob(ModelJob(), {"model: no such model directory"}, 1); }

TEST_F(BadModelTest, MissingTensor) {
  model_.tensors.erase("model.norm.weight");
  Refuse(model_, {"model/model.safetensors: ", "\"model.norm.weight\"", "missing"});
}

TEST_F(BadModelTest, ManyMissingTensors) {
  model_.tensors.clear();
  model_.tensors["model.norm.weight"] = {{16}, std::vector<float>(16, 1.0F)};
  const std::vector<std::string> lines = Refuse(model_, {"missing"}, 6);
  EXPECT_EQ(lines.back(), "freshet: and 6 more");  // 9 of the layer, embedding and head: 11
}

TEST_F(BadModelTest, MisshapenTensor) {
  model_.tensors["model.layers.0.self_attn.k_proj.weight"].shape = {16, 8};
  Refuse(model_, {"model/model.safetensors: ", "\"model.layers.0.self_attn.k_proj.weight\"",
                  "[16, 8]", "[8, 16]"});
}

TEST_F(BadModelTest, TruncatedFile) {
  model_.Write(Path("model"));
  const std::string path = Path("model/model.safetensors");
  const uint64_t bytes = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, bytes - 100);
  RefuseJob(ModelJob(), {"model/model.safetensors: ", "truncated", std::to_string(bytes - 100)}, 1);
  std::filesystem::resize_file(path, 20);
  RefuseJob(ModelJob(), {"model/model.safetensors: "}, 1);
  std::filesystem::resize_file(path, 0);
  RefuseJob(ModelJob(), {"model/model.safetensors: "}, 1);
}

TEST_F(BadModelTest, WeightsThatAreNotNumbers) {
  model_.tensors["model.norm.weight"].values[3] = std::numeric_limits<float>::quiet_NaN();
  Refuse(model_, {"model/model.safetensors: ", "\"model.norm.weight\"", "NaN", "element 3"});
  model_.tensors["model.norm.weight"].values[3] = std::numeric_limits<float>::infinity();
  Refuse(model_, {"\"model.norm.weight\"", "infinite"});
}

TEST_F(BadModelTest, UnsupportedArchitecture) {
  model_.config["model_type"] = "gpt_neox";
  model_.config["architectures"] = {"GPTNeoXForCausalLM"};
  Refuse(model_, {"model/config.json: ", "gpt_neox", "llama"});
}

TEST_F(BadModelTest, BrokenConfig) {
  model_.Write(Path("model"));
  folder_.Write("model/config.json", "{");
  RefuseJob(ModelJob(), {"model/config.json: "}, 1);
  Remove("model/config.json");
  RefuseJob(ModelJob(), {"model/config.json: "}, 1);
}

TEST_F(BadModelTest, NoWeights) {
  model_.Write(Path("model"));
  Remove("model/model.safetensors");
  RefuseJob(ModelJob(), {"model: ", "model.safetensors"}, 1);
  folder_.Write("model/pytorch_model.bin", "x");
  RefuseJob(ModelJob(), {"pytorch_model.bin", "safetensors"}, 1);
}

TEST_F(BadModelTest, BrokenTokenizer) {
  model_.tokenizer_files["tokenizer.json"] = "{\"model\":";
  Refuse(model_, {"model/tokenizer.json: "});
  model_.tokenizer_files["tokenizer.json"] = "{\"model\": {\"type\": \"Unigram\"}}";
  Refuse(model_, {"model/tokenizer.json: ", "Unigram"});
  model_.tokenizer_files.erase("tokenizer.json");
  Remove("model");
  Refuse(model_, {"model: ", "tokenizer.json"});
}

TEST_F(BadModelTest, TokenizerOfAnotherModel) {
  model_.config["vocab_size"] = 6;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    ModelDirectory::Tensor& tensor = model_.tensors[name];
    tensor.shape = {6, 16};
    tensor.values.resize(96);
  }
  model_.config["eos_token_id"] = 5;
  Refuse(model_, {"model: ", "12 ids", "vocab_size is 6", "tokenizer"});
}

TEST_F(BadModelTest, ContextTooShort) {
  model_.Write(Path("model"));
  TinyJob job = ModelJob();
  job["rollout"] = "{max_new_tokens: 16}";
  RefuseJob(job, {"rollout.max_new_tokens", "context of 16"}, 1);
  job["rollout"] = "{max_new_tokens: 13}";
  RefuseJob(job, {"4 tokens, more than 3"}, 6);
}

}  // namespace
}  // namespace freshet
