// Both sides of a bidirectional stream: BidiReactor and ClientStream.
#include "services/runtime/client_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/str_cat.h"
#include "services/runtime/channel.h"
#include "services/runtime/server.h"
#include "tests/services/runtime/echo_service.h"

namespace freshet::runtime {
namespace {

using env::v1::EpisodeReply;
using env::v1::EpisodeRequest;
using Stream = ClientStream<EpisodeRequest, EpisodeReply>;
constexpr absl::Duration kGuard = absl::Seconds(10);

// The server's side of a stream: records messages and sends on request. Thread-safe.
class Peer final : public BidiReactor<EpisodeRequest, EpisodeReply> {
 public:
  explicit Peer(size_t max_queue) : BidiReactor(max_queue) {}

  std::string Message(size_t index) {
    const absl::Time deadline = absl::Now() + kGuard;
    MutexLock lock(mu_);
    while (messages_.size() <= index && absl::Now() < deadline) cv_.WaitFor(mu_, kGuard);
    return messages_.size() > index ? messages_[index] : "nothing";
  }
  size_t seen() {
    MutexLock lock(mu_);
    return messages_.size();
  }
  SendResult Say(const std::string& text) {
    EpisodeReply reply;
    reply.set_observation(text);
    return Send(std::move(reply));
  }
  void PauseReading() {
    MutexLock lock(mu_);
    pause_ = true;
  }
  Notification opened;
  Notification client_done;
  Notification ended;
  bool finish_when_client_done = true;

 private:
  void OnOpen() override { opened.Notify(); }
  Reading OnMessage(const EpisodeRequest& message) override {
    MutexLock lock(mu_);
    messages_.push_back(message.step().action());
    cv_.NotifyAll();
    return pause_ ? Reading::kPause : Reading::kContinue;
  }
  void OnClientDone() override {
    client_done.Notify();
    if (finish_when_client_done) Finish(absl::OkStatus());
  }
  void OnEnd() override { ended.Notify(); }

  Mutex mu_;
  CondVar cv_;
  std::vector<std::string> messages_ ABSL_GUARDED_BY(mu_);
  bool pause_ ABSL_GUARDED_BY(mu_) = false;
};

// Uses the peer created by the test for the next stream.
class PeerService final : public env::v1::EnvService::CallbackService {
 public:
  std::shared_ptr<Peer> peer;

