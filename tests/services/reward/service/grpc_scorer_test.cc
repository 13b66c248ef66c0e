#include "services/reward/service/grpc_scorer.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/reward/worker/reward_worker.h"
#include "tests/fault_proxy/fault_proxy.h"
#include "tests/services/reward/scorers/scorer_case.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_trajectory_store.h"
#include "tests/testing/loopback_server.h"

namespace freshet {
namespace {

using reward::v1::ScoreReply;
using reward::v1::ScoreRequest;
using testing::StartsWith;

// A user's reward service.
class UserService final : public reward::v1::RewardService::Service {
 public:
  std::function<grpc::Status(const ScoreRequest&, ScoreReply&)> answer;
  int calls = 0;
  std::string traceparent;  // of the last call
  grpc::Status Score(grpc::ServerContext* context, const ScoreRequest* request,
                     ScoreReply* reply) override {
    ++calls;
    const auto header = context->client_metadata().find("traceparent");
    traceparent = header == context->client_metadata().end()
                      ? ""
                      : std::string(header->second.data(), header->second.size());
    return answer(*request, *reply);
  }
};

class GrpcScorerTest : public testing::Test {
 protected:
  GrpcScorerTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    channel_ = server_->InProcessChannel({});
    Answer(trajectory::v1::SCORE_OUTCOME_OK, 0.5);
  }
  ~GrpcScorerTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  void Answer(trajectory::v1::ScoreOutcome outcome, double reward, const std::string& error = "") {
    service_.answer = [=](const ScoreRequest&, ScoreReply& reply) {
      trajectory::v1::Score& score = *reply.add_scores();
      score.set_outcome(outcome);
      score.set_reward(reward);
      score.set_error(error);
      return grpc::Status::OK;
    };
  }
  absl::StatusOr<ComponentScore> Ask() {
    return ScoreText(GrpcScorer(channel_, RemoteReward{"user:1", "", absl::Seconds(10)}), "four",
                     {{"prompt", "2+2="}, {"answer", "4"}});
  }

  UserService service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcScorerTest, SendsTheSampleAndTakesTheReward) {
  ScoreRequest seen;
  service_.answer = [&seen](const ScoreRequest& request, ScoreReply& reply) {
    seen = request;
    reply.add_scores()->set_reward(0.75);
    reply.mutable_scores(0)->set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    return grpc::Status::OK;
  };
  const Attributes attributes = {{"prompt", "2+2="}, {"answer", "4"}};
  ScoreInput input{"four", 5, true, attributes, absl::Seconds(10)};
  input.env_reward = 0.5;
  const auto score =
      GrpcScorer(channel_, RemoteReward{"user:1", "style", absl::Seconds(10)}).Score(input);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 0.75);
  EXPECT_EQ(score->outcome, ScoreOutcome::kOk);
  EXPECT_EQ(seen.function(), "style");
  ASSERT_EQ(seen.items_size(), 1);
  EXPECT_EQ(seen.items(0).prompt(), "2+2=");
  EXPECT_EQ(seen.items(0).completion(), "four");
  EXPECT_EQ(seen.items(0).completion_tokens(), 5);
  EXPECT_EQ(seen.items(0).attributes().at("answer"), "4");
  EXPECT_EQ(seen.items(0).attributes().at("env_reward"), "0.5");
  EXPECT_EQ(seen.items(0).env_reward(), 0.5);
  EXPECT_TRUE(seen.items(0).stopped());
  EXPECT_FALSE(seen.has_reward());
  const std::vector<std::string> group = {"three", "four\xFF"};
  input.group = group;
  input.index = 1;
  for (const bool sees_group : {false, true}) {
    const RemoteReward reward{"user:1", "style", absl::Seconds(10), sees_group};
    ASSERT_TRUE(GrpcScorer(channel_, reward).Score(input).ok());
    EXPECT_EQ(seen.items(0).group_size(), sees_group ? 2 : 0);
    EXPECT_EQ(seen.items(0).index(), sees_group ? 1 : 0);
  }
  EXPECT_EQ(seen.items(0).group(1), "four?");
}

