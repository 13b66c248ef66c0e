#include "services/http/curl_http_client.h"

#include "controller/kubernetes/kubernetes_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/controller/kubernetes/fake_api_server.h"
#include "tests/services/runtime/certificates.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class CurlHttpClientTest : public testing::Test {
 protected:
  CurlHttpClientTest() {
    files_.MakeAuthority("ca");
    files_.Make("server", "ca", "IP:127.0.0.1");
    SetToken("secret-1");
  }
  void SetToken(const std::string& token) {
    ASSERT_TRUE(WriteFileAtomically(files_.Path("token"), token + "\n").ok());
  }
  void Serve(FakeApiServer::Handler handler) {
    server_ = std::make_unique<FakeApiServer>(std::move(handler), files_.Path("server.pem"),
                                              files_.Path("server.key"));
    auto client =
        CurlHttpClient::Create({server_->url(), files_.Path("ca.pem"), files_.Path("token")});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  static HttpCall Get(const std::string& path) {
    HttpCall call;
    call.method = "GET";
    call.path = path;
    return call;
  }

  Certificates files_;
  std::unique_ptr<FakeApiServer> server_;
  std::unique_ptr<HttpClient> client_;
};

TEST_F(CurlHttpClientTest, SendsMethodBodyAndTheTokenOfTheMoment) {
  Serve([](const auto&) { return FakeApiServer::Answer(201, "{\"a\": 1}"); });
  HttpCall call = Get("/x/y");
  call.method = "PATCH";
  call.content_type = "application/merge-patch+json";
  call.body = "{\"b\": 2}";
  auto reply = client_->Send(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->status, 201);
  EXPECT_EQ(reply->body, "{\"a\": 1}");
  SetToken("secret-2");
  ASSERT_TRUE(client_->Send(Get("/z")).ok());
  const auto requests = server_->requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].call(), "PATCH /x/y");
  EXPECT_EQ(requests[0].body, "{\"b\": 2}");
  EXPECT_THAT(requests[0].head, HasSubstr("Authorization: Bearer secret-1\r\n"));
  EXPECT_THAT(requests[0].head, HasSubstr("Content-Type: application/merge-patch+json"));
  EXPECT_EQ(requests[1].call(), "GET /z");
  EXPECT_THAT(requests[1].head, HasSubstr("Authorization: Bearer secret-2"));
}

TEST_F(CurlHttpClientTest, AServerOfAnotherAuthorityGetsNothing) {
  Serve([](const auto&) { return FakeApiServer::Answer(200, "{}"); });
  files_.MakeAuthority("other");
  const auto client =
      CurlHttpClient::Create({server_->url(), files_.Path("other.pem"), files_.Path("token")});
  const auto reply = (*client)->Send(Get("/"));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kPermissionDenied) << reply.status();
  EXPECT_TRUE(IsNothingSent(reply.status()));
  EXPECT_TRUE(server_->requests().empty());
}

