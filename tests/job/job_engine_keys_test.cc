#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kModel[] =
    "model: {init: random, config: {hidden_size: 64, num_hidden_layers: 1, "
    "num_attention_heads: 2, intermediate_size: 16, max_position_embeddings: 16}}";

// The errors of a minimal job for `engine` with these further keys of its rollout.
std::vector<std::string> With(const std::string& engine, const std::string& keys,
                              const std::string& more = "") {
  std::string job =
      MinimalJobWith(5, StrCat("rollout: {max_new_tokens: 4, engine: ", engine, keys, "}"));
  const std::string model = MinimalJob();
  const size_t begin = model.find("model:");
  job.replace(begin, model.find('\n', begin) - begin, kModel);
  return ErrorLines(job + more);
}

TEST(EngineKeys, NativeIsTheDefaultAndTakesEverything) {
  EXPECT_EQ(ParseJob(MinimalJob(), "job.yaml").spec.rollout().engine(), "native");
  EXPECT_THAT(
      With("native", ", top_p: 0.9, threads: 2, quantization: int8, speculative_tokens: 16"),
      IsEmpty());
}

TEST(EngineKeys, AServerTakesWhatItCanDo) {
  for (const char* engine : {"vllm", "sglang"}) {
    EXPECT_THAT(With(engine, ", temperature: 0.7, stop: [\"=\"], stop_token_ids: [3]",
                     "eval: {top_p: 0.9, top_k: 5, min_p: 0.1}\nstaleness: {max: 0}\n"),
                IsEmpty());
  }
  EXPECT_THAT(With("tgi", ""),
              ElementsAre(HasSubstr("rollout.engine: must be one of native, vllm, sglang")));
}

TEST(EngineKeys, SamplingThatChangesTheDistributionIsRefused) {
  for (const char* key : {"top_p: 0.9", "top_k: 5", "min_p: 0.1", "repetition_penalty: 1.1",
                          "presence_penalty: 0.5", "frequency_penalty: 0.5", "min_new_tokens: 1"}) {
    const std::string name(key, std::string_view(key).find(':'));
    EXPECT_THAT(With("vllm", StrCat(", ", key)),
                ElementsAre(AllOf(HasSubstr(StrCat("rollout.", name, ": must be ")),
                                  HasSubstr(" with rollout.engine vllm, which"))));
  }
  EXPECT_THAT(With("vllm", ", temperature: 0.001"),
              ElementsAre(HasSubstr("rollout.temperature: must be at least 0.01")));
  EXPECT_THAT(With("vllm", "", "eval: {temperature: 0.001}\n"),
              ElementsAre(HasSubstr("eval.temperature: must be 0 or at least 0.01")));
  EXPECT_THAT(With("sglang", ", temperature: 0.001"), IsEmpty());
}

TEST(EngineKeys, KeysOfTheNativeEngineAreRefused) {
  for (const char* key : {"threads: 2", "kv_cache_bytes: 1000000", "quantization: int8",
                          "speculative_tokens: 4", "device: cuda"}) {
    EXPECT_THAT(With("sglang", StrCat(", ", key)),
                ElementsAre(HasSubstr("applies only with rollout.engine native; set it at the "
                                      "sglang server instead")));
  }
}

TEST(EngineKeys, WhatAGpuCannotDoIsRefused) {
  EXPECT_THAT(
      With("native", ", device: cuda, quantization: int8"),
      ElementsAre(HasSubstr("rollout.quantization: must be none with rollout.device cuda")));
  EXPECT_THAT(With("native", ", device: cuda"), IsEmpty());
}

TEST(EngineKeys, HeadsThatServersHaveNoKernelForAreRefused) {
  const std::vector<std::string> errors =
      ErrorLines(MinimalJobWith(5, "rollout: {max_new_tokens: 4, engine: vllm}"));
  EXPECT_THAT(errors, ElementsAre(HasSubstr("model.config.head_dim: must be a multiple of 8 from "
                                            "32 with rollout.engine vllm, got 4")));
}

}  // namespace
}  // namespace freshet