TEST_F(GrpcScorerTest, SendsTheTraceOfTheSample) {
  ASSERT_TRUE(Ask().ok());
  EXPECT_EQ(service_.traceparent, "");  // unknown sample: no trace
  const Attributes none;
  ScoreInput input{"four", 5, true, none, absl::Seconds(10)};
  input.uid = "j/1/0/2";
  const GrpcScorer scorer(channel_, RemoteReward{"user:1", "", absl::Seconds(10)});
  ASSERT_TRUE(scorer.Score(input).ok());
  std::optional<TraceContext> trace = ParseTraceparent(service_.traceparent);
  ASSERT_TRUE(trace.has_value()) << service_.traceparent;
  EXPECT_EQ(trace->trace_id, TraceIdOf("j/1/0/2"));
  EXPECT_FALSE(trace->sampled);
  input.trace_ratio = 1;
  ASSERT_TRUE(scorer.Score(input).ok());
  trace = ParseTraceparent(service_.traceparent);
  EXPECT_TRUE(trace.has_value() && trace->sampled) << service_.traceparent;
}

TEST_F(GrpcScorerTest, AServiceThatIsBeingRestartedIsWaitedFor) {
  int calls = 0;
  service_.answer = [&calls](const ScoreRequest&, ScoreReply& reply) {
    if (++calls < 3) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
    reply.add_scores()->set_reward(1);
    reply.mutable_scores(0)->set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    return grpc::Status::OK;
  };
  const auto score = Ask();
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 1);
  EXPECT_EQ(calls, 3);
}

TEST_F(GrpcScorerTest, ACallThatNobodyWantsAnyMoreIsGivenUp) {
  // The handler may outlive the test's body.
  const auto called = std::make_shared<Notification>();
  const auto over = std::make_shared<Notification>();
  service_.answer = [called, over](const ScoreRequest&, ScoreReply&) {
    called->Notify();
    over->WaitFor(absl::Seconds(20));
    return grpc::Status::OK;
  };
  std::stop_source cancel;
  std::jthread canceller([&] {
    called->WaitFor(absl::Seconds(20));
    cancel.request_stop();
  });
  const Attributes attributes;
  ScoreInput input{"four", 5, true, attributes, absl::Minutes(10)};
  input.cancel = cancel.get_token();
  const auto score =
      GrpcScorer(channel_, RemoteReward{"user:1", "", absl::Minutes(10)}).Score(input);
  EXPECT_EQ(score.status().code(), absl::StatusCode::kCancelled);
  over->Notify();
}

TEST_F(GrpcScorerTest, AServiceThatIsAwayIsNotWaitedForOnceTheCallIsGivenUp) {
  std::stop_source cancel;
  service_.answer = [cancel](const ScoreRequest&, ScoreReply&) {
    cancel.request_stop();
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
  };
  const Attributes attributes;
  ScoreInput input{"four", 5, true, attributes, absl::Minutes(10)};
  input.cancel = cancel.get_token();
  const auto score =
      GrpcScorer(channel_, RemoteReward{"user:1", "", absl::Minutes(10)}).Score(input);
  EXPECT_EQ(score.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(service_.calls, 1);
}

TEST_F(GrpcScorerTest, ACallThatTheServiceCancelsIsNotOurs) {
  service_.answer = [](const ScoreRequest&, ScoreReply&) {
    return grpc::Status(grpc::StatusCode::CANCELLED, "not now");
  };
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcScorerTest, ComponentsOfTheAnswerAreParts) {
  service_.answer = [](const ScoreRequest&, ScoreReply& reply) {
    trajectory::v1::Score& score = *reply.add_scores();
    score.set_reward(0.75);
    score.set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    (*score.mutable_components())["digits"] = 1;
    (*score.mutable_components())["length"] = -0.25;
    return grpc::Status::OK;
  };
  const auto score = Ask();
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 0.75);
  EXPECT_EQ(score->parts, (std::map<std::string, double>{{"digits", 1}, {"length", -0.25}}));
}

TEST_F(GrpcScorerTest, PartsAreBounded) {
  std::map<std::string, double> parts;
  service_.answer = [&parts](const ScoreRequest&, ScoreReply& reply) {
    trajectory::v1::Score& score = *reply.add_scores();
    score.set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    score.mutable_components()->insert(parts.begin(), parts.end());
    return grpc::Status::OK;
  };
  for (int i = 0; i < 64; ++i) parts[std::to_string(i)] = i;
  EXPECT_TRUE(Ask().ok());
  parts["one more"] = 0;
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  parts = {{std::string(65, 'x'), 0}};
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  parts = {{"", 0}};
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  parts = {{"a", std::nan("")}};
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
}

