#include "rollout/environment/grpc/grpc_environment_client.h"

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "env_workers/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/log_lines.h"

namespace freshet {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// A service that sends no answers, or more than requested.
class OddService final : public env::v1::EnvService::Service {
 public:
  int replies_per_request = 0;
  bool stays = false;   // answers once, then waits for cancellation
  bool leaves = false;  // ends the stream after a request
  env::v1::EpisodeReply reply;
  grpc::Status Episode(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<env::v1::EpisodeReply, env::v1::EpisodeRequest>* stream) override {
    env::v1::EpisodeRequest request;
    if (stays) {
      stream->Read(&request);
      stream->Write(reply);
      while (!context->IsCancelled()) std::this_thread::yield();
    }
    if (leaves && stream->Read(&request)) return grpc::Status::OK;
    while (stream->Read(&request)) {
      for (int i = 0; i < replies_per_request; ++i) stream->Write(reply);
    }
    return grpc::Status::OK;
  }
};

// Workers by address. A stopped worker's server is shut down.
class GrpcEnvironmentClientTest : public testing::Test {
 protected:
  struct Worker {
    std::unique_ptr<EnvService> service;
    std::unique_ptr<OddService> odd;
    std::unique_ptr<grpc::Server> server;
    std::shared_ptr<grpc::Channel> channel;
  };

  ~GrpcEnvironmentClientTest() override {
    client_.reset();
    for (auto& [address, worker] : workers_) Stop(address);
  }

  void AddWorker(const std::string& address, int64_t max_episodes = 100, int64_t max_waiting = 0) {
    Worker& worker = workers_[address];
    EnvServiceOptions options;
    options.max_episodes = max_episodes;
    options.max_waiting = max_waiting;
    options.idle_timeout = absl::InfiniteDuration();  // tests move the clock for the client's sake
    worker.service = std::make_unique<EnvService>(BuiltinEnvironments(), clock_, nullptr, options);
    Serve(worker, *worker.service);
  }
  OddService& AddOddWorker(const std::string& address) {
    Worker& worker = workers_[address];
    worker.odd = std::make_unique<OddService>();
    Serve(worker, *worker.odd);
    return *worker.odd;
  }
  void Serve(Worker& worker, grpc::Service& service) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    worker.server = builder.BuildAndStart();
    worker.channel = worker.server->InProcessChannel({});
  }
  void Stop(const std::string& address) {
    Worker& worker = workers_.at(address);
    if (worker.server != nullptr) worker.server->Shutdown(std::chrono::system_clock::now());
    worker.server.reset();
  }
  GrpcEnvironmentClient& client() {
    if (client_ == nullptr) {
      client_ = std::make_unique<GrpcEnvironmentClient>(
          [this](const std::string& address) -> absl::StatusOr<std::shared_ptr<grpc::Channel>> {
            const auto found = workers_.find(address);
            if (found == workers_.end()) return absl::NotFoundError("no certificate");
            return found->second.channel;
          },
          clock_, options_);
    }
    return *client_;
  }
  void Use(std::vector<std::string> addresses) { client().SetAddresses(std::move(addresses)); }

  static EpisodeStart Guess(const std::string& guesses = "9") {
    return {"guess_number", 1, {{"guesses", guesses}}};
  }
  // Waits for the next event; fails after 10 s.
  EpisodeEvent Next() {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (early_.empty() && absl::Now() < deadline) {
      early_ = client().Poll();
      if (early_.empty()) client().Await(absl::Milliseconds(100));
    }
    if (early_.empty()) return {-1, absl::InternalError("no event within 10 s")};
    EpisodeEvent event = std::move(early_.front());
    early_.erase(early_.begin());
    return event;
  }
  int64_t OpenAt(const std::string& address) {
    return workers_.at(address).service->open_episodes();
  }

  FakeClock clock_;
  GrpcEnvironmentClientOptions options_;
  std::map<std::string, Worker> workers_;
  std::unique_ptr<GrpcEnvironmentClient> client_;
  std::vector<EpisodeEvent> early_;
};

