#include "services/runtime/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tests/services/runtime/http_client.h"
#include "tests/services/tunnel/descriptor_limit.h"

namespace freshet::runtime {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<HttpServer> StartOrDie(HttpRoutes routes, const HttpLimits& limits = {}) {
  auto server = HttpServer::Start("127.0.0.1:0", std::move(routes), limits);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

HttpRoutes Hello() {
  return {{"/hello", [] { return HttpResponse{.body = "hi\n"}; }}};
}

TEST(HttpServer, AnswersItsRoutesOnly) {
  const auto server = StartOrDie(Hello());
  const std::string answer = HttpGet(server->address(), "/hello?x=1");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhi\n"));
  for (const char* path : {"/", "/hello/", "/../etc/passwd", "/HELLO"}) {
    EXPECT_THAT(HttpGet(server->address(), path), StartsWith("HTTP/1.1 404 Not Found\r\n")) << path;
  }
}

TEST(HttpServer, AHandlerSeesTheRequestAndAddsHeaders) {
  auto server = HttpServer::Start("127.0.0.1:0", [](const HttpRequest& request) {
    HttpResponse response;
    response.body = request.path + " " + request.query + " " + request.host + "\n";
    response.headers = {{"X-One", "1"}};
    return response;
  });
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string answer = HttpGet((*server)->address(), "/a/b?c=1?d");
  EXPECT_THAT(answer, HasSubstr("\r\nX-One: 1\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n/a/b c=1?d test\n"));
}

TEST(HttpServer, LeavesTheBodyOutForHead) {
  const auto server = StartOrDie(Hello());
  RawConnection connection(server->address());
  connection.Send("HEAD /hello HTTP/1.1\r\n\r\n");
  const std::string answer = connection.ReadAll();
  EXPECT_THAT(answer, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST(HttpServer, TakesARequestInPieces) {
  const auto server = StartOrDie(Hello());
  RawConnection connection(server->address());
  for (const char* piece : {"GE", "T /hello HT", "TP/1.1\r", "\nHost: a\r\n\r", "\n"}) {
    ASSERT_TRUE(connection.Send(piece));
  }
  EXPECT_THAT(connection.ReadAll(), EndsWith("hi\n"));
}

TEST(HttpServer, RefusesHostileInputAndGoesOn) {
  const auto server = StartOrDie(Hello());
  const std::vector<std::pair<std::string, const char*>> hostile = {
      {"POST /hello HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
      {std::string(64, '\0'), "HTTP/1.1 400 "},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "HTTP/1.1 400 "},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 505 "},
      {"GET /" + std::string(100'000, 'a'), "HTTP/1.1 431 "},
      {"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 413 "}};
  for (const auto& [bytes, start] : hostile) {
    RawConnection connection(server->address());
    connection.Send(bytes);
    EXPECT_THAT(connection.ReadAll(), StartsWith(start));
  }
  EXPECT_THAT(HttpGet(server->address(), "/hello"), EndsWith("hi\n"));
}

TEST(HttpServer, ClosesAConnectionThatSaysNothing) {
  const auto server = StartOrDie(Hello(), {.io_timeout = absl::Milliseconds(20)});
  RawConnection connection(server->address());
  connection.Send("GET /hel");
  bool closed = false;
  EXPECT_EQ(connection.ReadAll(&closed), "");
  EXPECT_TRUE(closed);
}

TEST(HttpServer, ClosesAConnectionThatDoesNotReadItsAnswer) {
  HttpRoutes routes = Hello();
  routes["/big"] = [] { return HttpResponse{.body = std::string(64 << 20, 'x')}; };
  const auto server =
      StartOrDie(std::move(routes), {.max_connections = 1, .io_timeout = absl::Milliseconds(20)});
  RawConnection stuck(server->address());
  stuck.Send("GET /big HTTP/1.1\r\n\r\n");
  // The only place becomes free again: others are closed at once until then.
  std::string answer;
  for (int i = 0; i < 10'000 && answer.empty(); ++i) answer = HttpGet(server->address(), "/hello");
  EXPECT_THAT(answer, EndsWith("hi\n"));
}

// Patient enough that no place becomes free by itself.
constexpr HttpLimits kTwoPatient = {.max_connections = 2, .io_timeout = absl::Minutes(1)};

TEST(HttpServer, ClosesTheOldestWithoutARequestForOneMore) {
  const auto server = StartOrDie(Hello(), kTwoPatient);
  RawConnection first(server->address());
  RawConnection second(server->address());
  first.Send("GET ");
  second.Send("GET ");
  EXPECT_THAT(HttpGet(server->address(), "/hello"), EndsWith("hi\n"));
  bool closed = false;
  EXPECT_EQ(first.ReadAll(&closed), "");
  EXPECT_TRUE(closed);
  second.Send("/hello HTTP/1.1\r\n\r\n");
  EXPECT_THAT(second.ReadAll(), EndsWith("hi\n"));
}

TEST(HttpServer, IdleConnectionsDoNotKeepProbesOut) {
  const auto server = StartOrDie(Hello(), {.io_timeout = absl::Minutes(1)});
  std::list<RawConnection> idle;
  for (int i = 0; i < 200; ++i) {
    idle.emplace_back(server->address());
    if (i % 20 != 0) continue;
    EXPECT_THAT(HttpGet(server->address(), "/hello"), EndsWith("hi\n")) << i;
  }
}

TEST(HttpServer, AnsweredConnectionsThatStayOpenDoNotKeepProbesOut) {
  const auto server = StartOrDie(Hello(), kTwoPatient);
  std::list<RawConnection> answered;
  for (int i = 0; i < 3; ++i) {
    answered.emplace_back(server->address());
    answered.back().Send("GET /hello HTTP/1.1\r\n\r\n");
    EXPECT_THAT(answered.back().ReadAll(), EndsWith("hi\n")) << i;
  }
}

TEST(HttpServer, NeverClosesAConnectionThatIsBeingAnswered) {
  constexpr size_t kSize = 64 << 20;  // more than the kernel buffers
  std::atomic<int> asked = 0;
  Notification both;
  HttpRoutes routes = Hello();
  routes["/big"] = [&] {
    if (++asked == 2) both.Notify();
    return HttpResponse{.body = std::string(kSize, 'x')};
  };
  const auto server = StartOrDie(std::move(routes), kTwoPatient);
  RawConnection first(server->address());
  RawConnection second(server->address());
  first.Send("GET /big HTTP/1.1\r\n\r\n");
  second.Send("GET /big HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(both.WaitFor(absl::Seconds(10)));
  EXPECT_EQ(HttpGet(server->address(), "/hello"), "");
  EXPECT_GT(first.ReadAll().size(), kSize);
  EXPECT_GT(second.ReadAll().size(), kSize);
}

TEST(HttpServer, WaitsForDescriptorsWithoutTurning) {
  const auto server = StartOrDie(Hello());
  std::optional<SoftDescriptorLimit> limit(std::in_place,
                                           static_cast<rlim_t>(NextDescriptor()) + 1);
  RawConnection client(server->address());  // has the last one
  ASSERT_TRUE(client.Send("GET /hello HTTP/1.1\r\n\r\n"));
  const absl::Duration before = ProcessCpuTime();
  ::poll(nullptr, 0, 400);  // time to turn
  EXPECT_LT(ProcessCpuTime() - before, absl::Milliseconds(100));
  limit.reset();
  EXPECT_THAT(client.ReadAll(), EndsWith("hi\n"));
}

TEST(HttpServer, SaysFiveHundredWhenARouteThrows) {
  HttpRoutes routes = Hello();
  routes["/bad"] = []() -> HttpResponse { throw std::runtime_error("broken"); };
  const auto server = StartOrDie(std::move(routes));
  EXPECT_THAT(HttpGet(server->address(), "/bad"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(HttpGet(server->address(), "/hello"), EndsWith("hi\n"));
}

TEST(HttpServer, NamesAnAddressThatIsTaken) {
  const auto server = StartOrDie(Hello());
  const auto second = HttpServer::Start(server->address(), Hello());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server->address()));
  EXPECT_EQ(HttpServer::Start("example.org:80", Hello()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ProbeRoutes, SayWhetherTheProcessIsReady) {
  Readiness readiness;
  prometheus::Registry registry;
  const auto server = StartOrDie(ProbeRoutes(readiness, registry));
  readiness.Set("weights", false, "no version yet");
  const std::string not_ready = HttpGet(server->address(), "/readyz");
  EXPECT_THAT(not_ready, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(not_ready, EndsWith("weights: no version yet\n"));
  EXPECT_THAT(HttpGet(server->address(), "/healthz"), StartsWith("HTTP/1.1 200 "));
  readiness.Set("weights", true);
  EXPECT_THAT(HttpGet(server->address(), "/readyz"), StartsWith("HTTP/1.1 200 "));
}

TEST(ProbeRoutes, ServeMetricsAsText) {
  Readiness readiness;
  prometheus::Registry registry;
  prometheus::BuildCounter().Name("freshet_test_total").Help("A test.").Register(registry).Add({});
  const auto server = StartOrDie(ProbeRoutes(readiness, registry));
  const std::string metrics = HttpGet(server->address(), "/metrics");
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(metrics, HasSubstr("# TYPE freshet_test_total counter\nfreshet_test_total 0"));
}

}  // namespace
}  // namespace freshet::runtime
