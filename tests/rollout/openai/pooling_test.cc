// /pooling, and the API of a reward model.
#include "nlohmann/json.hpp"
#include "tests/rollout/openai/api_service_fixture.h"

namespace freshet::openai {
namespace {

using nlohmann::json;

class PoolingTest : public ApiServiceTest {
 protected:
  PoolingTest() { options_.model.scalar_head = true; }
  void StartPooling(int64_t cache_blocks = 64) {
    Start(std::make_unique<ScriptedEngine>(8, cache_blocks, /*scalar_head=*/true));
  }
  runtime::HttpResponse Pool(const std::string& members) {
    return Call(Request("/pooling", R"({"use_activation": false, )" + members + "}"));
  }
};

TEST_F(PoolingTest, AnswersAsVllm) {
  StartPooling();
  const runtime::HttpResponse response =
      Pool(R"("model": "m", "task": "classify", "input": ["abc", [4, 9]])");
  EXPECT_EQ(response.status, 200);
  const json body = json::parse(response.body);
  EXPECT_THAT(body["id"].get<std::string>(), testing::StartsWith("pooling-"));
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["data"], json::parse(R"([{"index": 0, "object": "pooling", "data": [1.5]},
                                          {"index": 1, "object": "pooling", "data": [8.5]}])"));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["total_tokens"], 5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  ExpectNothingHeld();
}

TEST_F(PoolingTest, RendersConversationsWithoutAGenerationPrompt) {
  StartPooling();
  const runtime::HttpResponse response = Pool(R"("messages": [
      {"role": "user", "content": "hi"}, {"role": "assistant", "content": "d"}])");
  EXPECT_EQ(json::parse(response.body)["data"][0]["data"], json::parse("[2.5]"));
}

TEST_F(PoolingTest, ARewardModelAnswersNothingElse) {
  StartPooling();
  ExpectError(Complete(R"({"prompt": "a"})"), 404, "m is a reward model, which generates no text");
  ExpectError(Call(Request("/v1/chat/completions", "{}")), 404, "use /pooling");
  ExpectError(Call(Request("/pooling")), 405, "wants POST");
  EXPECT_EQ(Call(Request("/v1/models")).status, 200);
  // Before the body is received.
  runtime::HttpRequest head = Request("/v1/completions", "{}");
  head.body.clear();
  EXPECT_EQ(service_->CheckHead(head)->status, 404);
}

TEST_F(PoolingTest, OtherModelsDoNotPool) {
  options_.model.scalar_head = false;
  Start();
  ExpectError(Pool(R"("input": "a")"), 404, "m has no scalar head");
}

TEST_F(PoolingTest, NamesWhatIsWrong) {
  StartPooling();
  ExpectError(Pool(R"("input": "a", "model": "gpt")"), 404, "\"gpt\" does not exist");
  ExpectError(Pool(R"("input": [32])"), 400, "vocabulary of 32");
  ExpectError(Pool(R"("input": "")"), 400, "input: has no tokens");
  ExpectError(Pool(R"("input": "!")"), 400, "input: ");
  ExpectError(Pool(R"("input": "a", "task": "embed")"), 400, "task");
  const std::string full(ScriptedEngine::kContext, 'a');
  ExpectError(Pool(R"("input": ")" + full + "a\""), 400, "257 tokens");
  EXPECT_EQ(Pool(R"("input": ")" + full + "\"").status, 200);
  ExpectError(Pool(R"("input": ")" + std::string(1 << 20, 'a') + "\""), 400, "1048576 bytes");
  ExpectNothingHeld();
}

// 8 prompts of 8 blocks each do not fit into 20 at once.
TEST_F(PoolingTest, WaitsForRoom) {
  StartPooling(/*cache_blocks=*/20);
  std::string input;
  for (int i = 0; i < 8; ++i) input += (i > 0 ? ",\"" : "\"") + std::string(120, 'c') + "\"";
  const json body = json::parse(Pool(R"("input": [)" + input + "]").body);
  ASSERT_EQ(body["data"].size(), 8U) << body;
  for (const json& scored : body["data"]) EXPECT_EQ(scored["data"], json::parse("[1.5]"));
  ExpectNothingHeld();
}

TEST_F(PoolingTest, NeedsTheKey) {
  options_.api_key = "secret";
  StartPooling();
  ExpectError(Pool(R"("input": "a")"), 401, "API key");
  runtime::HttpRequest request =
      Of("secret", "/pooling", R"({"use_activation": false, "input": "a"})");
  EXPECT_EQ(Call(request).status, 200);
}

}  // namespace
}  // namespace freshet::openai
