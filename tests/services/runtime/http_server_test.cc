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
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "base/str_cat.h"
#include "services/runtime/http_client.h"
#include "tests/services/runtime/raw_connection.h"
#include "tests/testing/descriptor_limit.h"

namespace freshet::runtime {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::unique_ptr<HttpServer> StartOrDie(HttpRoutes routes, const HttpLimits& limits = {}) {
  auto server = HttpServer::Start("127.0.0.1:0", std::move(routes), limits);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

HttpRoutes Hello() {
  return {{"/hello", [] { return HttpResponse{.body = "hi\n"}; }}};
}

HttpResponse Get(const HttpServer& server, const std::string& path) {
  return HttpGet(server.address(), path, absl::Seconds(10));
}

// Sends `bytes`; returns everything that the server sends.
std::string Answer(const HttpServer& server, const std::string& bytes) {
  RawConnection connection(server.address());
  connection.Send(bytes);
  return connection.ReadAll();
}

TEST(HttpServer, AnswersItsRoutesOnly) {
  const auto server = StartOrDie(Hello());
  const std::string answer = Answer(*server, "GET /hello?x=1 HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nhi\n"));
  for (const char* path : {"/", "/hello/", "/../etc/passwd", "/HELLO"}) {
    EXPECT_EQ(Get(*server, path).status, 404) << path;
    EXPECT_EQ(Get(*server, path).body, "Not Found\n") << path;
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
  const std::string answer =
      Answer(**server, "GET /a/b?c=1?d HTTP/1.0\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("\r\nX-One: 1\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n/a/b c=1?d test\n"));
}

TEST(HttpServer, LeavesTheBodyOutForHead) {
  const auto server = StartOrDie(Hello());
  const std::string answer = Answer(*server, "HEAD /hello HTTP/1.1\r\n\r\n");
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
  const std::string get = "GET /hello HTTP/1.1\r\n";
  std::string many = get;
  while (many.size() < 9000) many += "A: b\r\n";
  const std::vector<std::pair<std::string, int>> hostile = {
      {"POST /hello HTTP/1.1\r\n\r\n", 405},
      {"POST /hello HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405},
      {std::string(64, '\0'), 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET / HTTP/1.1 x\r\n\r\n", 505},
      {"GET /\r\n\r\n", 400},
      {"\r\n\r\n", 400},
      {"GET http://evil/ HTTP/1.1\r\n\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\n\r\n", 19), 400},
      {"GET /\xff HTTP/1.1\r\n\r\n", 400},
      {get + "NoColon\r\n\r\n", 400},
      {get + "A: b\nB: c\r\n\r\n", 400},
      {get + "Host: a\r\nHost: b\r\n\r\n", 400},
      {get + "Content-Length: 5\r\n\r\nhello", 413},
      {get + "Content-Length: 99999999999\r\n\r\n", 413},
      {get + "Transfer-Encoding: chunked\r\n\r\n", 413},
      {"GET /" + std::string(100'000, 'a'), 431},
      {get + "A: " + std::string(9000, 'a') + "\r\n\r\n", 431},
      {many + "\r\n", 431}};
  for (const auto& [bytes, status] : hostile) {
    EXPECT_THAT(Answer(*server, bytes), StartsWith(StrCat("HTTP/1.1 ", status, " ")))
        << bytes.substr(0, 60);
  }
  EXPECT_EQ(Get(*server, "/hello").body, "hi\n");
}

TEST(HttpServer, OutlivesAnyBytes) {
  const auto server = StartOrDie(Hello(), {.max_request_bytes = 128});
  const std::string alphabet("GET/ HTP1.\r\n: \0\xff\x7f?#a", 20);
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    std::string bytes = seed % 2 == 0 ? "GET /a HTTP/1.1\r\n" : "";
    const uint64_t size = RandomBits(1, seed) % 192;
    for (uint64_t i = 0; i < size; ++i) bytes += alphabet[RandomBits(2, seed, i) % alphabet.size()];
    RawConnection connection(server->address());
    connection.Send(bytes);
    connection.FinishSending();
    bool closed = false;
    EXPECT_THAT(connection.ReadAll(&closed), AnyOf("", StartsWith("HTTP/1.1 "))) << seed;
    EXPECT_TRUE(closed) << seed;
  }
  EXPECT_EQ(Get(*server, "/hello").body, "hi\n");
}

TEST(HttpServer, DropsWhatFollowsARequest) {
  const auto server = StartOrDie(Hello());
  const std::string get = "GET /hello HTTP/1.1\r\n\r\n";
  const std::string answer = Answer(*server, get + std::string(1 << 20, '\xff') + get);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer.substr(1), Not(HasSubstr("HTTP/1.1")));
  EXPECT_THAT(answer, EndsWith("hi\n"));
}

TEST(HttpServer, AnswersAClientThatFinishedSending) {
  const auto server = StartOrDie(Hello());
  RawConnection connection(server->address());
  connection.Send("GET /hello HTTP/1.1\r\n\r\n");
  connection.FinishSending();
  EXPECT_THAT(connection.ReadAll(), EndsWith("hi\n"));
}

TEST(HttpServer, ClosesAConnectionThatSaysNothing) {
  const auto server = StartOrDie(Hello(), {.io_timeout = absl::Milliseconds(20)});
  RawConnection connection(server->address());
  connection.Send("GET /hel");
  bool closed = false;
  EXPECT_EQ(connection.ReadAll(&closed), "");
  EXPECT_TRUE(closed);
}

TEST(HttpServer, LimitsTheTimeOfAWholeRequest) {
  constexpr size_t kMany = 1 << 22;
  const auto server =
      StartOrDie(Hello(), {.max_request_bytes = 2 * kMany, .io_timeout = absl::Milliseconds(50)});
  RawConnection slow(server->address());
  slow.Send("GET /hello HTTP/1.1\r\nA: ");
  size_t sent = 0;  // one byte at a time, each within the timeout
  while (sent < kMany && slow.Send("a")) ++sent;
  EXPECT_LT(sent, kMany);
  EXPECT_EQ(slow.ReadAll(), "");
}

TEST(HttpServer, ClosesAConnectionThatDoesNotReadItsAnswer) {
  HttpRoutes routes = Hello();
  routes["/big"] = [] { return HttpResponse{.body = std::string(64 << 20, 'x')}; };
  const auto server =
      StartOrDie(std::move(routes), {.max_connections = 1, .io_timeout = absl::Milliseconds(20)});
  RawConnection stuck(server->address());
  stuck.Send("GET /big HTTP/1.1\r\n\r\n");
  // Wait until the only slot is free. Until then connections are closed at once.
  HttpResponse answer;
  for (int i = 0; i < 10'000 && answer.body.empty(); ++i) answer = Get(*server, "/hello");
  EXPECT_EQ(answer.body, "hi\n");
}

// A timeout so long that no slot becomes free by itself.
const HttpLimits kTwoPatient = {.max_connections = 2, .io_timeout = absl::Minutes(1)};

TEST(HttpServer, ClosesTheOldestWithoutARequestForOneMore) {
  const auto server = StartOrDie(Hello(), kTwoPatient);
  RawConnection first(server->address());
  RawConnection second(server->address());
  first.Send("GET ");
  second.Send("GET ");
  EXPECT_EQ(Get(*server, "/hello").body, "hi\n");
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
    EXPECT_EQ(Get(*server, "/hello").body, "hi\n") << i;
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
  EXPECT_EQ(Get(*server, "/hello").status, 0);
  EXPECT_GT(first.ReadAll().size(), kSize);
  EXPECT_GT(second.ReadAll().size(), kSize);
}

TEST(HttpServer, WaitsForDescriptorsWithoutTurning) {
  const auto server = StartOrDie(Hello());
  std::optional<SoftDescriptorLimit> limit(std::in_place,
                                           static_cast<rlim_t>(NextDescriptor()) + 1);
  RawConnection client(server->address());  // takes the last slot
  ASSERT_TRUE(client.Send("GET /hello HTTP/1.1\r\n\r\n"));
  const absl::Duration before = ProcessCpuTime();
  ::poll(nullptr, 0, 400);  // gives the server time to spin
  EXPECT_LT(ProcessCpuTime() - before, absl::Milliseconds(100));
  limit.reset();
  EXPECT_THAT(client.ReadAll(), EndsWith("hi\n"));
}

TEST(HttpServer, SaysFiveHundredWhenARouteThrows) {
  HttpRoutes routes = Hello();
  routes["/bad"] = []() -> HttpResponse { throw std::runtime_error("broken"); };
  const auto server = StartOrDie(std::move(routes));
  EXPECT_EQ(Get(*server, "/bad").status, 500);
  EXPECT_EQ(Get(*server, "/hello").body, "hi\n");
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
  EXPECT_EQ(Get(*server, "/readyz").status, 503);
  EXPECT_EQ(Get(*server, "/readyz").body, "weights: no version yet\n");
  EXPECT_EQ(Get(*server, "/healthz").status, 200);
  readiness.Set("weights", true);
  EXPECT_EQ(Get(*server, "/readyz").status, 200);
}

TEST(ProbeRoutes, ServeMetricsAsText) {
  Readiness readiness;
  prometheus::Registry registry;
  prometheus::BuildCounter().Name("freshet_test_total").Help("A test.").Register(registry).Add({});
  const auto server = StartOrDie(ProbeRoutes(readiness, registry));
  const HttpResponse metrics = Get(*server, "/metrics");
  EXPECT_THAT(metrics.content_type, StartsWith("text/plain; version=0.0.4"));
  EXPECT_THAT(metrics.body, HasSubstr("# TYPE freshet_test_total counter\nfreshet_test_total 0"));
}

}  // namespace
}  // namespace freshet::runtime