 private:
  grpc::ServerBidiReactor<EpisodeRequest, EpisodeReply>* Episode(
      grpc::CallbackServerContext*) override {
    return Peer::Open(peer);
  }
};

class StreamTest : public ::testing::Test {
 protected:
  void SetUp() override { Listen(16); }
  void Listen(size_t max_queue) {
    peer_ = std::make_shared<Peer>(max_queue);
    service_.peer = peer_;
    auto server = Server::Start({}, {&service_}, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = env::v1::EnvService::NewStub(*MakeChannel(server_->address(), {}));
  }
  std::unique_ptr<Stream> Open(size_t max_buffered = 1024) {
    auto stream = Stream::Start(
        std::make_unique<grpc::ClientContext>(),
        [&](auto* context, auto* reactor) { stub_->async()->Episode(context, reactor); },
        max_buffered);
    EXPECT_TRUE(stream->Write(Step("first"), kGuard).ok());
    EXPECT_EQ(peer_->Message(0), "first");
    return stream;
  }
  static EpisodeRequest Step(const std::string& action) {
    EpisodeRequest request;
    request.mutable_step()->set_action(action);
    return request;
  }

  PeerService service_;
  std::shared_ptr<Peer> peer_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<env::v1::EnvService::Stub> stub_;
};

TEST_F(StreamTest, CarriesMessagesInOrderBothWays) {
  const auto stream = Open();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(stream->Write(Step(StrCat("q", i)), kGuard).ok());
    EXPECT_EQ(peer_->Message(static_cast<size_t>(i) + 1), StrCat("q", i));
    ASSERT_EQ(peer_->Say(StrCat("a", i)), SendResult::kQueued);
    const auto reply = stream->Read(kGuard);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->observation(), StrCat("a", i));
  }
}

TEST_F(StreamTest, EndsCleanlyWhenBothSidesAreDone) {
  const auto stream = Open();
  ASSERT_EQ(peer_->Say("last"), SendResult::kQueued);
  stream->WritesDone();
  stream->WritesDone();
  EXPECT_EQ(stream->Read(kGuard)->observation(), "last");
  EXPECT_EQ(stream->Read(kGuard).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(stream->Finish(kGuard), absl::OkStatus());
  EXPECT_TRUE(stream->done());
  EXPECT_TRUE(peer_->ended.WaitFor(kGuard));
  EXPECT_FALSE(stream->Write(Step("late"), kGuard).ok());
}

TEST_F(StreamTest, GivesTheServersErrorToReaderAndWriter) {
  const auto stream = Open();
  ASSERT_EQ(peer_->Say("before"), SendResult::kQueued);
  peer_->Finish(absl::FailedPreconditionError("fenced"));
  peer_->Finish(absl::OkStatus());
  EXPECT_EQ(peer_->Say("after"), SendResult::kClosed);
  EXPECT_EQ(stream->Read(kGuard)->observation(), "before");
  EXPECT_EQ(stream->Read(kGuard).status(), absl::FailedPreconditionError("fenced"));
  EXPECT_EQ(stream->Write(Step("x"), kGuard), absl::FailedPreconditionError("fenced"));
  EXPECT_EQ(stream->Finish(kGuard), absl::FailedPreconditionError("fenced"));
}

TEST_F(StreamTest, KeepsWhatTheServerSaidBeforeTheEndWhenAWriteFails) {
  const auto stream = Open();
  for (const char* text : {"a", "b", "c"}) ASSERT_EQ(peer_->Say(text), SendResult::kQueued);
  peer_->Finish(absl::AbortedError("over"));
  ASSERT_TRUE(peer_->ended.WaitFor(kGuard));
  absl::Status status;
  while ((status = stream->Write(Step("x"), kGuard)).ok()) {
  }
  EXPECT_EQ(status, absl::AbortedError("over"));
  for (const char* text : {"a", "b", "c"}) {
    const auto reply = stream->Read(kGuard);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->observation(), text);
  }
  EXPECT_EQ(stream->Read(kGuard).status(), absl::AbortedError("over"));
}

TEST_F(StreamTest, ReadGivesUpInTimeAndGoesOn) {
  const auto stream = Open();
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream->Read(absl::Milliseconds(1)).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream->Read(-absl::Seconds(1)).status()));
  peer_->Say("now");
  EXPECT_EQ(stream->Read(kGuard)->observation(), "now");
}

TEST_F(StreamTest, InterruptEndsAWaitingRead) {
  const auto stream = Open();
  std::thread waker([&] { stream->Interrupt(); });
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream->Read(absl::Hours(1)).status()));
  waker.join();
  peer_->Say("now");
  EXPECT_EQ(stream->Read(kGuard)->observation(), "now");
}

TEST_F(StreamTest, CancelEndsAWaitingReadAndTheServersSide) {
  const auto stream = Open();
  std::thread canceller([&] { stream->Cancel(); });
  EXPECT_TRUE(absl::IsCancelled(stream->Read(absl::Hours(1)).status()));
  canceller.join();
  EXPECT_TRUE(peer_->ended.WaitFor(kGuard));
  EXPECT_EQ(peer_->Say("late"), SendResult::kClosed);
}

TEST_F(StreamTest, DestroyingTheClientsSideEndsTheServers) {
  Open().reset();
  EXPECT_TRUE(peer_->ended.WaitFor(kGuard));
}

TEST_F(StreamTest, FinishGivesUpInTimeAndCancels) {
  peer_->finish_when_client_done = false;
  const auto stream = Open();
  stream->WritesDone();
  EXPECT_TRUE(absl::IsCancelled(stream->Finish(absl::Milliseconds(10))));
  EXPECT_TRUE(peer_->ended.WaitFor(kGuard));
}

TEST_F(StreamTest, FinishDropsWhatNobodyRead) {
  const auto stream = Open();
  for (int i = 0; i < 10; ++i) ASSERT_EQ(peer_->Say("unread"), SendResult::kQueued);
  peer_->Finish(absl::OkStatus());
  EXPECT_EQ(stream->Finish(kGuard), absl::OkStatus());
}