TEST_F(GrpcScorerTest, AWrongFormatIsAValue) {
  Answer(trajectory::v1::SCORE_OUTCOME_WRONG_FORMAT, 0);
  const auto score = Ask();
  ASSERT_TRUE(score.ok());
  EXPECT_EQ(score->outcome, ScoreOutcome::kWrongFormat);
}

TEST_F(GrpcScorerTest, WhatTheServiceCouldNotScoreIsNoReward) {
  Answer(trajectory::v1::SCORE_OUTCOME_TIMEOUT, 1, "the judge is slow");
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kDeadlineExceeded);
  Answer(trajectory::v1::SCORE_OUTCOME_INFRA_ERROR, 1, "no GPU");
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal) << "it is there: a failure";
  EXPECT_EQ(Ask().status().message(), "reward service user:1: it failed: no GPU");
}

TEST_F(GrpcScorerTest, AReplyThatBreaksTheContractIsNoReward) {
  Answer(trajectory::v1::SCORE_OUTCOME_UNSPECIFIED, 1);
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal);
  for (const double reward : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Answer(trajectory::v1::SCORE_OUTCOME_OK, reward);
    EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal) << reward;
  }
  for (const int scores : {0, 2}) {
    service_.answer = [scores](const ScoreRequest&, ScoreReply& reply) {
      for (int i = 0; i < scores; ++i) {
        reply.add_scores()->set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
      }
      return grpc::Status::OK;
    };
    EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal) << scores;
  }
  Answer(trajectory::v1::SCORE_OUTCOME_OK, 1, "\xff");
  EXPECT_FALSE(Ask().ok()) << "not UTF-8";
  Answer(trajectory::v1::SCORE_OUTCOME_OK, 1, std::string(5 << 20, 'x'));
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kResourceExhausted) << "5 MiB";
}

TEST_F(GrpcScorerTest, TheCallsStatusIsTheScorers) {
  service_.answer = [](const ScoreRequest&, ScoreReply&) {
    return grpc::Status(grpc::StatusCode::UNKNOWN, "ZeroDivisionError");
  };
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(Ask().status().message(), "reward service user:1: ZeroDivisionError");
  service_.answer = [](const ScoreRequest&, ScoreReply&) {
    return grpc::Status(grpc::StatusCode::ABORTED, "a transaction");
  };
  EXPECT_EQ(Ask().status().code(), absl::StatusCode::kInternal) << "it has not gone away";
}

TEST_F(GrpcScorerTest, DoesNotWaitLongerThanItMay) {
  const auto release = std::make_shared<Notification>();  // the handler may end after the test
  service_.answer = [release](const ScoreRequest&, ScoreReply&) {
    release->WaitFor(absl::Seconds(10));
    return grpc::Status::OK;
  };
  const GrpcScorer scorer(channel_, RemoteReward{"user:1", "", absl::Seconds(10)});
  const Attributes none;
  const ScoreInput input{"x", 1, true, none, absl::Milliseconds(30)};
  EXPECT_EQ(scorer.Score(input).status().code(), absl::StatusCode::kDeadlineExceeded);
  release->Notify();
}

// Channel arguments with a short reconnect backoff.
grpc::ChannelArguments SoonAgain() {
  grpc::ChannelArguments args;
  for (const char* backoff :
       {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
        GRPC_ARG_MAX_RECONNECT_BACKOFF_MS}) {
    args.SetInt(backoff, 100);
  }
  return args;
}

// The service behind a socket that can be closed.
class AwayServiceTest : public GrpcScorerTest {
 protected:
  AwayServiceTest() : path_(StrCat(testing::TempDir(), "away-", getpid(), ".sock")) {
    unlink(path_.c_str());
    socket_ =
        grpc::CreateCustomChannel("unix:" + path_, grpc::InsecureChannelCredentials(), SoonAgain());
  }
  ~AwayServiceTest() override { unlink(path_.c_str()); }
  void Start() { remote_.emplace(&service_, "unix:" + path_); }
  absl::StatusOr<ComponentScore> AskWithin(absl::Duration timeout) {
    return ScoreText(GrpcScorer(socket_, RemoteReward{"user:1", "", timeout}), "four");
  }

