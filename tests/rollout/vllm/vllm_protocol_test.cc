#include "rollout/vllm/vllm_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// An event of one choice with these members.
std::string Event(const std::string& ids, const std::string& content,
                  const std::string& rest = "\"finish_reason\":null") {
  return StrCat("{\"choices\":[{\"index\":0,\"token_ids\":", ids,
                ",\"logprobs\":{\"content\":", content, "},", rest, "}]}");
}
const char* const kTwo =
    "[{\"token_id\":5,\"logprob\":-0.5,\"rank\":1},{\"token_id\":7,\"logprob\":-1.25}]";

GeneratedPiece Piece(std::vector<int32_t> ids, PieceEnd end = PieceEnd::kNone,
                     std::vector<Span> spans = {}) {
  const std::vector<float> logprobs(ids.size(), -0.5F);
  return {std::move(ids), logprobs, end, std::move(spans)};
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
  const Json body = Json::parse(GenerateBody(call, sampling));
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
  EXPECT_EQ(Json::parse(GenerateBody(call, sampling)).at("sampling_params").at("top_k"), 3);
  EXPECT_EQ(Json::parse(ReloadBody("/w/1")),
            Json::parse(R"({"method":"reload_weights","kwargs":{"weights_path":"/w/1"}})"));
  EXPECT_EQ(Json::parse(AbortBody({WireId("p-1")})),
            Json::parse(R"({"request_ids":["generate-tokens-p-1"]})"));
  EXPECT_EQ(Json::parse(VersionBody({2, 17})), Json::parse(R"({"new_version":"2.17"})"));
}

TEST(VersionLabels, AreReadStrictly) {
  EXPECT_EQ(ParseVersionLabel("2.17"), (PolicyVersion{2, 17}));
  for (const char* label : {"", "default", "1", ".", "1.", ".1", "1.2.3", "-1.2", "1.-2", " 1.2",
                            "1.2 ", "1e3.1", "99999999999999999999.1", "0x1.2"}) {
    EXPECT_EQ(ParseVersionLabel(label), std::nullopt) << label;
  }
}

TEST(EventLines, AreFoundHoweverTheBytesAreCut) {
  const std::string stream = "data: {\"a\":1}\n\nid: 3\n: comment\ndata:x\r\n\ndata: [DONE]\n\n";
  for (size_t size = 1; size <= stream.size(); ++size) {
    EventLines lines;
    std::vector<std::string> found;
    for (size_t i = 0; i < stream.size(); i += size) {
      ASSERT_TRUE(lines.Add(std::string_view(stream).substr(i, size), found).ok());
    }
    EXPECT_THAT(found, ElementsAre("{\"a\":1}", "x", "[DONE]")) << size;
  }
}

