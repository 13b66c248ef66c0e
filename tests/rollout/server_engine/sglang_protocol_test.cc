#include "rollout/server_engine/sglang_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "nlohmann/json.hpp"
#include "rollout/server_engine/server_answer.h"
#include "rollout/server_engine/vllm_protocol.h"

namespace freshet {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const char* const kFirst = "[-0.5,5,null],[-1.25,7,null]";
const char* const kNext = "[-0.25,3,null]";

// An event whose answer has `total` tokens, with these members of meta_info.
std::string SglangEvent(int total, const std::string& ids, const std::string& entries,
                        const std::string& reason = "null", const std::string& version = "0.3") {
  return StrCat("{\"output_ids\":[", ids, "],\"meta_info\":{\"completion_tokens\":", total,
                ",\"output_token_logprobs\":[", entries, "],\"finish_reason\":", reason,
                ",\"weight_version\":\"", version, "\"}}");
}
absl::StatusOr<GenerateEvent> ParseFirst(const std::string& data) {
  return SglangProtocol().ParseEvent(data, SampleAnswer(32, 3, {3}));
}
// Of an answer whose first tokens are those of kFirst.
absl::StatusOr<GenerateEvent> ParseNext(const std::string& data) {
  SampleAnswer answer(32, 3, {3});
  EXPECT_TRUE(answer.Add({{5, 7}, {-0.5F, -1.25F}, PieceEnd::kNone, {{{0, 3}, 0, 2}}}).ok());
  return SglangProtocol().ParseEvent(data, answer);
}

TEST(SglangRequests, HaveWhatTheServerNeeds) {
  GenerateCall call;
  call.request_id = "p-1";
  call.cache_salt = "0.3.0";
  call.token_ids = {5, 6};
  call.max_tokens = 9;
  call.seed = ~uint64_t{0};
  call.stream_interval = 4;
  SamplingParams sampling;
  sampling.temperature = 0.5;
  const auto body = [&] { return Json::parse(SglangProtocol().Generate(call, sampling).body); };
  EXPECT_EQ(body(), Json::parse(R"({
      "rid":"p-1.", "extra_key":"0.3.0", "input_ids":[5,6], "stream":true, "return_logprob":true,
      "logprob_start_len":-1, "sampling_params":{"max_new_tokens":9, "temperature":0.5,
      "sampling_seed":2147483647, "ignore_eos":true, "stream_interval":4}})"));
  sampling.stop_ids = {3, 2};
  sampling.top_p = 0.5;
  const Json params = body().at("sampling_params");
  EXPECT_EQ(params.at("ignore_eos"), false) << "stop tokens would be ignored, too";
  EXPECT_EQ(params.at("stop_token_ids"), Json({3, 2}));
  EXPECT_EQ(params.at("top_p"), 0.5);
  EXPECT_EQ(params.at("top_k"), -1);
}

TEST(SglangAborts, NameEachRequest) {
  const auto some = SglangProtocol().Abort({"p-1", "p-2"}, false);
  ASSERT_EQ(some.size(), 2U);
  // An id also stands for all that begin with it.
  EXPECT_EQ(Json::parse(some[0].body), Json::parse(R"({"rid":"p-1."})"));
  const auto all = SglangProtocol().Abort({"p-1", "p-2"}, true);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(Json::parse(all[0].body), Json::parse(R"({"abort_all":true})"));
}

TEST(SglangEvents, HaveTokensAndTheirVersion) {
  auto event = ParseFirst(SglangEvent(2, "5,7", kFirst));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_THAT(event->piece->ids, ElementsAre(5, 7));
  EXPECT_THAT(event->piece->logprobs, ElementsAre(-0.5F, -1.25F));
  EXPECT_THAT(event->piece->spans, ElementsAre(Span{{0, 3}, 0, 2}));
  EXPECT_EQ(event->piece->end, PieceEnd::kNone);
  // The next ones, alone or with all before, or, after an abort, the last one of all.
  const std::string all = StrCat(kFirst, ",", kNext);
  for (const std::string& data :
       {SglangEvent(3, "3", kNext), SglangEvent(3, "5,7,3", all), SglangEvent(3, "3", all)}) {
    event = ParseNext(data);
    ASSERT_TRUE(event.ok()) << event.status();
    EXPECT_THAT(event->piece->ids, ElementsAre(3));
    EXPECT_THAT(event->piece->spans, ElementsAre(Span{{0, 3}, 2, 3}));
  }
  event = ParseNext(SglangEvent(2, "", "", R"({"type":"abort","message":"Abort"})", "default"));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_THAT(event->piece->ids, IsEmpty());
  EXPECT_EQ(event->piece->end, PieceEnd::kAbort);
  event = ParseNext(SglangEvent(3, "3", kNext, "null", "default"));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_THAT(event->piece->spans, ElementsAre(Span{kForeignVersion, 2, 3}));
  EXPECT_TRUE(ParseFirst("[DONE]")->done);
}

TEST(SglangEvents, EndByStopTokenOrLength) {
  const auto end = [](const std::string& ids, const std::string& entry, const std::string& reason) {
    const auto event = ParseNext(SglangEvent(3, ids, entry, reason));
    EXPECT_TRUE(event.ok()) << event.status();
    return event.ok() ? event->piece->end : PieceEnd::kNone;
  };
  EXPECT_EQ(end("3", kNext, R"({"type":"stop","matched":3})"), PieceEnd::kStop);
  EXPECT_EQ(end("4", "[-1,4,null]", R"({"type":"length","length":3})"), PieceEnd::kLength);
  // The server looks at the length first.
  EXPECT_EQ(end("3", kNext, R"({"type":"length","length":3})"), PieceEnd::kStop);
}

TEST(SglangEvents, ThatAreMalformedAreErrors) {
  for (const std::string& data :
       {std::string(),
        std::string("{"),
        std::string("[]"),
        std::string("{}"),
        std::string(R"({"meta_info":{}})"),
        std::string(R"({"output_ids":[],"meta_info":{"completion_tokens":2}})"),
        std::string(R"({"output_ids":[3],"meta_info":{"completion_tokens":3,
                        "output_token_logprobs":[[-0.25,3,null]]}})"),  // no version
        SglangEvent(3, "3", ""),
        SglangEvent(3, "", kFirst),            // neither 1 nor 3 entries
        SglangEvent(4, "3", kNext),            // one is missing
        SglangEvent(1, "5", "[-0.5,5,null]"),  // goes back
        SglangEvent(3, "6,7,3", StrCat("[-1,6,null],[-1.25,7,null],", kNext)),  // changes
        SglangEvent(3, "4", kNext),
        SglangEvent(3, "7,3", kNext),
        SglangEvent(3, "\"3\"", kNext),
        SglangEvent(-1, "", ""),
        SglangEvent(3, "3", "[-0.25]"),
        SglangEvent(3, "3", "3"),
        SglangEvent(3, "3", "[null,3,null]"),
        SglangEvent(3, "3", "[NaN,3,null]"),
        SglangEvent(3, "3", "[\"-1\",3,null]"),
        SglangEvent(3, "3", "[-1,-3,null]"),
        SglangEvent(3, "3", "[-1,99999999999,null]"),
        SglangEvent(3, "3", kNext, "3"),
        SglangEvent(3, "3", kNext, R"({"type":"banned"})"),
        std::string(2000, '[')}) {
    EXPECT_EQ(ParseNext(data).status().code(), absl::StatusCode::kInternal) << data;
  }
}

