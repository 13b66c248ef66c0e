#include "rollout/server_engine/vllm_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "rollout/server_engine/server_answer.h"

namespace freshet {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;

// An event of one choice with these members.
std::string Event(const std::string& ids, const std::string& content,
                  const std::string& rest = "\"finish_reason\":null") {
  return StrCat("{\"choices\":[{\"index\":0,\"token_ids\":", ids,
                ",\"logprobs\":{\"content\":", content, "},", rest, "}]}");
}
const char* const kTwo =
    "[{\"token_id\":5,\"logprob\":-0.5,\"rank\":1},{\"token_id\":7,\"logprob\":-1.25}]";

absl::StatusOr<GenerateEvent> ParseVllm(const std::string& data) {
  return VllmProtocol().ParseEvent(data, SampleAnswer(32, 8, {}));
}

TEST(VllmRequests, HaveWhatTheServerNeeds) {
  GenerateCall call;
  call.request_id = "p-1";
  call.model = "name";
  call.cache_salt = "0.3.0";
  call.token_ids = {5, 6};
  call.max_tokens = 9;
  call.seed = ~uint64_t{0};
  call.stream_interval = 4;
  SamplingParams sampling;
  sampling.temperature = 0.5;
  sampling.stop_ids = {3, 2, 3};
  const Json body = Json::parse(VllmProtocol().Generate(call, sampling).body);
  EXPECT_EQ(body.at("request_id"), "p-1");
  EXPECT_EQ(body.at("token_ids"), Json({5, 6}));
  EXPECT_EQ(body.at("stream"), true);
  const Json& params = body.at("sampling_params");
  EXPECT_EQ(params.at("max_tokens"), 9);
  EXPECT_EQ(params.at("temperature"), 0.5);
  EXPECT_EQ(params.at("logprobs"), 0);
  EXPECT_EQ(params.at("ignore_eos"), true);
  EXPECT_EQ(params.at("stop_token_ids"), Json({2, 3}));
  EXPECT_LE(params.at("seed").get<uint64_t>(), uint64_t{1} << 62);
  EXPECT_FALSE(params.contains("top_p"));
  sampling.top_k = 3;
  EXPECT_EQ(
      Json::parse(VllmProtocol().Generate(call, sampling).body).at("sampling_params").at("top_k"),
      3);
  const auto aborts = VllmProtocol().Abort({"p-1"}, false);
  ASSERT_EQ(aborts.size(), 1U);
  EXPECT_EQ(Json::parse(aborts[0].body), Json::parse(R"({"request_ids":["generate-tokens-p-1"]})"));
  const auto version = VllmProtocol().SetVersion({2, 17});
  EXPECT_EQ(Json::parse(version[0].call.body), Json::parse(R"({"new_version":"2.17"})"));
}

TEST(VllmEvents, HaveTokensAndTheEnd) {
  auto event = ParseVllm(Event("[5,7]", kTwo));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_THAT(event->piece->ids, ElementsAre(5, 7));
  EXPECT_THAT(event->piece->logprobs, ElementsAre(-0.5F, -1.25F));
  EXPECT_EQ(event->piece->end, PieceEnd::kNone);
  // The end of an aborted answer has no tokens, whatever its log-probs are.
  event = ParseVllm(
      Event("[]", kTwo,
            "\"finish_reason\":\"abort\",\"weight_versions\":[{\"version\":\"0.3\",\"start\":0,"
            "\"end\":2},{\"version\":\"default\",\"start\":2,\"end\":4}]"));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_THAT(event->piece->ids, ElementsAre());
  EXPECT_EQ(event->piece->end, PieceEnd::kAbort);
  EXPECT_THAT(event->piece->spans, ElementsAre(Span{{0, 3}, 0, 2}, Span{kForeignVersion, 2, 4}));
  EXPECT_TRUE(ParseVllm("[DONE]")->done);
  EXPECT_FALSE(ParseVllm(R"({"choices":[],"usage":{"total_tokens":3}})")->piece);
}

TEST(VllmEvents, ThatAreMalformedAreErrors) {
  const std::string span = "\"finish_reason\":\"stop\",\"weight_versions\":";
  for (const std::string& data :
       {std::string(),
        std::string("{"),
        std::string("[]"),
        std::string("nul"),
        std::string("{}"),
        std::string(R"({"choices":7})"),
        std::string(R"({"choices":[{},{}]})"),
        std::string(R"({"choices":[{}]})"),
        std::string(R"({"choices":[[]]})"),
        std::string(R"({"choices":[{"index":1}]})"),
        Event("5", kTwo),
        Event("[5]", kTwo),
        Event("[5,8]", kTwo),
        Event("[5,7,9]", kTwo),
        Event("[-1,7]", kTwo),
        Event("[5.0,7]", kTwo),
        Event("[\"5\",7]", kTwo),
        Event("[5,99999999999]", kTwo),
        Event("[5,18446744073709551615]", kTwo),
        Event("[5]", "null"),
        Event("[5]", "{}"),
        Event("[5]", R"([{"token_id":5}])"),
        Event("[5]", R"([{"token_id":5,"logprob":"-1"}])"),
        Event("[5]", R"([{"token_id":5,"logprob":null}])"),
        Event("[5]", R"([{"token_id":5,"logprob":NaN}])"),
        Event("[5]", "[5]"),
        Event("[5,7]", kTwo, "\"finish_reason\":\"repetition\""),
        Event("[5,7]", kTwo, "\"finish_reason\":3"),
        Event("[5,7]", kTwo, span + "3"),
        Event("[5,7]", kTwo, span + "[3]"),
        Event("[5,7]", kTwo, span + R"([{"version":3,"start":0,"end":2}])"),
        Event("[5,7]", kTwo, span + R"([{"version":"0.1","start":0}])"),
        Event("[5,7]", kTwo, span + R"([{"version":"0.1","start":-1,"end":2}])"),
        std::string(2000, '[')}) {
    EXPECT_EQ(ParseVllm(data).status().code(), absl::StatusCode::kInternal) << data;
  }
}

TEST(VllmEvents, CarryErrorsOfTheServer) {
  EXPECT_EQ(ParseVllm(R"({"error":{"message":"a\u0007b","code":400}})").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseVllm(R"({"error":"x"})").status().code(), absl::StatusCode::kUnavailable);
}

TEST(VllmLoads, CheckEveryWorkerAndLeaveRunningRequestsAlone) {
  const StoredWeights weights{{0, 3}, "/w/1"};
  const std::vector<ControlStep> steps = VllmProtocol().Load(weights, /*recompute_kv=*/false);
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_EQ(steps[0].call.target, "/pause?mode=keep&clear_cache=false");
  EXPECT_EQ(Json::parse(steps[1].call.body),
            Json::parse(R"({"method":"reload_weights","kwargs":{"weights_path":"/w/1"}})"));
  EXPECT_TRUE(steps[1].check(R"({"results":[null,null]})").ok());
  for (const char* body : {"", "[]", "{}", R"({"results":[]})", R"({"results":["failed"]})"}) {
    EXPECT_FALSE(steps[1].check(body).ok()) << body;
  }
  EXPECT_EQ(steps[2].call.target,
            "/reset_prefix_cache?reset_running_requests=false&reset_external=false");
}

}  // namespace
}  // namespace freshet
