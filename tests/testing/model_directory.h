#ifndef FRESHET_TESTS_TESTING_MODEL_DIRECTORY_H_
#define FRESHET_TESTS_TESTING_MODEL_DIRECTORY_H_

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace freshet {

// A Hugging Face directory with a tiny Llama model over the characters "0123456789=". Tests can
// modify the fields before writing it.
struct ModelDirectory {
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };

  ModelDirectory();
  // Writes config.json, model.safetensors and the tokenizer files.
  void Write(const std::string& directory) const;

  nlohmann::json config;
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> tokenizer_files;  // name -> content
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_MODEL_DIRECTORY_H_
