#include "services/runtime/http_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/http_server.h"
#include "tests/testing/answering_port.h"

namespace freshet::runtime {
namespace {

// All that happened to a call, until its end.
struct Outcome {
  int status = 0;
  std::string body;
  absl::Status error;
  bool ended = false;
};

void TakeInto(HttpCalls& calls, std::map<int64_t, Outcome>& outcomes) {
  for (HttpCallEvent& event : calls.Take(absl::Seconds(10))) {
    Outcome& outcome = outcomes[event.call];
    EXPECT_FALSE(outcome.ended);
    outcome.status = event.status;
    outcome.body += event.data;
    outcome.error = event.error;
    outcome.ended = event.end;
  }
}

Outcome Finish(HttpCalls& calls, HttpCall call) {
  const int64_t number = calls.Start(std::move(call));
  std::map<int64_t, Outcome> outcomes;
  for (int i = 0; i < 1000 && !outcomes[number].ended; ++i) TakeInto(calls, outcomes);
  EXPECT_TRUE(outcomes[number].ended);
  return outcomes[number];
}

HttpCall Get(const std::string& target) {
  HttpCall call;
  call.method = "GET";
  call.target = target;
  return call;
}

std::unique_ptr<HttpCalls> Open(const std::string& address) {
  auto calls = OpenHttpCalls(address);
  EXPECT_TRUE(calls.ok()) << calls.status();
  return *std::move(calls);
}

Outcome CallToServerThatSends(const std::string& answer, HttpCall call = Get("/")) {
  const AnsweringPort port(answer);
  const auto calls = Open(port.address());
  return Finish(*calls, std::move(call));
}

TEST(HttpCalls, SendBodiesAndReceiveAnswers) {
  HttpLimits limits;
  limits.max_body_bytes = 1000;
  const auto server = HttpServer::Start(
      "127.0.0.1:0",
      [](const HttpRequest& request) {
        HttpResponse response;
        response.status = request.method == "POST" ? 201 : 404;
        response.body =
            StrCat(request.method, " ", request.path, "?", request.query, " ", request.body);
        return response;
      },
      limits);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto calls = Open((*server)->address());
  HttpCall call;
  call.target = "/a?b=c";
  call.body = "{}";
  Outcome outcome = Finish(*calls, call);
  EXPECT_EQ(outcome.status, 201);
  EXPECT_EQ(outcome.body, "POST /a?b=c {}");
  EXPECT_TRUE(outcome.error.ok()) << outcome.error;
  call.body = "";
  EXPECT_EQ(Finish(*calls, call).body, "POST /a?b=c ");
  EXPECT_EQ(Finish(*calls, Get("/x")).status, 404);
}

TEST(HttpCalls, ReceiveStreamsAsTheyCome) {
  Mutex mu;
  std::shared_ptr<HttpReply> reply;
  CondVar arrived;
  const auto server =
      HttpServer::Start("127.0.0.1:0", [&](const HttpRequest&, std::shared_ptr<HttpReply> given) {
        MutexLock lock(mu);
        reply = std::move(given);
        HttpResponse head;
        head.body = "one";
        reply->StartStream(std::move(head));
        arrived.NotifyAll();
      });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto calls = Open((*server)->address());
  const int64_t number = calls->Start(Get("/"));
  std::map<int64_t, Outcome> outcomes;
  while (outcomes[number].body != "one") TakeInto(*calls, outcomes);
  EXPECT_FALSE(outcomes[number].ended);
  MutexLock lock(mu);
  EXPECT_TRUE(reply->Write(" two"));
  while (outcomes[number].body != "one two") TakeInto(*calls, outcomes);
  reply->Finish();
  while (!outcomes[number].ended) TakeInto(*calls, outcomes);
  EXPECT_EQ(outcomes[number].body, "one two");
  EXPECT_TRUE(outcomes[number].error.ok()) << outcomes[number].error;
}

TEST(HttpCalls, EndWithAnErrorWhateverTheServerSends) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  for (const std::string& bytes :
       {std::string(), std::string("SSH-2.0-OpenSSH\r\n"), std::string(100, '\0'), ok,
        ok + "Content-Length: 5\r\n\r\nhi", ok + "Content-Length: -5\r\n\r\nhi",
        ok + "Content-Length: 99999999999999999999\r\n\r\n",
        ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhi",
        ok + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        ok + std::string(100'000, 'a') + "\r\n\r\n"}) {
    EXPECT_FALSE(CallToServerThatSends(bytes).error.ok()) << bytes.substr(0, 60);
  }
  const Outcome whole =
      CallToServerThatSends(ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
  EXPECT_EQ(whole.body, "hi");
  EXPECT_TRUE(whole.error.ok()) << whole.error;
}

TEST(HttpCalls, BoundTheAnswer) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  HttpCall call = Get("/");
  call.max_bytes = 1000;
  for (const std::string& bytes :
       {ok + "Content-Length: 1001\r\n\r\n" + std::string(1001, 'a'),
        ok + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'a') + "\r\n0\r\n\r\n",
        ok + "\r\n" + std::string(5000, 'a')}) {
    EXPECT_EQ(CallToServerThatSends(bytes, call).error.code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(CallToServerThatSends(ok + "\r\n" + std::string(1000, 'a'), call).body.size(), 1000U);
}

TEST(HttpCalls, HaveADeadline) {
  const AnsweringPort silent;
  const auto calls = Open(silent.address());
  HttpCall call = Get("/");
  call.timeout = absl::Milliseconds(20);
  EXPECT_EQ(Finish(*calls, call).error.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(HttpCalls, NeedAServer) {
  std::string address;
  { address = AnsweringPort().address(); }
  EXPECT_EQ(Finish(*Open(address), Get("/")).error.code(), absl::StatusCode::kUnavailable);
  for (const char* bad : {"", "nowhere", "a.b:80", "127.0.0.1:0", "127.0.0.1"}) {
    EXPECT_EQ(OpenHttpCalls(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(HttpCalls, LookUpTheHostEachTime) {
  const AnsweringPort port("HTTP/1.1 200 OK\r\n\r\nhi");
  std::vector<std::string> hosts;
  auto calls = OpenHttpCalls(StrCat("agents:", ParseHostPort(port.address())->port),
                             [&hosts](const std::string& host) -> absl::StatusOr<std::string> {
                               hosts.push_back(host);
                               if (hosts.size() == 1) return absl::UnavailableError("unknown");
                               return "127.0.0.1";
                             });
  ASSERT_TRUE(calls.ok()) << calls.status();
  EXPECT_EQ(Finish(**calls, Get("/")).error, absl::UnavailableError("unknown"));
  EXPECT_EQ(Finish(**calls, Get("/")).body, "hi");
  calls->reset();
  EXPECT_THAT(hosts, testing::ElementsAre("agents", "agents"));
}

TEST(HttpCalls, ThatWaitForTheHostShareOneLookUp) {
  std::promise<void> all_started;
  const std::shared_future<void> started = all_started.get_future();
  int lookups = 0;
  auto calls = OpenHttpCalls("agents:80", [&](const std::string&) -> absl::StatusOr<std::string> {
    ++lookups;
    started.wait();
    return absl::UnavailableError("unknown");
  });
  ASSERT_TRUE(calls.ok()) << calls.status();
  std::vector<int64_t> numbers;
  for (int i = 0; i < 3; ++i) numbers.push_back((*calls)->Start(Get("/")));
  all_started.set_value();
  std::map<int64_t, Outcome> outcomes;
  for (const int64_t number : numbers) {
    while (!outcomes[number].ended) TakeInto(**calls, outcomes);
    EXPECT_EQ(outcomes[number].error, absl::UnavailableError("unknown"));
  }
  calls->reset();
  EXPECT_EQ(lookups, 1);
}

TEST(HttpCalls, ThatAreStoppedHaveNoMoreEvents) {
  const AnsweringPort silent;
  const auto calls = Open(silent.address());
  const int64_t first = calls->Start(Get("/"));
  calls->Stop(first);
  calls->Stop(first);
  calls->Stop(99);
  HttpCall call = Get("/");
  call.timeout = absl::Milliseconds(20);
  const int64_t second = calls->Start(call);
  std::map<int64_t, Outcome> outcomes;
  while (!outcomes[second].ended) TakeInto(*calls, outcomes);
  EXPECT_FALSE(outcomes.contains(first));
  calls->Start(Get("/"));  // in progress at the end
}

}  // namespace
}  // namespace freshet::runtime