TEST(SglangEvents, CarryErrorsOfTheServer) {
  const auto code = [](const std::string& data) { return ParseFirst(data).status().code(); };
  EXPECT_EQ(code(R"({"error":{"message":"too long"}})"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(SglangEvent(0, "", "", R"({"type":"abort","status_code":500,"message":"x"})")),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(SglangEvent(0, "", "", R"({"type":"abort","status_code":400,"message":"x"})")),
            absl::StatusCode::kInvalidArgument);
  // What it says if a log-prob is not a number.
  const auto event =
      ParseNext(SglangEvent(3, "3", kNext, R"({"type":"stop","matched":"NaN happened"})"));
  EXPECT_EQ(event.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(event.status()), HasSubstr("NaN happened"));
}

TEST(SglangLoads, CheckWhatTheServerSays) {
  const std::vector<ControlStep> steps = SglangProtocol().Load({{0, 3}, "/w/1"}, true);
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(Json::parse(steps[0].call.body), Json::parse(R"({"mode":"abort"})"));
  EXPECT_EQ(Json::parse(steps[1].call.body), Json::parse(R"({"model_path":"/w/1",
            "weight_version":"0.3","abort_all_requests":false,"flush_cache":true})"));
  EXPECT_TRUE(steps[1].check(R"({"success":true,"message":""})").ok());
  for (const char* body :
       {"", "[]", "{}", R"({"success":false,"message":"no"})", R"({"success":"true"})"}) {
    EXPECT_FALSE(steps[1].check(body).ok()) << body;
  }
  EXPECT_FALSE(steps[2].check(R"({"weight_version":"0.2"})").ok());
}

TEST(SamplingChecks, KnowWhatEachServerChanges) {
  ModelConfig model;
  model.eos_token_ids = {2};
  GenerationRequest request;
  request.sampling.temperature = 0.001;
  EXPECT_EQ(CheckSampling(request, VllmProtocol().traits(), model).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckSampling(request, SglangProtocol().traits(), model).ok());
  // SGLang stops at the model's end tokens wherever there are stop tokens.
  request.sampling.temperature = 1;
  request.sampling.stop_ids = {3};
  EXPECT_TRUE(CheckSampling(request, VllmProtocol().traits(), model).ok());
  EXPECT_EQ(CheckSampling(request, SglangProtocol().traits(), model).code(),
            absl::StatusCode::kInvalidArgument);
  request.sampling.stop_ids = {3, 2};
  EXPECT_TRUE(CheckSampling(request, SglangProtocol().traits(), model).ok());
}

}  // namespace
}  // namespace freshet
