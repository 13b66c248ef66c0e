#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/str_cat.h"
#include "services/runtime/http_server.h"
#include "tests/services/runtime/http_requests.h"
#include "tests/services/runtime/raw_connection.h"
#include "tests/testing/descriptor_limit.h"

namespace freshet::runtime {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A server that answers with the request.
std::unique_ptr<HttpServer> ServeEcho(const HttpLimits& limits = ApiLimits()) {
  auto server = HttpServer::Start(
      "127.0.0.1:0",
      [](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
        reply->Send({.body = StrCat(request.method, " ", request.path, " ", request.body, "!")});
      },
      limits);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string AnswerTo(const HttpServer& server, const std::string& bytes) {
  RawConnection connection(server.address());
  connection.Send(bytes);
  connection.FinishSending();
  return connection.ReadAll();
}

TEST(HttpRequests, HaveBodies) {
  const auto server = ServeEcho();
  const std::string post = "POST /a HTTP/1.1\r\n";
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {"\r\n", ""},
      {"Content-Length: 0\r\n\r\n", ""},
      {"Content-Length: 5\r\n\r\nhello", "hello"},
      {"Content-Length: 1000\r\n\r\n" + std::string(1000, 'x'), std::string(1000, 'x')},
      {"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
      {"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
       "hello"}};
  for (const auto& [rest, body] : bodies) {
    EXPECT_THAT(AnswerTo(*server, post + rest), EndsWith("\r\n\r\nPOST /a " + body + "!")) << rest;
    RawConnection pieces(server->address());
    for (const char c : post + rest) pieces.Send(std::string(1, c));
    EXPECT_THAT(pieces.ReadThrough("!"), EndsWith("\r\n\r\nPOST /a " + body + "!")) << rest;
  }
}

TEST(HttpRequests, AreAskedForABodyThatTheyAnnounce) {
  const auto server = ServeEcho();
  RawConnection client(server->address());
  client.Send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.ReadThrough("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("hi");
  EXPECT_THAT(client.ReadThrough("!"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(AnswerTo(*server,
                       "POST / HTTP/1.1\r\nExpect: 100-continue\r\n"
                       "Content-Length: 1001\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
}

TEST(HttpRequests, AreCheckedBeforeTheirBodiesAreReceived) {
  HttpLimits limits = ApiLimits();
  limits.check_head = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    if (head.headers.contains("authorization")) return std::nullopt;
    return HttpResponse{.status = 401, .body = "no key"};
  };
  const auto server = ServeEcho(limits);
  const std::string post = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n";
  RawConnection stranger(server->address());
  stranger.Send(post + "\r\n");  // the body never comes
  EXPECT_THAT(stranger.ReadThrough("no key"), StartsWith("HTTP/1.1 401 "));
  RawConnection client(server->address());
  client.Send(post + "Authorization: Bearer a\r\n\r\n");
  EXPECT_EQ(client.ReadThrough("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("hi");
  EXPECT_THAT(client.ReadThrough("!"), EndsWith("POST / hi!"));
}

TEST(HttpRequests, HaveHeaders) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection client(server->address());
  client.Send("GET / HTTP/1.1\r\nAUTHORIZATION: Bearer a\r\nX: 1\r\nx: 2\r\n\r\n");
  const auto received = requests.Next();
  EXPECT_EQ(received.request.headers.at("authorization"), "Bearer a");
  EXPECT_EQ(received.request.headers.at("x"), "1, 2");
}

TEST(HttpRequests, AreRefusedIfHostile) {
  HttpLimits limits = ApiLimits();
  limits.refusal = [](int status, const std::string&) {
    return HttpResponse{.status = status, .content_type = "x/y", .body = StrCat("<", status, ">")};
  };
  const auto server = ServeEcho(limits);
  const std::string post = "POST / HTTP/1.1\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  std::string lines = post;
  while (lines.size() < 20'000) lines += "A: b\r\n";
  const std::vector<std::pair<std::string, int>> hostile = {
      {"PUT / HTTP/1.1\r\n\r\n", 405},
      {"POST / HTTP/3.0\r\n\r\n", 505},
      {"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 413},
      {post + "Content-Length: 1001\r\n\r\n", 413},
      {post + "Content-Length: 18446744073709551615\r\n\r\n", 413},
      {post + "Content-Length: 18446744073709551616\r\n\r\n", 400},
      {post + "Content-Length: -1\r\n\r\n", 400},
      {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na", 400},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {chunked + "3e9\r\n", 413},
      {chunked + "1f4\r\n" + std::string(500, 'x') + "\r\n1f5\r\n", 413},
      {chunked + "xyz\r\n", 400},
      {chunked + "1\r\nabcde\r\n", 400},
      {chunked + "1;" + std::string(100'000, 'x'), 431},
      {chunked + "0\r\nA: " + std::string(100'000, 'x'), 431},
      {lines, 431}};
  for (const auto& [bytes, status] : hostile) {
    const std::string answer = AnswerTo(*server, bytes);
    EXPECT_THAT(answer, StartsWith(StrCat("HTTP/1.1 ", status, " "))) << bytes.substr(0, 60);
    EXPECT_THAT(answer, EndsWith(StrCat("<", status, ">"))) << bytes.substr(0, 60);
    EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n")) << bytes.substr(0, 60);
  }
  EXPECT_THAT(AnswerTo(*server, "PUT / HTTP/1.1\r\n\r\n"), HasSubstr("\r\nAllow: GET, HEAD, POST"));
  EXPECT_THAT(AnswerTo(*server, kGet), EndsWith("GET / !"));
}

TEST(HttpRequests, AreToldWhatIsWrong) {
  const auto server = ServeEcho();
  const std::pair<std::string, std::string> cases[] = {
      {"PUT / HTTP/1.1\r\n\r\n", "the method PUT is not supported, want GET, HEAD, POST\n"},
      {"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", "the body exceeds 1000 bytes\n"},
      {"GET / HTTP/1.1\r\nA: " + std::string(20'000, 'x'),
       "request line and headers exceed 8192 bytes\n"},
      {"GET x HTTP/1.1\r\n\r\n", "the request target is not an absolute path\n"},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "there is more than one header Host\n"}};
  for (const auto& [bytes, text] : cases) {
    EXPECT_THAT(AnswerTo(*server, bytes), EndsWith("\r\n\r\n" + text)) << bytes.substr(0, 60);
  }
}

TEST(HttpRequests, AreRefusedIfHeadersComeLineByLineForever) {
  const auto server = ServeEcho();
  RawConnection client(server->address());
  client.Send("GET / HTTP/1.1\r\n");
  for (size_t sent = 0; sent < (1 << 20) && client.Send("A: b\r\n"); sent += 6) {
  }
  EXPECT_THAT(client.ReadThrough("\r\n"), StartsWith("HTTP/1.1 431 "));
}

TEST(HttpRequests, MayBeAnyBytes) {
  const auto server = ServeEcho({.max_request_bytes = 128, .max_body_bytes = 100});
  const std::string alphabet("GET/ HTP1.\r\n\r\n: \0\xff;a05", 22);
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    std::string bytes = "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
    if (seed % 2 == 0) bytes = "POST /a HTTP/1.1\r\nContent-Length: 9\r\n";
    const uint64_t size = RandomBits(1, seed) % 192;
    for (uint64_t i = 0; i < size; ++i) bytes += alphabet[RandomBits(2, seed, i) % alphabet.size()];
    RawConnection client(server->address());
    const uint64_t first = RandomBits(3, seed) % bytes.size();
    client.Send(bytes.substr(0, first));
    for (const char c : bytes.substr(first)) client.Send(std::string(1, c));
    client.FinishSending();
    EXPECT_THAT(client.ReadAll(), AnyOf("", StartsWith("HTTP/1.1 "))) << seed;
  }
  EXPECT_THAT(AnswerTo(*server, kGet), EndsWith("GET / !"));
}

TEST(HttpRequests, AreRefusedIfTheirBodyIsLate) {
  HttpLimits limits = ApiLimits();
  limits.io_timeout = absl::Milliseconds(200);
  const auto server = ServeEcho(limits);
  RawConnection client(server->address());
  client.Send("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nh");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408 "));
}

TEST(HttpRequests, AreRefusedIfBodiesExceedTheMemory) {
  HttpLimits limits = ApiLimits();
  limits.max_connections = 100;
  const auto server = ServeEcho(limits);
  const std::string almost =
      "POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + std::string(999, 'x');
  std::deque<RawConnection> clients;
  for (int i = 0; i < 65; ++i) {  // 64 * 1000 bytes hold 64 of them
    clients.emplace_back(server->address());
    clients.back().Send(almost);
  }
  EXPECT_THAT(clients.back().ReadAll(), StartsWith("HTTP/1.1 503 "));
  clients.front().Send("x");
  EXPECT_THAT(clients.front().ReadThrough("!"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpRequests, ShareAConnection) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection client(server->address());
  for (int i = 0; i < 3; ++i) {
    client.Send(kGet);
    requests.Next().reply->Send({.body = "whole!"});
    EXPECT_THAT(client.ReadThrough("!"), Not(HasSubstr("Connection:"))) << i;
    client.Send("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi");
    const auto received = requests.Next();
    EXPECT_EQ(received.request.body, "hi");
    received.reply->StartStream({.body = "stream"});
    received.reply->Finish();
    EXPECT_THAT(client.ReadThrough("0\r\n\r\n"), HasSubstr("6\r\nstream\r\n")) << i;
  }
  client.Send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  requests.Next().reply->Send({.body = "last!"});
  const std::string last = client.ReadAll();
  EXPECT_THAT(last, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(last, EndsWith("last!"));
}

TEST(HttpRequests, AreAnsweredInOrder) {
  constexpr int kMany = 5000;
  const auto server = ServeEcho();
  RawConnection client(server->address());
  std::thread sender([&] {
    std::string all;
    for (int i = 0; i < kMany; ++i) all += StrCat("GET /", i, " HTTP/1.1\r\n\r\n");
    client.Send(all + "GET /end HTTP/1.1\r\nConnection: close\r\n\r\n");
  });
  const std::string answers = client.ReadAll();
  sender.join();
  size_t at = 0;
  for (int i = 0; i < kMany && at != std::string::npos; ++i) {
    at = answers.find(StrCat("GET /", i, " !"), at);
    EXPECT_NE(at, std::string::npos) << i;
  }
  EXPECT_THAT(answers, EndsWith("GET /end !"));
}

TEST(HttpRequests, EndTheConnectionIfNoneComes) {
  HttpLimits limits = ApiLimits();
  limits.idle_timeout = absl::Milliseconds(20);
  const auto server = ServeEcho(limits);
  RawConnection client(server->address());
  client.Send(kGet);
  bool closed = false;
  EXPECT_THAT(client.ReadAll(&closed), EndsWith("GET / !"));
  EXPECT_TRUE(closed);
}

TEST(HttpRequests, OfNewConnectionsCloseIdleOnes) {
  HttpRequests requests;
  HttpLimits limits = ApiLimits();
  limits.max_connections = 2;
  const auto server = requests.Serve(limits);
  RawConnection answered(server->address());
  answered.Send(kGet);
  const auto held = requests.Next().reply;
  RawConnection idle(server->address());
  idle.Send(kGet);
  requests.Next().reply->Send({.body = "idle!"});
  idle.ReadThrough("idle!");
  RawConnection third(server->address());
  third.Send(kGet);
  requests.Next().reply->Send({.body = "third!"});
  third.ReadThrough("third!");
  EXPECT_EQ(idle.ReadAll(), "");
  held->Send({.body = "held!"});
  EXPECT_THAT(answered.ReadThrough("held!"), EndsWith("held!"));
}

TEST(HttpRequests, OfNewConnectionsCloseIdleOnesThatTakeTheirDescriptors) {
  const auto server = ServeEcho();
  RawConnection idle(server->address());
  idle.Send(kGet);
  idle.ReadThrough("!");
  const SoftDescriptorLimit limit(static_cast<rlim_t>(NextDescriptor()) + 1);
  RawConnection client(server->address());  // takes the last slot
  client.Send(kGet);
  EXPECT_THAT(client.ReadThrough("!"), EndsWith("GET / !"));
  EXPECT_EQ(idle.ReadAll(), "");
}

}  // namespace
}  // namespace freshet::runtime
