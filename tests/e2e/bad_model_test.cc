// A model directory that cannot be trained is refused before anything is created. tests/model
// covers the individual errors.
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
  // Writes the model and expects the job to be refused with `num_lines` lines.
  std::vector<std::string> Refuse(const ModelDirectory& model,
                                  const std::vector<std::string>& parts, size_t num_lines = 1) {
    model.Write(Path("model"));
    return RefuseJob(ModelJob(), parts, num_lines);
  }

  ModelDirectory model_;
};

TEST_F(BadModelTest, EveryErrorOfItsFilesIsToldUpToFive) {
  model_.tensors.clear();
  model_.tensors["model.norm.weight"] = {{16}, std::vector<float>(16, 1.0F)};
  const std::vector<std::string> lines = Refuse(model_, {"missing"}, 6);
  EXPECT_EQ(lines.back(), "freshet: and 6 more");  // 11 errors: 9 of the layer, embedding and head
}

TEST_F(BadModelTest, WhatDoesNotFitTogetherIsTold) {
  model_.Write(Path("model"));
  TinyJob job = ModelJob();
  job["rollout"] = "{max_new_tokens: 16}";
  RefuseJob(job, {"rollout.max_new_tokens", "context of 16"}, 1);
  job["rollout"] = "{max_new_tokens: 13}";
  RefuseJob(job, {"4 tokens, more than 3"}, 6);
  model_.config["vocab_size"] = 6;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    ModelDirectory::Tensor& tensor = model_.tensors[name];
    tensor.shape = {6, 16};
    tensor.values.resize(96);
  }
  model_.config["eos_token_id"] = 5;
  Refuse(model_, {"model: ", "12 ids", "vocab_size is 6", "tokenizer"});
}

}  // namespace
}  // namespace freshet
