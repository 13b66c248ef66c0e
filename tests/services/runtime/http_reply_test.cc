#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "services/runtime/http_server.h"
#include "tests/services/runtime/http_requests.h"
#include "tests/services/runtime/raw_connection.h"

namespace freshet::runtime {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(HttpReply, AnswersFromAnyThread) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection client(server->address());
  client.Send(kGet);
  const auto reply = requests.Next().reply;
  std::thread([&] {
    reply->Send({.status = 418, .body = "tea", .headers = {{"X", "1"}}});
    reply->Send({.body = "ignored"});
    reply->StartStream({});
    EXPECT_FALSE(reply->Write("ignored"));
    reply->Finish();
  }).join();
  const std::string answer = client.ReadThrough("tea");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 418 "));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 3\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX: 1\r\n"));
}

TEST(HttpReply, StreamsPiecesAsTheyCome) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection client(server->address());
  client.Send(kGet);
  const auto reply = requests.Next().reply;
  reply->StartStream({.content_type = "text/event-stream", .body = "first"});
  const std::string head = client.ReadThrough("5\r\nfirst\r\n");
  EXPECT_THAT(head, HasSubstr("\r\nContent-Type: text/event-stream\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_TRUE(reply->Write(""));
  EXPECT_TRUE(reply->Write("0123456789abcdef"));
  EXPECT_EQ(client.ReadThrough("f\r\n"), "10\r\n0123456789abcdef\r\n");
  reply->Finish();
  EXPECT_EQ(client.ReadThrough("\r\n\r\n"), "0\r\n\r\n");
}

TEST(HttpReply, StreamsWithoutChunksToOldClients) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection client(server->address());
  client.Send("GET / HTTP/1.0\r\n\r\n");
  const auto reply = requests.Next().reply;
  reply->StartStream({.body = "a"});
  reply->Write("b");
  reply->Finish();
  const std::string answer = client.ReadAll();
  EXPECT_THAT(answer, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nab"));
}

TEST(HttpReply, LeavesTheBodyOutForHead) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection client(server->address());
  client.Send("HEAD / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\nConnection: close\r\n\r\n");
  requests.Next().reply->Send({.body = "body"});
  const auto streamed = requests.Next().reply;
  streamed->StartStream({.body = "body"});
  EXPECT_TRUE(streamed->Write("body"));
  streamed->Finish();
  EXPECT_THAT(client.ReadAll(), Not(HasSubstr("body")));
}

TEST(HttpReply, SaysFiveHundredWhenNobodyAnswers) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection client(server->address());
  client.Send(kGet);
  requests.Next().reply.reset();
  EXPECT_THAT(client.ReadThrough("\r\n"), StartsWith("HTTP/1.1 500 "));
}

TEST(HttpReply, CutsAStreamThatIsNotFinished) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection client(server->address());
  client.Send(kGet);
  auto reply = requests.Next().reply;
  reply->StartStream({.body = "start"});
  client.ReadThrough("start\r\n");
  reply.reset();
  bool closed = false;
  EXPECT_EQ(client.ReadAll(&closed), "");
  EXPECT_TRUE(closed);
}

TEST(HttpReply, NoticesThatTheClientGoesAway) {
  HttpRequests requests;
  const auto server = requests.Serve();
  for (const bool streams : {false, true}) {
    std::optional<RawConnection> client(std::in_place, server->address());
    client->Send(kGet);
    const auto reply = requests.Next().reply;
    if (streams) reply->StartStream({.body = "a"});
    Notification before;
    Notification after;
    reply->OnClosed([&] { before.Notify(); });
    client.reset();
    EXPECT_TRUE(before.WaitFor(kGuard));
    EXPECT_FALSE(reply->Write("b"));
    reply->OnClosed([&] { after.Notify(); });
    EXPECT_TRUE(after.WaitFor(kGuard));
    reply->Send({});  // ignored
  }
}

TEST(HttpReply, ForgetsTheClientOfACompleteAnswer) {
  HttpRequests requests;
  const auto server = requests.Serve();
  std::atomic<int> closed = 0;
  auto owned = std::make_shared<int>();
  {
    RawConnection client(server->address());
    client.Send(kGet);
    const auto reply = requests.Next().reply;
    reply->OnClosed([&closed, owned] { ++closed; });
    reply->Send({.body = "answer."});
    reply->OnClosed([&closed, owned] { ++closed; });
    EXPECT_EQ(owned.use_count(), 1);
    client.ReadThrough("answer.");
  }
  EXPECT_TRUE(server->Drain(kGuard));
  EXPECT_EQ(closed, 0);
}

TEST(HttpReply, LimitsTheTimeOfAnAnswer) {
  for (const bool streams : {false, true}) {
    HttpLimits limits = ApiLimits();
    limits.answer_timeout = absl::Milliseconds(20);
    Notification closed;
    std::shared_ptr<HttpReply> held;
    const auto server = HttpServer::Start(
        "127.0.0.1:0",
        [&](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
          held = std::move(reply);
          if (streams) held->StartStream({.body = "start."});
          held->OnClosed([&] { closed.Notify(); });
        },
        limits);
    ASSERT_TRUE(server.ok()) << server.status();
    RawConnection client((*server)->address());
    client.Send(kGet);
    EXPECT_TRUE(closed.WaitFor(kGuard));
    EXPECT_FALSE(held->Write("more"));
    const std::string answer = client.ReadAll();
    EXPECT_THAT(answer, StartsWith(streams ? "HTTP/1.1 200 " : "HTTP/1.1 504 "));
    EXPECT_THAT(answer,
                EndsWith(streams ? "6\r\nstart.\r\n" : "there was no answer within 20ms\n"));
  }
}

