#include "tests/testing/model_directory.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "gtest/gtest.h"
#include "model/model_config.h"
#include "model/parameter_layout.h"
#include "model/safetensors.h"
#include "text/char_tokenizer.h"

namespace freshet {

ModelDirectory::ModelDirectory() {
  ModelConfig shape;
  shape.vocab_size = 12;
  shape.hidden_size = 16;
  shape.num_hidden_layers = 1;
  shape.num_attention_heads = 2;
  shape.num_key_value_heads = 1;
  shape.intermediate_size = 24;
  shape.max_position_embeddings = 16;
  shape.eos_token_ids = {11};
  shape.DeriveDefaults();
  config = nlohmann::json::parse(shape.ToJson());
  std::mt19937 random(7);
  for (const ParameterEntry& expected : MakeParameterLayout(shape).entries) {
    Tensor& tensor = tensors[expected.name];
    tensor.shape = expected.shape;
    size_t size = 1;
    for (const int64_t dim : expected.shape) size *= static_cast<size_t>(dim);
    for (size_t i = 0; i < size; ++i) {
      tensor.values.push_back(static_cast<float>(random() % 2001) / 1000.0F - 1.0F);
    }
  }
  const auto tokenizer = CreateCharTokenizer("0123456789=");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const TokenizerFile& file : (*tokenizer)->Files()) tokenizer_files[file.name] = file.content;
}

void ModelDirectory::Write(const std::string& directory) const {
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << config.dump();
  for (const auto& [name, content] : tokenizer_files) {
    std::ofstream(directory + "/" + name) << content;
  }
  std::vector<TensorToWrite> list;
  for (const auto& [name, tensor] : tensors) {
    list.push_back(
        {name, Dtype::kF32, tensor.shape, tensor.values.data(), 4 * tensor.values.size()});
  }
  const absl::Status written = WriteSafetensors(directory + "/model.safetensors", list);
  EXPECT_TRUE(written.ok()) << written;
}

}  // namespace freshet