  const std::string path_;
  std::shared_ptr<grpc::Channel> socket_;
  std::optional<LoopbackServer> remote_;
};

TEST_F(AwayServiceTest, RowsWaitUntilItIsBack) {
  StoreOptions options;
  options.job = "j";
  options.max_row_failures = 1;
  FakeTrajectoryStore store(options);
  for (int i = 0; i < 4; ++i) {
    Response response;
    response.response_ids = {i};
    store.AddRow({i, 0, 0}, {}, response);
  }
  CompositeScorer scorer;
  scorer.Add(
      "judge", 1.0,
      std::make_unique<GrpcScorer>(socket_, RemoteReward{"user:1", "", absl::Milliseconds(200)}));
  FakeClock clock;
  RewardWorker worker(
      store, scorer, [](const std::vector<int32_t>&) { return "four"; }, RewardWorkerOptions(),
      clock);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(worker.RunOnce(), 0);
    clock.Advance(absl::Seconds(50));
  }
  EXPECT_EQ(worker.counters().returned, 8);
  EXPECT_NE(worker.WaitsFor().find("since 1m40s: component judge: reward service user:1: "),
            std::string::npos)
      << worker.WaitsFor();
  Start();
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (store.scored_rows() < 4 && absl::Now() < deadline) worker.RunOnce();
  EXPECT_EQ(store.scored_rows(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(store.failures(i).empty());
}

TEST_F(AwayServiceTest, AHostThatDoesNotAnswerIsAwayAndASlowServiceIsNot) {
  // The kernel accepts connections, but nothing reads from them.
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path_.size(), sizeof(address.sun_path));
  path_.copy(address.sun_path, path_.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  EXPECT_EQ(AskWithin(absl::Milliseconds(50)).status().code(), absl::StatusCode::kUnavailable);
  close(listener);
  unlink(path_.c_str());

  Start();
  EXPECT_TRUE(AskWithin(absl::Seconds(20)).ok());
  // The service handles the call only after the scorer has given it up.
  const auto release = std::make_shared<Notification>();
  service_.answer = [release](const ScoreRequest&, ScoreReply&) {
    release->WaitFor(absl::Seconds(20));
    return grpc::Status::OK;
  };
  EXPECT_EQ(AskWithin(absl::Milliseconds(50)).status().code(), absl::StatusCode::kDeadlineExceeded);
  release->Notify();
}

TEST_F(AwayServiceTest, OneThatAnswersUnavailableHasNotGoneAway) {
  Start();
  service_.answer = [this](const ScoreRequest&, ScoreReply& reply) {
    if (service_.calls < 5) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the judge is loading");
    }
    reply.add_scores()->set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    return grpc::Status::OK;
  };
  const auto score = AskWithin(absl::Seconds(20));
  EXPECT_TRUE(score.ok()) << score.status();
}

// The service behind a proxy. Cutting the connections simulates the death of the service.
class DyingServiceTest : public GrpcScorerTest {
 protected:
  DyingServiceTest() {
    proxy_ = *FaultProxy::Start(remote_.port());
    dying_ = grpc::CreateCustomChannel(StrCat("127.0.0.1:", proxy_->port()),
                                       grpc::InsecureChannelCredentials(), SoonAgain());
    store_options_.job = "j";
    store_options_.max_row_failures = 1;
  }
  // Scores four rows "0" to "3". Each row kills the service as many times as `deaths` says.
  void ScoreRows(FakeTrajectoryStore& store, std::map<std::string, int> deaths) {
    service_.answer = [this, deaths](const ScoreRequest& request, ScoreReply& reply) mutable {
      if (deaths[request.items(0).completion()]-- > 0) proxy_->SetDown(true);
      reply.add_scores()->set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
      return grpc::Status::OK;
    };
    for (int i = 0; i < 4; ++i) {
      Response response;
      response.response_ids = {i};
      store.AddRow({i, 0, 0}, {}, response);
    }
    CompositeScorer scorer;
    scorer.Add("judge", 1.0,
               std::make_unique<GrpcScorer>(dying_, RemoteReward{"user:1", "", absl::Seconds(1)}));
    RewardWorkerOptions options;
    options.batch_rows = 1;  // like Run while the service is unavailable
    RewardWorker worker(
        store, scorer, [](const std::vector<int32_t>& ids) { return StrCat(ids[0]); }, options);
    const auto over = [&store](size_t i) {
      return store.score(i) != nullptr || !store.failures(i).empty();
    };
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!(over(0) && over(1) && over(2) && over(3)) && absl::Now() < deadline) {
      worker.RunOnce();
      proxy_->SetDown(false);
    }
  }

  std::unique_ptr<FaultProxy> proxy_;  // before remote_, whose calls use it
  LoopbackServer remote_{&service_};
  std::shared_ptr<grpc::Channel> dying_;
  StoreOptions store_options_;
};