TEST_F(CurlHttpClientTest, AServerOfAnotherNameGetsNothing) {
  files_.Make("server", "ca", "DNS:elsewhere");
  Serve([](const auto&) { return FakeApiServer::Answer(200, "{}"); });
  EXPECT_EQ(client_->Send(Get("/")).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(server_->requests().empty());
}

TEST_F(CurlHttpClientTest, DoesNotFollowRedirections) {
  Serve([](const auto&) {
    return std::string(
        "HTTP/1.1 302 x\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  const auto reply = client_->Send(Get("/"));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->status, 302);
  EXPECT_EQ(server_->requests().size(), 1U);
}

TEST_F(CurlHttpClientTest, RepliesAndHeadersAreBounded) {
  Serve([](const FakeApiServer::Request& request) {
    if (request.call() == "GET /headers") {
      std::string answer = "HTTP/1.1 200 x\r\n";
      for (int i = 0; i < 200; ++i) answer += "X: " + std::string(1000, 'x') + "\r\n";
      return answer + "\r\n";
    }
    return FakeApiServer::Answer(200, std::string(5000, 'x'));
  });
  HttpCall call = Get("/");
  call.max_reply_bytes = 4999;
  EXPECT_EQ(client_->Send(call).status().code(), absl::StatusCode::kDataLoss);
  call.max_reply_bytes = 5000;
  EXPECT_TRUE(client_->Send(call).ok());
  const absl::Status headers = client_->Send(Get("/headers")).status();
  EXPECT_EQ(headers.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(headers), HasSubstr("headers"));
}

TEST_F(CurlHttpClientTest, EveryCallHasADeadline) {
  Notification released;
  Serve([&released](const auto&) {
    released.WaitFor(absl::Seconds(10));
    return std::string();
  });
  HttpCall call = Get("/");
  call.deadline = absl::Milliseconds(200);
  EXPECT_EQ(client_->Send(call).status().code(), absl::StatusCode::kDeadlineExceeded);
  released.Notify();
  server_ = nullptr;  // joins the thread that uses `released`
}

TEST_F(CurlHttpClientTest, NobodyThereAndNoAnswerAreUnavailable) {
  Serve([](const auto&) { return std::string(); });
  const absl::Status no_answer = client_->Send(Get("/")).status();
  EXPECT_EQ(no_answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(IsNothingSent(no_answer));
  server_ = nullptr;
  const absl::Status nobody = client_->Send(Get("/")).status();
  EXPECT_EQ(nobody.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsNothingSent(nobody));
}

TEST_F(CurlHttpClientTest, ACallThatIsCancelledBeforeItIsSentIsMarked) {
  Serve([](const auto&) { return FakeApiServer::Answer(200, "{}"); });
  std::stop_source stop;
  stop.request_stop();
  HttpCall call = Get("/");
  call.cancel = stop.get_token();
  const absl::Status cancelled = client_->Send(call).status();
  EXPECT_EQ(cancelled.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(IsNothingSent(cancelled));
  EXPECT_TRUE(server_->requests().empty());
}

TEST_F(CurlHttpClientTest, ATokenThatCannotBeUsedIsNamedAndNotShown) {
  Serve([](const auto&) { return FakeApiServer::Answer(200, "{}"); });
  SetToken("bad\r\nX-Evil: 1");
  const auto reply = client_->Send(Get("/"));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(reply.status().message()), Not(HasSubstr("Evil")));
  EXPECT_TRUE(server_->requests().empty());
}

TEST_F(CurlHttpClientTest, OptionsThatWouldGiveTheTokenAwayAreRefused) {
  for (const CurlHttpOptions& options :
       {CurlHttpOptions{"http://127.0.0.1:1", "", files_.Path("token")},
        CurlHttpOptions{"https://127.0.0.1:1", "", files_.Path("token")},
        CurlHttpOptions{"file:///etc/passwd", "", ""}, CurlHttpOptions{"", "", ""}}) {
    EXPECT_EQ(CurlHttpClient::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(CurlHttpClientTest, AClusterScalesAndTellsCostsOverTls) {
  Serve([](const auto&) { return FakeApiServer::Answer(200, "{\"spec\": {\"replicas\": 3}}"); });
  KubernetesOptions options;
  options.server = server_->url();
  options.ca_file = files_.Path("ca.pem");
  options.token_file = files_.Path("token");
  options.name_space = "ml";
  options.targets = *ParseScaleTargets({"rollout/default=deployments/engines"});
  const auto cluster = KubernetesCluster::Create(options, SystemClock::Get());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(*(*cluster)->scaler().SetWanted("rollout", "", 5, Surplus::kDrains), 3);
  Member engine;
  engine.record.set_name("engines-1");
  engine.record.set_role(cluster::v1::ROLE_ROLLOUT);
  engine.record.set_pool("default");
  engine.connected = true;
  engine.status.set_running_sequences(7);
  Notification told;
  (*cluster)->Start([&]() -> std::optional<std::vector<Member>> {
    if (server_->requests().size() >= 3) told.Notify();
    return std::vector<Member>{engine};
  });
  EXPECT_TRUE(told.WaitFor(absl::Seconds(20)));
  (*cluster)->Stop();
  std::vector<std::string> calls;
  for (const auto& request : server_->requests()) calls.push_back(request.call());
  EXPECT_THAT(calls, ElementsAre("GET /apis/apps/v1/namespaces/ml/deployments/engines/scale",
                                 "PATCH /apis/apps/v1/namespaces/ml/deployments/engines/scale",
                                 "PATCH /api/v1/namespaces/ml/pods/engines-1"));
  EXPECT_THAT(server_->requests()[2].body,
              HasSubstr("\"controller.kubernetes.io/pod-deletion-cost\":\"7\""));
}

}  // namespace
}  // namespace freshet