TEST(EventLines, AreBounded) {
  EventLines lines;
  std::vector<std::string> found;
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = lines.Add(std::string(100'000, 'a'), found);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
}

TEST(GenerateEvents, HaveTokensAndTheEnd) {
  auto event = ParseGenerateEvent(Event("[5,7]", kTwo));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_THAT(event->piece->ids, ElementsAre(5, 7));
  EXPECT_THAT(event->piece->logprobs, ElementsAre(-0.5F, -1.25F));
  EXPECT_EQ(event->piece->end, PieceEnd::kNone);
  // The end of an aborted answer has no tokens, whatever its log-probs are.
  event = ParseGenerateEvent(
      Event("[]", kTwo,
            "\"finish_reason\":\"abort\",\"weight_versions\":[{\"version\":\"0.3\",\"start\":0,"
            "\"end\":2},{\"version\":\"default\",\"start\":2,\"end\":4}]"));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_THAT(event->piece->ids, ElementsAre());
  EXPECT_EQ(event->piece->end, PieceEnd::kAbort);
  EXPECT_THAT(event->piece->spans, ElementsAre(Span{{0, 3}, 0, 2}, Span{kForeignVersion, 2, 4}));
  EXPECT_TRUE(ParseGenerateEvent("[DONE]")->done);
  EXPECT_FALSE(ParseGenerateEvent(R"({"choices":[],"usage":{"total_tokens":3}})")->piece);
}

TEST(GenerateEvents, ThatAreMalformedAreErrors) {
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
    EXPECT_EQ(ParseGenerateEvent(data).status().code(), absl::StatusCode::kInternal) << data;
  }
}

TEST(GenerateEvents, CarryErrorsOfTheServer) {
  EXPECT_EQ(ParseGenerateEvent(R"({"error":{"message":"a\u0007b","code":400}})").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseGenerateEvent(R"({"error":"x"})").status().code(), absl::StatusCode::kUnavailable);
}

TEST(SampleAnswers, CollectTokensAndSpans) {
  SampleAnswer answer(32, 4, {2});
  ASSERT_TRUE(answer.Add(Piece({5})).ok());
  ASSERT_TRUE(answer.Add(Piece({6, 2}, PieceEnd::kStop, {{{0, 1}, 0, 1}, {{0, 2}, 1, 3}})).ok());
  Response response;
  response.response_ids = {9};
  response.behavior_logprobs = {-1.0F};
  response.loss_mask = {1};
  response.spans = {{{0, 1}, 0, 1}};
  AppendAnswer(answer, 3, false, response);
  EXPECT_THAT(response.response_ids, ElementsAre(9, 5, 6, 2));
  EXPECT_THAT(response.behavior_logprobs, ElementsAre(-1.0F, -0.5F, -0.5F, -0.5F));
  EXPECT_THAT(response.loss_mask, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(response.spans, ElementsAre(Span{{0, 1}, 0, 2}, Span{{0, 2}, 2, 4}));
  EXPECT_TRUE(response.sampling_logprobs.empty());
}

TEST(SampleAnswers, CanBeCut) {
  SampleAnswer answer(32, 4, {});
  ASSERT_TRUE(
      answer.Add(Piece({5, 6, 7}, PieceEnd::kAbort, {{{0, 1}, 0, 2}, {{0, 2}, 2, 3}})).ok());
  Response response;
  AppendAnswer(answer, 1, true, response);
  EXPECT_THAT(response.response_ids, ElementsAre(5));
  EXPECT_THAT(response.sampling_logprobs, ElementsAre(-0.5F));
  EXPECT_THAT(response.spans, ElementsAre(Span{{0, 1}, 0, 1}));
}

TEST(SampleAnswers, ThatContradictTheRequestAreErrors) {
  const std::vector<Span> all = {{{0, 1}, 0, 2}};
  struct Case {
    const char* what;
    GeneratedPiece piece;
  };
  GeneratedPiece few_logprobs = Piece({5, 6});
  few_logprobs.logprobs.pop_back();
  GeneratedPiece no_logprob = Piece({5});
  no_logprob.logprobs[0] = -9999.0F;
  GeneratedPiece positive = Piece({5});
  positive.logprobs[0] = 0.5F;
  for (const Case& one : {
           Case{"count", few_logprobs},
           Case{"not finite", no_logprob},
           Case{"above 0", positive},
           Case{"vocabulary", Piece({32})},
           Case{"too many", Piece({1, 1, 1, 1, 1})},
           Case{"short", Piece({1, 1}, PieceEnd::kLength, all)},
           Case{"no stop token", Piece({1, 1}, PieceEnd::kStop, all)},
           Case{"no spans", Piece({1, 1}, PieceEnd::kAbort)},
           Case{"gap", Piece({1, 1}, PieceEnd::kAbort, {{{0, 1}, 1, 2}})},
           Case{"overlap", Piece({1, 1}, PieceEnd::kAbort, {{{0, 1}, 0, 2}, {{0, 2}, 1, 2}})},
           Case{"backwards", Piece({1, 1}, PieceEnd::kAbort, {{{0, 1}, 0, -1}})},
           Case{"beyond", Piece({1, 1}, PieceEnd::kAbort, {{{0, 1}, 0, 3}})},
       }) {
    SampleAnswer answer(32, 4, {2});
    EXPECT_EQ(answer.Add(one.piece).code(), absl::StatusCode::kInternal) << one.what;
  }
  SampleAnswer ended(32, 4, {2});
  ASSERT_TRUE(ended.Add(Piece({}, PieceEnd::kAbort)).ok());
  EXPECT_EQ(ended.Add(Piece({1})).code(), absl::StatusCode::kInternal);
}

TEST(HttpErrors, SayWhetherToRepeat) {
  EXPECT_EQ(HttpError("x", 400, "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HttpError("x", 422, "").code(), absl::StatusCode::kInvalidArgument);
  for (const int status : {401, 403, 404, 405}) {
    EXPECT_EQ(HttpError("x", status, "").code(), absl::StatusCode::kFailedPrecondition);
  }
  for (const int status : {0, 302, 408, 429, 500, 502, 503, 504, 999}) {
    EXPECT_EQ(HttpError("x", status, "").code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_THAT(Message(HttpError("generate", 500, R"({"error":{"message":"no\nroom"}})")),
              HasSubstr("generate with 500: no room"));
  EXPECT_LT(Message(HttpError("x", 500, std::string(100'000, 'a'))).size(), 1000U);
}

TEST(ControlAnswers, AreChecked) {
  const auto model = ParseServedModel(R"({"data":[{"id":"m","max_model_len":64}]})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "m");
  EXPECT_EQ(model->max_model_len, 64);
  EXPECT_EQ(*ParseWeightInfo(R"({"weight_version":"default"})"), "default");
  EXPECT_TRUE(CheckReload(R"({"results":[null,null]})").ok());
  for (const char* body :
       {"", "[]", "{}", R"({"data":[]})", R"({"data":[{"id":3,"max_model_len":4}]})",
        R"({"data":[{"id":"m"}]})", R"({"results":[]})", R"({"results":["failed"]})",
        R"({"weight_version":null})"}) {
    EXPECT_FALSE(ParseServedModel(body).ok()) << body;
    EXPECT_FALSE(ParseWeightInfo(body).ok()) << body;
    EXPECT_FALSE(CheckReload(body).ok()) << body;
  }
}

}  // namespace
}  // namespace freshet