TEST_F(GrpcEnvironmentClientTest, PlaysAnEpisode) {
  AddWorker("a:1");
  Use({"a:1"});
  client().Reset(1, Guess("2"));
  EpisodeEvent event = Next();
  ASSERT_TRUE(event.answer.ok()) << event.answer.status();
  EXPECT_EQ(event.episode, 1);
  client().Step(1, "x");
  event = Next();
  ASSERT_TRUE(event.answer.ok()) << event.answer.status();
  EXPECT_EQ(event.answer->observation, "!");
  client().Step(1, "x");
  event = Next();
  ASSERT_TRUE(event.answer.ok()) << event.answer.status();
  EXPECT_TRUE(event.answer->truncated);
  EXPECT_FALSE(event.answer->terminated);
  client().Close(1);
  EXPECT_EQ(client().open_episodes(), 0);
  EXPECT_TRUE(workers_["a:1"].service->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
}

TEST_F(GrpcEnvironmentClientTest, TheWorkerLogsTheEpisodesOfSamplesWhoseLivesAreLogged) {
  const LogLines log;
  AddWorker("a:1");
  Use({"a:1"});
  for (const double ratio : {0.0, 1.0}) {
    EpisodeStart start = Guess("1");
    start.traceparent = Traceparent(MakeTraceContext("j/1/0/2", "rollout", ratio));
    const auto id = static_cast<int64_t>(ratio) + 1;
    client().Reset(id, start);
    ASSERT_TRUE(Next().answer.ok());
    client().Step(id, "x");
    ASSERT_TRUE(Next().answer.ok());
    client().Close(id);
  }
  const std::string trace = "trace=" + TraceIdOf("j/1/0/2");
  EXPECT_THAT(
      log.With(trace),
      testing::ElementsAre("event=episode_begins " + trace + " environment=guess_number seed=1",
                           "event=episode_ended " + trace + " outcome=truncated turns=1"));
}

TEST_F(GrpcEnvironmentClientTest, ManyEpisodesRunAtTheSameTime) {
  AddWorker("a:1");
  AddWorker("b:1");
  Use({"a:1", "b:1"});
  for (int64_t id = 1; id <= 40; ++id) client().Reset(id, Guess());
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(Next().answer.ok());
  // Each episode goes to the least loaded worker.
  EXPECT_EQ(OpenAt("a:1"), 20);
  EXPECT_EQ(OpenAt("b:1"), 20);
  for (int64_t id = 1; id <= 40; ++id) client().Step(id, "x");
  std::vector<int> answers(41);
  for (int i = 0; i < 40; ++i) ++answers[static_cast<size_t>(Next().episode)];
  for (size_t id = 1; id <= 40; ++id) EXPECT_EQ(answers[id], 1) << id;
}

TEST_F(GrpcEnvironmentClientTest, WithoutAWorkerItSaysSo) {
  client().Reset(1, Guess());
  EXPECT_EQ(Next().answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client().open_episodes(), 0);
  Use({"nowhere:1"});
  client().Reset(2, Guess());
  EXPECT_EQ(Next().answer.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(GrpcEnvironmentClientTest, WhatTheWorkerRefusesComesBackAsItsStatus) {
  AddWorker("a:1");
  Use({"a:1"});
  client().Reset(1, {"chess", 1, {}});
  const EpisodeEvent event = Next();
  EXPECT_EQ(event.answer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(event.answer.status().message().find("chess"), absl::string_view::npos);
  client().Close(1);
  client().Reset(2, Guess());  // the worker still accepts episodes
  EXPECT_TRUE(Next().answer.ok());
}

TEST_F(GrpcEnvironmentClientTest, AFullWorkerIsPassedOver) {
  AddWorker("a:1", /*max_episodes=*/1);
  AddWorker("b:1", /*max_episodes=*/3);
  Use({"a:1", "b:1"});
  for (int64_t id = 1; id <= 2; ++id) {
    client().Reset(id, Guess());
    EXPECT_TRUE(Next().answer.ok());
  }
  client().Reset(3, Guess());
  EXPECT_EQ(Next().answer.status().code(), absl::StatusCode::kResourceExhausted);
  client().Reset(4, Guess());
  EXPECT_TRUE(Next().answer.ok());
  EXPECT_EQ(OpenAt("b:1"), 2);
}

TEST_F(GrpcEnvironmentClientTest, EpisodesBeyondTheWorkersPlacesWaitForOne) {
  AddWorker("a:1", /*max_episodes=*/3, /*max_waiting=*/100);
  Use({"a:1"});
  for (int64_t id = 1; id <= 60; ++id) client().Reset(id, Guess("1"));
  // Each admitted episode plays to its end. None is refused or aborted.
  std::map<int64_t, int> answers;
  for (int i = 0; i < 120; ++i) {
    const EpisodeEvent event = Next();
    ASSERT_TRUE(event.answer.ok()) << event.answer.status();
    if (++answers[event.episode] == 1) {
      client().Step(event.episode, "x");
    } else {
      EXPECT_TRUE(event.answer->truncated);
      client().Close(event.episode);
    }
    EXPECT_LE(OpenAt("a:1"), 3);
  }
  EXPECT_THAT(answers, SizeIs(60));
  EXPECT_TRUE(workers_["a:1"].service->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
}

TEST_F(GrpcEnvironmentClientTest, ObservationsMayBeMessages) {
  OddService& service = AddOddWorker("a:1");
  service.replies_per_request = 1;
  env::v1::Message* message = service.reply.add_messages();
  message->set_role("tool");
  message->set_content("4");
  message->set_name("add");
  message->set_tool_call_id("1");
  service.reply.add_tools("{}");
  service.reply.set_invalid(true);
  service.reply.set_cost(0.25);
  Use({"a:1"});
  client().Reset(1, Guess());
  const EpisodeEvent event = Next();
  ASSERT_TRUE(event.answer.ok()) << event.answer.status();
  ASSERT_THAT(event.answer->messages, SizeIs(1));
  EXPECT_EQ(event.answer->messages[0].role, "tool");
  EXPECT_EQ(event.answer->messages[0].content, "4");
  EXPECT_EQ(event.answer->messages[0].name, "add");
  EXPECT_EQ(event.answer->messages[0].tool_call_id, "1");
  EXPECT_EQ(event.answer->tools, std::vector<std::string>{"{}"});
  EXPECT_TRUE(event.answer->invalid);
  EXPECT_EQ(event.answer->cost, 0.25);
}

TEST_F(GrpcEnvironmentClientTest, AnEpisodeOfADeadWorkerBeginsAgainElsewhere) {
  AddWorker("a:1");
  AddWorker("b:1");
  Use({"a:1"});
  client().Reset(1, Guess());
  ASSERT_TRUE(Next().answer.ok());
  Use({"a:1", "b:1"});
  Stop("a:1");
  client().Step(1, "x");
  const EpisodeEvent lost = Next();
  EXPECT_EQ(lost.episode, 1);
  EXPECT_EQ(lost.answer.status().code(), absl::StatusCode::kUnavailable) << lost.answer.status();
  client().Reset(2, Guess());
  EXPECT_TRUE(Next().answer.ok());
  EXPECT_EQ(OpenAt("b:1"), 1);
}

TEST_F(GrpcEnvironmentClientTest, WhenItIsDestroyedNoStreamHoldsAChannel) {
  AddOddWorker("a:1");  // neither answers nor ends an episode
  Use({"a:1"});
  for (int64_t id = 1; id <= 20; ++id) client().Reset(id, Guess());
  client().Close(1);
  EXPECT_GT(workers_["a:1"].channel.use_count(), 20);
  client_.reset();
  EXPECT_EQ(workers_["a:1"].channel.use_count(), 1);
}

TEST_F(GrpcEnvironmentClientTest, WhenItIsDestroyedNoWorkerIsWaitedFor) {
  AddOddWorker("a:1").stays = true;
  Use({"a:1"});
  client().Reset(1, Guess());
  EXPECT_TRUE(Next().answer.ok());
  client().Close(1);
  client_.reset();
  EXPECT_EQ(workers_["a:1"].channel.use_count(), 1);
}

TEST_F(GrpcEnvironmentClientTest, ASilentWorkerTimesOut) {
  AddOddWorker("a:1");
  AddWorker("b:1");
  Use({"a:1"});
  client().Reset(1, Guess());
  EXPECT_THAT(client().Poll(), SizeIs(0));
  clock_.Advance(options_.step_timeout - absl::Milliseconds(1));
  EXPECT_THAT(client().Poll(), SizeIs(0));
  clock_.Advance(absl::Milliseconds(1));
  const EpisodeEvent event = Next();
  EXPECT_EQ(event.answer.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(event.answer.status().message().find("a:1"), absl::string_view::npos);
  Use({"a:1", "b:1"});
  client().Reset(2, Guess());
  EXPECT_TRUE(Next().answer.ok());
}

TEST_F(GrpcEnvironmentClientTest, AnAnsweredStepHasNoTimeOut) {
  AddWorker("a:1");
  Use({"a:1"});
  client().Reset(1, Guess());
  ASSERT_TRUE(Next().answer.ok());
  clock_.Advance(absl::Hours(1));  // a long turn
  EXPECT_THAT(client().Poll(), SizeIs(0));
  client().Step(1, "x");
  EXPECT_TRUE(Next().answer.ok());
}

TEST_F(GrpcEnvironmentClientTest, AnswersThatNobodyAskedForEndTheEpisode) {
  AddOddWorker("a:1").replies_per_request = 3;
  Use({"a:1"});
  client().Reset(1, Guess());
  ASSERT_TRUE(Next().answer.ok());
  // The surplus answers break the stream. The next step fails, or reads a surplus answer first.
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    client().Step(1, "x");
    status = Next().answer.status();
  }
  EXPECT_FALSE(status.ok());
}

TEST_F(GrpcEnvironmentClientTest, WhateverAWorkerSendsIsAnAnswerOrANamedFailure) {
  OddService& flood = AddOddWorker("flood:1");
  flood.replies_per_request = 1;
  flood.reply.set_observation(std::string(5 << 20, 'x'));
  OddService& broken = AddOddWorker("broken:1");
  broken.replies_per_request = 1;
  broken.reply.set_observation("\xff");
  AddOddWorker("leaves:1").leaves = true;
  const struct {
    std::string address;
    absl::StatusCode code;
    std::string why;
  } cases[] = {
      // A flood does not mean that the worker is full.
      {"flood:1", absl::StatusCode::kInternal, "larger than max"},
      {"broken:1", absl::StatusCode::kInternal, "cannot be read"},
      {"leaves:1", absl::StatusCode::kUnavailable, "ended the episode"},
  };
  int64_t episode = 0;
  for (const auto& [address, code, why] : cases) {
    Use({address});
    client().Reset(++episode, Guess());
    const EpisodeEvent event = Next();
    EXPECT_EQ(event.episode, episode);
    EXPECT_EQ(event.answer.status().code(), code) << address << ": " << event.answer.status();
    EXPECT_THAT(std::string(event.answer.status().message()), HasSubstr(why)) << address;
  }
}

TEST_F(GrpcEnvironmentClientTest, AClosedEpisodeIsSilent) {
  AddWorker("a:1");
  Use({"a:1"});
  client().Reset(1, Guess());
  client().Close(1);
  client().Close(1);
  client().Step(1, "x");
  EXPECT_TRUE(workers_["a:1"].service->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
  EXPECT_THAT(client().Poll(), SizeIs(0));
}

TEST_F(GrpcEnvironmentClientTest, MayEndWithEpisodesOpen) {
  AddWorker("a:1");
  Use({"a:1"});
  for (int64_t id = 1; id <= 10; ++id) client().Reset(id, Guess());
  client_.reset();
  EXPECT_TRUE(workers_["a:1"].service->AwaitNoEpisodes(absl::Now() + absl::Seconds(10)));
}

TEST_F(GrpcEnvironmentClientTest, AWorkerThatIsListedNoMoreKeepsItsEpisodes) {
  AddWorker("a:1");
  AddWorker("b:1");
  Use({"a:1"});
  client().Reset(1, Guess());
  ASSERT_TRUE(Next().answer.ok());
  Use({"b:1"});
  client().Reset(2, Guess());
  ASSERT_TRUE(Next().answer.ok());
  client().Step(1, "x");
  EXPECT_TRUE(Next().answer.ok());
  EXPECT_EQ(OpenAt("b:1"), 1);
}

}  // namespace
}  // namespace freshet