TEST_F(StreamTest, TooManyUnreadMessagesEndTheStream) {
  const auto stream = Open(/*max_buffered=*/2);
  for (const char* text : {"a", "b", "c", "d"}) peer_->Say(text);
  EXPECT_TRUE(peer_->ended.WaitFor(kGuard));
  EXPECT_TRUE(absl::IsResourceExhausted(stream->Write(Step("x"), kGuard)));
  EXPECT_EQ(stream->Read(kGuard)->observation(), "a");
  EXPECT_EQ(stream->Read(kGuard)->observation(), "b");
  EXPECT_TRUE(absl::IsResourceExhausted(stream->Read(kGuard).status()));
}

TEST_F(StreamTest, ThePausedServerReadsOnWhenResumed) {
  peer_->PauseReading();
  const auto stream = Open();
  ASSERT_TRUE(stream->Write(Step("second"), kGuard).ok());
  peer_->Say("hello");
  ASSERT_TRUE(stream->Read(kGuard).ok());
  EXPECT_EQ(peer_->seen(), 1u);
  peer_->ResumeReading();
  EXPECT_EQ(peer_->Message(1), "second");
  // Reading pauses after each message. A ResumeReading before the message counts for it.
  peer_->ResumeReading();
  ASSERT_TRUE(stream->Write(Step("third"), kGuard).ok());
  EXPECT_EQ(peer_->Message(2), "third");
}

TEST_F(StreamTest, TheServerSaysWhenItsQueueIsFull) {
  Listen(/*max_queue=*/2);
  const auto context = CallWithin(absl::Minutes(1));
  const auto stream = stub_->Episode(context.get());
  ASSERT_TRUE(stream->Write(Step("first")));
  EXPECT_EQ(peer_->Message(0), "first");
  // The client does not read: the transport's buffers fill up, then the queue.
  const std::string big(1 << 20, 'x');
  SendResult result = SendResult::kQueued;
  int sent = 0;
  const absl::Time deadline = absl::Now() + kGuard;
  while (result == SendResult::kQueued && absl::Now() < deadline) {
    result = peer_->Say(big);
    if (result == SendResult::kQueued) ++sent;
  }
  EXPECT_EQ(result, SendResult::kFull);
  EpisodeReply reply;
  for (int i = 0; i < sent; ++i) ASSERT_TRUE(stream->Read(&reply)) << i;
  EXPECT_EQ(peer_->Say("room again"), SendResult::kQueued);
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_EQ(reply.observation(), "room again");
}

TEST_F(StreamTest, AServerThatGoesAwayEndsTheStream) {
  const auto stream = Open();
  server_->Shutdown(absl::Now());
  const absl::Status status = stream->Read(kGuard).status();
  EXPECT_TRUE(absl::IsCancelled(status) || absl::IsUnavailable(status)) << status;
}

TEST_F(StreamTest, ADeadlineOfTheContextEndsTheStream) {
  auto stream = Stream::Start(
      CallWithin(absl::Milliseconds(50)),
      [&](auto* context, auto* reactor) { stub_->async()->Episode(context, reactor); });
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream->Read(kGuard).status()));
  EXPECT_TRUE(stream->done());
}

TEST_F(StreamTest, ManyStreamsEndWhileBothSidesTalk) {
  EchoService echo;
  auto server = Server::Start({}, {&echo}, nullptr);
  ASSERT_TRUE(server.ok());
  const auto stub = env::v1::EnvService::NewStub(*MakeChannel((*server)->address(), {}));
  for (int i = 0; i < 50; ++i) {
    auto stream = Stream::Start(CallWithin(kGuard), [&](auto* context, auto* reactor) {
      stub->async()->Episode(context, reactor);
    });
    std::thread writer([&] {
      while (stream->Write(Step("x"), kGuard).ok()) {
      }
    });
    for (int k = 0; k < i % 7; ++k) ASSERT_TRUE(stream->Read(kGuard).ok());
    stream->Cancel();
    writer.join();
  }
}

}  // namespace
}  // namespace freshet::runtime
