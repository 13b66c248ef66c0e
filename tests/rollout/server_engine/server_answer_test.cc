#include "rollout/server_engine/server_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/str_cat.h"

namespace freshet {
namespace {

using testing::ElementsAre;

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
              testing::HasSubstr("generate with 500: no room"));
  for (const char* body : {R"({"message":"no room"})", R"({"detail":"no room"})"}) {
    EXPECT_THAT(Message(HttpError("x", 500, body)), testing::EndsWith("500: no room"));
  }
  EXPECT_LT(Message(HttpError("x", 500, std::string(100'000, 'a'))).size(), 1000U);
}

TEST(ServedModels, AreRead) {
  const auto model = ParseServedModel(R"({"data":[{"id":"m","max_model_len":64}]})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "m");
  EXPECT_EQ(model->max_model_len, 64);
  for (const char* body : {"", "[]", "{}", R"({"data":[]})", R"({"data":[{"id":"m"}]})",
                           R"({"data":[{"id":3,"max_model_len":4}]})"}) {
    EXPECT_FALSE(ParseServedModel(body).ok()) << body;
  }
}

TEST(WeightVersions, MustBeThoseThatWereSet) {
  EXPECT_TRUE(CheckWeightVersion(R"({"weight_version":"0.3"})", {0, 3}).ok());
  for (const char* body : {"", "[]", "{}", R"({"weight_version":null})",
                           R"({"weight_version":"0.2"})", R"({"weight_version":"default"})"}) {
    EXPECT_EQ(CheckWeightVersion(body, {0, 3}).code(), absl::StatusCode::kInternal) << body;
  }
}

}  // namespace
}  // namespace freshet
