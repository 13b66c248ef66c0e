#include "rollout/openai/request_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/kv_cache_size.h"
#include "rollout/openai/api_error.h"
#include "text/char_tokenizer.h"

namespace freshet::openai {
namespace {

using testing::HasSubstr;

class RequestPlanTest : public testing::Test {
 protected:
  absl::StatusOr<SamplingParams> Plan(int64_t prompt_tokens) {
    return PlanSampling(request_, prompt_tokens, model_, *tokenizer_);
  }
  int32_t MaxTokens(int64_t prompt_tokens) {
    const absl::StatusOr<SamplingParams> sampling = Plan(prompt_tokens);
    EXPECT_TRUE(sampling.ok()) << sampling.status();
    return sampling.ok() ? sampling->max_new_tokens : 0;
  }
  void ExpectError(const absl::Status& status, const std::string& param, const std::string& part) {
    EXPECT_THAT(ErrorBody(status), HasSubstr("\"param\":\"" + param + "\"")) << status;
    EXPECT_THAT(ErrorBody(status), HasSubstr(part));
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = *CreateCharTokenizer("ab");
  ServedModel model_{.context = 1 << 20, .vocab_size = 3, .eos_ids = {2}, .cache_blocks = 0};
  ApiRequest request_;
};

TEST_F(RequestPlanTest, DefaultsFillTheCacheExactly) {
  request_.chat = true;
  for (const int64_t blocks : {9, 64, 1000}) {
    model_.cache_blocks = blocks;
    for (const int32_t n : {1, 3, 7}) {
      request_.n = n;
      for (const int64_t prompt : {1, 15, 16, 17}) {
        const int64_t tokens = MaxTokens(prompt);
        EXPECT_LE(KvBlocksOfGroup(prompt, n, tokens), blocks) << n << " " << prompt;
        EXPECT_GT(KvBlocksOfGroup(prompt, n, tokens + 1), blocks) << n << " " << prompt;
      }
    }
  }
}

TEST_F(RequestPlanTest, NamesWhatExceedsTheCache) {
  model_.cache_blocks = 64;
  request_.n = 8;
  request_.max_tokens = 200;
  ExpectError(Plan(10).status(), "n", "the KV cache holds");
  request_.n = 64;
  request_.max_tokens.reset();
  ExpectError(Plan(10).status(), "n", "do not fit into the KV cache");
}

TEST_F(RequestPlanTest, BoundsTheLogprobsOfAWholeAnswer) {
  request_.logprobs = true;
  request_.sampling.top_logprobs = 3;
  request_.n = 4;
  request_.max_tokens = kMaxLogprobs / 16;
  EXPECT_EQ(MaxTokens(1), kMaxLogprobs / 16);
  ++*request_.max_tokens;
  ExpectError(Plan(1).status(), "max_tokens", "want at most 16384");
  request_.stream = true;
  EXPECT_EQ(MaxTokens(1), kMaxLogprobs / 16 + 1);
  request_.stream = false;
  request_.max_tokens.reset();
  request_.chat = true;
  EXPECT_EQ(MaxTokens(1), kMaxLogprobs / 16);
}

TEST_F(RequestPlanTest, RefusesInputThatCannotFitBeforeItIsEncoded) {
  model_.context = 256;
  request_.prompts = {{.text = std::string(kMinInputBytes + 1, '!'), .ids = {}}};
  ExpectError(EncodePrompts(request_, model_, *tokenizer_, absl::UnixEpoch()).status(), "prompt",
              "at most 262144 can fit");
  request_.prompts = {{.text = std::string(kMinInputBytes, 'a'), .ids = {}}};
  EXPECT_TRUE(EncodePrompts(request_, model_, *tokenizer_, absl::UnixEpoch()).ok());
}

TEST_F(RequestPlanTest, AnEmptyTextNeedsATokenOfTheTokenizer) {
  request_.prompts = {{.text = "", .ids = {}}};
  ExpectError(EncodePrompts(request_, model_, *tokenizer_, absl::UnixEpoch()).status(), "prompt",
              "has no tokens");
}

}  // namespace
}  // namespace freshet::openai