TEST(HttpReply, CutsAStreamThatTheClientDoesNotRead) {
  HttpRequests requests;
  HttpLimits limits = ApiLimits();
  limits.max_buffered_bytes = 1 << 20;
  const auto server = requests.Serve(limits);
  RawConnection client(server->address());
  client.Send(kGet);
  const auto reply = requests.Next().reply;
  Notification closed;
  reply->OnClosed([&] { closed.Notify(); });
  reply->StartStream({});
  size_t written = 0;
  while (written < (64 << 20) && reply->Write(std::string(10'000, 'x'))) written += 10'000;
  EXPECT_GE(written, 1'000'000u);
  EXPECT_LT(written, 64u << 20);
  EXPECT_TRUE(closed.WaitFor(kGuard));
}

TEST(HttpReply, CutsAStreamOfWhichNothingIsReadForLong) {
  HttpRequests requests;
  HttpLimits limits = ApiLimits();
  limits.io_timeout = absl::Milliseconds(200);
  const auto server = requests.Serve(limits);
  RawConnection client(server->address());
  client.Send(kGet);
  const auto reply = requests.Next().reply;
  Notification closed;
  reply->OnClosed([&] { closed.Notify(); });
  reply->StartStream({.body = std::string(64 << 20, 'x')});  // more than the kernel buffers
  EXPECT_TRUE(closed.WaitFor(kGuard));
}

TEST(HttpReply, AStreamMayTakeLongerThanOneReadOrWrite) {
  HttpRequests requests;
  HttpLimits limits = ApiLimits();
  limits.io_timeout = absl::Milliseconds(200);
  const auto server = requests.Serve(limits);
  RawConnection client(server->address());
  client.Send(kGet);
  const auto reply = requests.Next().reply;
  reply->StartStream({.body = "start"});
  client.ReadThrough("start\r\n");
  // Another connection passes the limit; this one has nothing to read.
  RawConnection silent(server->address());
  silent.ReadAll();
  EXPECT_TRUE(reply->Write("end"));
  reply->Finish();
  EXPECT_EQ(client.ReadThrough("0\r\n\r\n"), "3\r\nend\r\n0\r\n\r\n");
}

TEST(HttpReply, DrainWaitsForAnswers) {
  HttpRequests requests;
  const auto server = requests.Serve();
  RawConnection idle(server->address());
  RawConnection client(server->address());
  client.Send(kGet);
  const auto reply = requests.Next().reply;
  EXPECT_FALSE(server->Drain(absl::ZeroDuration()));
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_FALSE(RawConnection(server->address()).connected());
  reply->Send({.body = "answer."});
  EXPECT_TRUE(server->Drain(kGuard));
  EXPECT_THAT(client.ReadAll(), EndsWith("answer."));
}

TEST(HttpReply, MayOutliveItsServer) {
  HttpRequests requests;
  auto server = requests.Serve();
  RawConnection client(server->address());
  client.Send(kGet);
  auto reply = requests.Next().reply;
  Notification before;
  Notification after;
  reply->OnClosed([&] { before.Notify(); });
  server.reset();
  EXPECT_TRUE(before.HasBeenNotified());
  reply->OnClosed([&] { after.Notify(); });
  EXPECT_TRUE(after.HasBeenNotified());
  reply->StartStream({});
  EXPECT_FALSE(reply->Write("a"));
  reply->Finish();
  reply.reset();
}

// Clients that read everything, that go away at once and in mid-stream, against writers on other
// threads, while the server is destroyed.
TEST(HttpReply, ServesManyClientsFromManyThreads) {
  HttpRequests requests;
  HttpLimits limits = ApiLimits();
  limits.max_connections = 1000;
  auto server = requests.Serve(limits);
  std::deque<RawConnection> clients;
  for (int i = 0; i < 60; ++i) {
    clients.emplace_back(server->address());
    clients.back().Send(kGet);
  }
  std::atomic<int> finished = 0;
  std::vector<std::thread> writers;
  for (int t = 0; t < 3; ++t) {
    writers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        auto reply = requests.Next().reply;
        reply->OnClosed([&] { ++finished; });
        reply->StartStream({.body = "start"});
        bool open = true;
        for (int n = 0; n < 200 && open; ++n) open = reply->Write("piece");
        reply->Finish();
      }
    });
  }
  for (int i = 0; i < 20; ++i) clients.pop_front();  // whatever they have received
  for (int i = 0; i < 20; ++i) {
    clients.front().ReadThrough("start");
    clients.pop_front();
  }
  for (RawConnection& client : clients) {
    EXPECT_THAT(client.ReadThrough("0\r\n\r\n"), EndsWith("piece\r\n0\r\n\r\n"));
  }
  server.reset();
  for (std::thread& writer : writers) writer.join();
  EXPECT_LE(finished, 40);
}

}  // namespace
}  // namespace freshet::runtime