TEST_F(DyingServiceTest, ARowThatKillsItIsGivenUpAndTheOthersAreScored) {
  FakeTrajectoryStore store(store_options_);
  ScoreRows(store, {{"0", 1000}});
  EXPECT_EQ(store.scored_rows(), 3U);
  ASSERT_EQ(store.failures(0).size(), 1U);
  EXPECT_NE(store.failures(0)[0].find("user:1: the connection broke while it had the sample"),
            std::string::npos)
      << store.failures(0)[0];
}

TEST_F(DyingServiceTest, ARestartInTheMiddleOfARowCostsNothing) {
  FakeTrajectoryStore store(store_options_);
  ScoreRows(store, {{"0", 1}, {"3", 1}});
  EXPECT_EQ(store.scored_rows(), 4U);
}

TEST_F(DyingServiceTest, ACallIsMadeASecondTimeAfterAConnectionThatBroke) {
  int deaths = 1;
  service_.answer = [&](const ScoreRequest&, ScoreReply& reply) {
    if (deaths-- > 0) proxy_->ResetPeers();
    reply.add_scores()->set_outcome(trajectory::v1::SCORE_OUTCOME_OK);
    return grpc::Status::OK;
  };
  const GrpcScorer scorer(dying_, RemoteReward{"user:1", "", absl::Seconds(20)});
  const auto score = ScoreText(scorer, "four");
  EXPECT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(service_.calls, 2);
  deaths = 2;
  EXPECT_EQ(ScoreText(scorer, "four").status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(service_.calls, 4) << "and no third time";
}

TEST_F(GrpcScorerTest, TheFactoryCachesAndPassesChannelErrorsOn) {
  const auto cache = std::make_shared<ScoreCache>(10);
  const RemoteScorerFactory factory = GrpcScorers(
      [this](const std::string& address) -> absl::StatusOr<std::shared_ptr<grpc::Channel>> {
        if (address != "user:1") return absl::InvalidArgumentError("address 'x'");
        return channel_;
      },
      /*python_rewards=*/"", cache);
  const auto scorer = factory({"user:1", "", absl::Seconds(10)});
  ASSERT_TRUE(scorer.ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ScoreText(**scorer, "a")->value, 0.5);
  EXPECT_EQ(service_.calls, 1);
  EXPECT_EQ(cache->hits(), 2);
  EXPECT_FALSE(factory({"x", "", absl::Seconds(1)}).ok());
}

TEST_F(GrpcScorerTest, TheFactoryAsksTheOperatorsPythonRewards) {
  const auto no_channel = [](const std::string&) -> absl::StatusOr<std::shared_ptr<grpc::Channel>> {
    return absl::InternalError("not this way");
  };
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  UserService offered;
  std::string function;
  offered.answer = [&](const ScoreRequest& request, ScoreReply& reply) {
    function = request.function();
    return service_.answer(request, reply);
  };
  builder.RegisterService(&offered);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto scorer =
      GrpcScorers(no_channel, StrCat("127.0.0.1:", port), nullptr)({"", "math", absl::Seconds(10)});
  ASSERT_TRUE(scorer.ok());
  EXPECT_EQ(ScoreText(**scorer, "a")->value, 0.5);
  EXPECT_EQ(function, "math");
  server->Shutdown(std::chrono::system_clock::now());
  EXPECT_THAT(
      std::string(
          GrpcScorers(no_channel, "", nullptr)({"", "math", absl::Seconds(10)}).status().message()),
      StartsWith("type: no Python rewards are offered here"));
}

}  // namespace
}  // namespace freshet
