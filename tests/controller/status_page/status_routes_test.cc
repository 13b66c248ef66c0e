#include "controller/status_page/status_routes.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Echoes the request.
class FakeSource final : public StatusSource {
 public:
  StatusIdentity Identity() override { return {"local", "0.1.0", true, ""}; }
  absl::StatusOr<StatusJobs> List(int limit) override {
    if (!error.ok()) return error;
    StatusJobs list;
    list.jobs.emplace_back().set_id(StrCat("of-", limit));
    return list;
  }
  absl::StatusOr<job::v1::Job> Get(const std::string& id) override {
    if (id == "none") return NotFound("there is no job none");
    job::v1::Job job;
    job.set_id(id);
    return job;
  }
  absl::StatusOr<StatusRows> Metrics(const std::string& id, int64_t after, int64_t limit) override {
    asked = StrCat(id, " ", after, " ", limit);
    return StatusRows();
  }
  absl::StatusOr<std::vector<std::string>> Samples(const std::string& id, int limit) override {
    asked = StrCat(id, " ", limit);
    return std::vector<std::string>();
  }
  absl::StatusOr<job::v1::Cluster> Cluster() override { return job::v1::Cluster(); }

  absl::Status error;
  std::string asked;
};

class StatusRoutes : public testing::Test {
 protected:
  runtime::HttpResponse Get(const std::string& target, const std::string& host = "127.0.0.1:80") {
    runtime::HttpRequest request;
    const size_t question = target.find('?');
    request.path = target.substr(0, question);
    if (question != std::string::npos) request.query = target.substr(question + 1);
    request.host = host;
    return AnswerStatusRequest(source_, request, absl::UnixEpoch());
  }
  FakeSource source_;
};

TEST_F(StatusRoutes, ServesThePageAndItsFiles) {
  const runtime::HttpResponse page = Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.body, StartsWith("<!doctype html>"));
  for (const char* script : {"/page.js", "/status.js"}) {
    EXPECT_THAT(Get(script).body, HasSubstr("\"use strict\""));
  }
  EXPECT_THAT(Get("/page.css").content_type, StartsWith("text/css"));
}

TEST_F(StatusRoutes, EveryAnswerForbidsWhatIsNotItsOwn) {
  for (const char* path : {"/", "/api/jobs", "/nowhere"}) {
    const auto headers = Get(path).headers;
    ASSERT_FALSE(headers.empty()) << path;
    EXPECT_EQ(headers[0].first, "Content-Security-Policy");
    EXPECT_THAT(headers[0].second, StartsWith("default-src 'none'"));
  }
}

TEST_F(StatusRoutes, AnswersTheApiWithJson) {
  EXPECT_THAT(Get("/api/jobs").body, HasSubstr("\"of-100\""));
  EXPECT_EQ(Get("/api/workers").content_type, "application/json; charset=utf-8");
  EXPECT_THAT(Get("/api/jobs/a-1").body, HasSubstr("\"id\":\"a-1\""));
  EXPECT_THAT(Get("/api/jobs/a%20b").body, HasSubstr("\"id\":\"a b\""));
}

TEST_F(StatusRoutes, PassesTheQueryOn) {
  EXPECT_EQ(Get("/api/jobs/a/metrics").status, 200);
  EXPECT_EQ(source_.asked, "a 0 500");
  Get("/api/jobs/a/metrics?x=1&limit=3&after=70");
  EXPECT_EQ(source_.asked, "a 70 3");
  Get("/api/jobs/a/samples?limit=5");
  EXPECT_EQ(source_.asked, "a 5");
}

TEST_F(StatusRoutes, RefusesNumbersThatAreNone) {
  for (const char* query : {"after=", "after=x", "after=-1", "after=1x", "limit=0", "limit=1001",
                            "after=99999999999999999999", "after"}) {
    const runtime::HttpResponse answer = Get(StrCat("/api/jobs/a/metrics?", query));
    EXPECT_EQ(answer.status, 400) << query;
    EXPECT_THAT(answer.body, HasSubstr("INVALID_ARGUMENT"));
  }
}

TEST_F(StatusRoutes, SaysWhatIsNotThere) {
  for (const char* path : {"/nowhere", "/api", "/api/jobs/", "/api/jobs/none", "/api/jobs/a/logs",
                           "/api/jobs/%", "/api/jobs/%zz", "/status.js/", "/../etc/passwd"}) {
    EXPECT_EQ(Get(path).status, 404) << path;
  }
}

TEST_F(StatusRoutes, TellsAnOutageFromAFaultOfOurs) {
  source_.error = StatusOf(absl::StatusCode::kUnavailable, "redis: Connection refused");
  EXPECT_EQ(Get("/api/jobs").status, 503);
  EXPECT_THAT(Get("/api/jobs").body, HasSubstr("redis: Connection refused"));
  source_.error = DataLoss("a record cannot be read");
  EXPECT_EQ(Get("/api/jobs").status, 500);
}

TEST_F(StatusRoutes, IsForThisMachineOnly) {
  for (const char* host :
       {"localhost", "localhost:8080", "127.0.0.1", "127.3.2.1:1", "[::1]:80", ""}) {
    EXPECT_EQ(Get("/api/jobs", host).status, 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:80", "10.0.0.1",
                           "localhost.evil.example:80", "unix:/x", "127.0.0.1.evil.example"}) {
    EXPECT_EQ(Get("/api/jobs", host).status, 403) << host;
  }
}

TEST_F(StatusRoutes, IsNotServedBeyondLoopback) {
  const auto served = ServeStatusPage("0.0.0.0:0", source_);
  EXPECT_EQ(served.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(served.status()), StartsWith("--status-listen 0.0.0.0:0 is not a loopback"));
  const auto taken = ServeStatusPage("127.0.0.1:0", source_);
  ASSERT_TRUE(taken.ok());
  const auto second = ServeStatusPage((*taken)->address(), source_);
  EXPECT_THAT(Message(second.status()), StartsWith("--status-listen 127.0.0.1:"));
}

}  // namespace
}  // namespace freshet
