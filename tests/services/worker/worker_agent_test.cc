#include "services/worker/worker_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "services/runtime/error_details.h"
#include "tests/fault_proxy/fault_proxy.h"
#include "tests/services/worker/scripted_controller.h"
#include "tests/testing/fake_clock.h"

namespace freshet::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
constexpr absl::Duration kGuard = absl::Seconds(20);

// The worker behind an agent: records directives and epochs as text.
class Worker final : public StatusSource, public DirectiveSink {
 public:
  void FillStatus(cluster::v1::WorkerStatus& status) override { status.set_draining(draining); }
  std::vector<std::string> AssignmentIds() override { return assignments; }
  void OnEpoch(const std::string& worker) override { events.Add("epoch " + worker); }
  void OnDirective(const cluster::v1::Directive& directive) override {
    if (hold) {
      held.Notify();
      release.WaitFor(kGuard);
    }
    events.Add(directive.unassign().reason());
  }
  void OnFenced(const std::string& reason) override { events.Add("fenced " + reason); }

  std::vector<std::string> assignments;  // set before the agent starts
  std::atomic<bool> draining{false};
  std::atomic<bool> hold{false};
  Notification held;
  Notification release;
  Seen<std::string> events;
};

cluster::v1::Directive Say(const std::string& text) {
  cluster::v1::Directive directive;
  directive.mutable_unassign()->set_reason(text);
  return directive;
}

WorkerAgentOptions OptionsFor(std::vector<std::string> controllers) {
  WorkerAgentOptions options;
  options.controllers = std::move(controllers);
  options.identity.set_role(cluster::v1::ROLE_ROLLOUT);
  options.identity.set_worker("w");
  options.identity.set_incarnation("i-1");
  options.backoff.initial = absl::Milliseconds(1);
  options.backoff.max = absl::Milliseconds(20);
  options.data_timeout = kGuard;
  return options;
}

class WorkerAgentTest : public ::testing::Test {
 protected:
  void Start(const WorkerAgentOptions& options, LogRing* log = nullptr,
             const Clock& clock = SystemClock::Get()) {
    auto agent = WorkerAgent::Create(options, worker_, worker_, log, clock);
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    agent_->Begin();
  }
  void Start() { Start(OptionsFor({controller_.address()})); }
  // For tests whose handlers capture local variables.
  void End() {
    agent_.reset();
    controller_.End();
  }

  ScriptedController controller_;
  Worker worker_;
  std::unique_ptr<WorkerAgent> agent_;
};

TEST_F(WorkerAgentTest, RegistersAndSendsItsStatus) {
  Start();
  const auto registration = controller_.registrations.At(0);
  EXPECT_EQ(registration.worker(), "w");
  EXPECT_EQ(registration.role(), cluster::v1::ROLE_ROLLOUT);
  EXPECT_EQ(registration.incarnation(), "i-1");
  EXPECT_EQ(registration.assignment_ids_size(), 0);
  EXPECT_EQ(worker_.events.At(0), "epoch w#1");
  for (int i = 0; i < 3; ++i) {
    const auto status = controller_.statuses.At(static_cast<size_t>(i));
    EXPECT_EQ(status.worker(), "w");
    EXPECT_EQ(status.epoch(), 1);
    EXPECT_EQ(status.sequence(), i + 1);
  }
  EXPECT_EQ(agent_->worker(), "w#1");
  EXPECT_EQ(agent_->controller(), controller_.address());
  EXPECT_TRUE(agent_->connected());
}

TEST_F(WorkerAgentTest, HandsOutDirectivesInOrder) {
  Start();
  const auto stream = controller_.streams.At(0);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(stream->Send(Say(StrCat(i))), SendResult::kQueued);
  EXPECT_EQ(worker_.events.At(0), "epoch w#1");
  for (size_t i = 0; i < 500; ++i) ASSERT_EQ(worker_.events.At(i + 1), StrCat(i));
}

TEST_F(WorkerAgentTest, KeepsBeatingWhileTheWorkerIsBusyWithADirective) {
  worker_.hold = true;
  Start();
  controller_.streams.At(0)->Send(Say("slow"));
  ASSERT_TRUE(worker_.held.WaitFor(kGuard));
  const size_t before = controller_.statuses.size();
  EXPECT_EQ(controller_.statuses.At(before + 5).epoch(), 1);
  EXPECT_EQ(worker_.events.size(), 1u);
  worker_.release.Notify();
  EXPECT_EQ(worker_.events.At(1), "slow");
}

TEST_F(WorkerAgentTest, ComesBackWithItsWorkWhenTheConnectionBreaks) {
  worker_.assignments = {"a-1", "a-2"};
  Start();
  controller_.streams.At(0)->Finish(absl::UnavailableError("restarting"));
  const auto again = controller_.registrations.At(1);
  EXPECT_THAT(again.assignment_ids(), ElementsAre("a-1", "a-2"));
  EXPECT_EQ(again.incarnation(), "i-1");
  EXPECT_EQ(worker_.events.At(0), "epoch w#1");
  EXPECT_EQ(worker_.events.At(1), "epoch w#2") << "a break is no fence";
  controller_.streams.At(1)->Send(Say("on the new stream"));
  EXPECT_EQ(worker_.events.At(2), "on the new stream");
}

TEST_F(WorkerAgentTest, TellsTheWorkerThatItIsFencedBeforeItsNewEpoch) {
  Start();
  const auto stream = controller_.streams.At(0);
  stream->Send(Say("before"));
  stream->Finish(absl::FailedPreconditionError("epoch 1 is fenced"));
  EXPECT_EQ(worker_.events.At(0), "epoch w#1");
  EXPECT_EQ(worker_.events.At(1), "before");
  EXPECT_EQ(worker_.events.At(2), "fenced epoch 1 is fenced");
  EXPECT_EQ(worker_.events.At(3), "epoch w#2");
}

TEST_F(WorkerAgentTest, EndsItsWorkWhenANewerProcessHasItsName) {
  worker_.assignments = {"job/rollout/1"};
  controller_.on_register =
      [](const cluster::v1::RegisterRequest&) -> absl::StatusOr<cluster::v1::RegisterReply> {
    return absl::AlreadyExistsError("a newer process has taken the name");
  };
  Start();
  EXPECT_EQ(worker_.events.At(0), "a newer process has taken the name");
}

TEST_F(WorkerAgentTest, FencesItselfWhenItWasSilentForTooLong) {
  FakeClock clock;
  Start(OptionsFor({controller_.address()}), nullptr, clock);
  controller_.statuses.At(0);
  EXPECT_EQ(worker_.events.At(0), "epoch w#1");
  clock.Advance(absl::Seconds(601));
  EXPECT_THAT(worker_.events.At(1), StartsWith("fenced the controller was not reached for 10m1s"));
  EXPECT_EQ(worker_.events.At(2), "epoch w#2");
  agent_.reset();  // uses the clock
}

TEST_F(WorkerAgentTest, FencesItselfWhileNoControllerIsThere) {
  FakeClock clock;
  Start(OptionsFor({controller_.address()}), nullptr, clock);
  controller_.statuses.At(0);
  controller_.Down();
  EXPECT_EQ(worker_.events.At(0), "epoch w#1");
  clock.Advance(absl::Seconds(601));
  EXPECT_THAT(worker_.events.At(1), StartsWith("fenced "));
  EXPECT_EQ(agent_->worker(), "");
  EXPECT_FALSE(agent_->connected());
  agent_.reset();  // uses the clock
}

TEST_F(WorkerAgentTest, FindsARestartedController) {
  const std::string address = controller_.address();
  Start();
  controller_.statuses.At(0);
  controller_.Down();
  ScriptedController second(address);
  second.statuses.At(3);
  EXPECT_EQ(agent_->controller(), address);
}

TEST_F(WorkerAgentTest, FollowsTheLeaderThatAStandbyNames) {
  ScriptedController standby;
  standby.on_register = [&](const auto&) {
    return WithDetails(
        absl::UnavailableError("stands by"),
        {.reason = kNotLeaderReason, .metadata = {{kLeaderMetadata, controller_.address()}}});
  };
  Start(OptionsFor({standby.address()}));
  controller_.statuses.At(0);
  EXPECT_EQ(agent_->controller(), controller_.address());
  // The leader steps down and names its successor.
  ScriptedController next;
  controller_.streams.At(0)->Finish(WithDetails(absl::UnavailableError("lost the lease"),
                                                {.metadata = {{kLeaderMetadata, next.address()}}}));
  next.statuses.At(0);
  EXPECT_EQ(agent_->controller(), next.address());
}

TEST_F(WorkerAgentTest, IsNotCaughtByTwoStandbysThatNameEachOther) {
  std::atomic<bool> b_leads{false};
  ScriptedController a;
  ScriptedController b;
  const auto names = [](const std::string& leader) {
    return [leader](const auto&) {
      return WithDetails(absl::UnavailableError("stands by"),
                         {.metadata = {{kLeaderMetadata, leader}}});
    };
  };
  a.on_register = names(b.address());
  b.on_register = [&, standby = names(a.address())](
                      const auto& request) -> absl::StatusOr<cluster::v1::RegisterReply> {
    if (!b_leads) return standby(request);
    return controller_.on_register(request);
  };
  Start(OptionsFor({a.address()}));
  b.registrations.At(5);
  b_leads = true;
  b.statuses.At(0);
}

TEST_F(WorkerAgentTest, TriesEveryController) {
  std::string dead;
  {
    ScriptedController gone;
    dead = gone.address();
  }
  Start(OptionsFor({dead, controller_.address()}));
  controller_.statuses.At(0);
  EXPECT_EQ(agent_->controller(), controller_.address());
}

TEST_F(WorkerAgentTest, NoticesANetworkThatSwallowsEverything) {
  auto proxy = FaultProxy::Start(ParseHostPort(controller_.address())->port);
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  Start(OptionsFor({StrCat("127.0.0.1:", (*proxy)->port())}));
  controller_.statuses.At(1);
  Toxics swallow;
  swallow.swallow = true;
  (*proxy)->Set(FaultDirection::kToServer, swallow);
  (*proxy)->Set(FaultDirection::kToClient, swallow);
  const absl::Time deadline = absl::Now() + kGuard;
  while (agent_->connected() && absl::Now() < deadline) {
    Notification().WaitFor(absl::Milliseconds(5));
  }
  EXPECT_FALSE(agent_->connected());
  (*proxy)->ResetPeers();
  (*proxy)->Heal();
  EXPECT_EQ(worker_.events.At(0), "epoch w#1");
  EXPECT_EQ(worker_.events.At(1), "epoch w#2");
}

TEST_F(WorkerAgentTest, ShipsTheLog) {
  LogRing ring({.max_lines = 2, .max_line_bytes = 100, .max_taken_bytes = 100});
  for (const char* text : {"lost", "first", "second \xff"}) {
    ring.Add(LogSeverity::kWarning, absl::FromUnixSeconds(7), text);
  }
  Start(OptionsFor({controller_.address()}), &ring);
  const auto status = controller_.statuses.At(0);
  ASSERT_EQ(status.log_size(), 2);
  EXPECT_EQ(status.log(0).text(), "first");
  EXPECT_EQ(status.log(0).level(), "warning");
  EXPECT_EQ(status.log(0).time().seconds(), 7);
  EXPECT_EQ(status.log(1).text(), "second ?");
  EXPECT_EQ(status.log_lines_lost(), 1);
  EXPECT_EQ(controller_.statuses.At(1).log_size(), 0);
  EXPECT_EQ(controller_.statuses.At(1).log_lines_lost(), 0);
}

TEST_F(WorkerAgentTest, SendsAStatusAtOnceWhenAsked) {
  controller_.on_register = [](const auto&) {
    cluster::v1::RegisterReply reply;
    reply.set_epoch(1);
    reply.mutable_heartbeat_interval()->set_seconds(600);
    reply.mutable_lost_after()->set_seconds(600);
    return reply;
  };
  Start();
  EXPECT_EQ(controller_.statuses.At(0).sequence(), 1);
  worker_.draining = true;
  agent_->SendStatusNow();
  EXPECT_TRUE(controller_.statuses.At(1).draining());
}

TEST_F(WorkerAgentTest, LeavesAfterALastStatus) {
  Start();
  controller_.statuses.At(0);
  worker_.draining = true;
  EXPECT_EQ(agent_->Deregister("drained"), absl::OkStatus());
  EXPECT_TRUE(controller_.statuses.At(controller_.statuses.size() - 1).draining());
  const auto request = controller_.deregistrations.At(0);
  EXPECT_EQ(request.worker(), "w");
  EXPECT_EQ(request.epoch(), 1);
  EXPECT_EQ(request.reason(), "drained");
  EXPECT_EQ(controller_.registrations.size(), 1u);
  EXPECT_TRUE(controller_.streams.At(0)->ended.WaitFor(kGuard));
  agent_->Stop();
}

TEST_F(WorkerAgentTest, LeavesQuietlyWhenItNeverRegistered) {
  controller_.on_register = [](const auto&) { return absl::PermissionDeniedError("no"); };
  Start();
  controller_.registrations.At(1);
  EXPECT_EQ(agent_->Deregister("drained"), absl::OkStatus());
  EXPECT_EQ(controller_.deregistrations.size(), 0u);
}

TEST_F(WorkerAgentTest, FetchesRowsAgainUntilTheControllerAnswers) {
  std::atomic<int> calls{0};
  controller_.on_fetch_rows = [&](const cluster::v1::FetchRowsRequest& request)
      -> absl::StatusOr<cluster::v1::FetchRowsReply> {
    if (++calls < 3) return absl::UnavailableError("restarting");
    if (request.job_id() != "j") return absl::NotFoundError("no such job");
    cluster::v1::FetchRowsReply reply;
    reply.set_total(7);
    return reply;
  };
  Start();
  cluster::v1::FetchRowsRequest request;
  request.set_job_id("j");
  const auto reply = agent_->FetchRows(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->total(), 7);
  EXPECT_EQ(calls, 3);
  request.set_job_id("other");
  EXPECT_EQ(agent_->FetchRows(request).status(), absl::NotFoundError("no such job"));
  EXPECT_EQ(calls, 4);
  End();
}

TEST_F(WorkerAgentTest, SaysWhenNoControllerAnswersInTime) {
  WorkerAgentOptions options = OptionsFor({controller_.address()});
  controller_.on_register = [](const auto&) { return absl::UnavailableError("starting"); };
  options.data_timeout = absl::Milliseconds(50);
  Start(options);
  EXPECT_TRUE(absl::IsUnavailable(agent_->FetchRows({}).status()));
}

TEST_F(WorkerAgentTest, GivesTheConnectionUpWhenTheWorkerLagsTooFarBehind) {
  worker_.hold = true;
  WorkerAgentOptions options = OptionsFor({controller_.address()});
  options.max_pending_directives = 4;
  Start(options);
  const auto stream = controller_.streams.At(0);
  ASSERT_EQ(worker_.events.At(0), "epoch w#1");  // no longer in the directive queue
  for (int i = 0; i < 20; ++i) stream->Send(Say(StrCat(i)));
  EXPECT_TRUE(stream->ended.WaitFor(kGuard));
  EXPECT_EQ(controller_.registrations.size(), 1u) << "not before there is room again";
  worker_.hold = false;
  worker_.release.Notify();
  controller_.streams.At(1);
  // Accepted directives were delivered in order, followed by the new epoch.
  EXPECT_EQ(worker_.events.At(1), "0");
  EXPECT_EQ(worker_.events.At(4), "3");
}

TEST_F(WorkerAgentTest, StopsWhileTheControllerHangs) {
  Notification go;
  controller_.on_register = [&](const auto&) -> absl::StatusOr<cluster::v1::RegisterReply> {
    go.WaitFor(kGuard);
    return absl::UnavailableError("late");
  };
  WorkerAgentOptions options = OptionsFor({controller_.address()});
  options.call_timeout = absl::Hours(1);
  Start(options);
  controller_.registrations.At(0);
  std::thread caller([&] { EXPECT_FALSE(agent_->FetchRows({}).ok()); });
  agent_->Stop();
  agent_->Stop();
  caller.join();
  go.Notify();
  End();
}

TEST(WorkerAgentCreate, RefusesBadOptions) {
  Worker worker;
  const auto start = [&](const WorkerAgentOptions& options) {
    return WorkerAgent::Create(options, worker, worker, nullptr).status();
  };
  EXPECT_EQ(start(OptionsFor({})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(start(OptionsFor({"nowhere"})).code(), absl::StatusCode::kInvalidArgument);
  WorkerAgentOptions nameless = OptionsFor({"127.0.0.1:1"});
  nameless.identity.clear_worker();
  EXPECT_EQ(start(nameless).code(), absl::StatusCode::kInvalidArgument);
  WorkerAgentOptions roleless = OptionsFor({"127.0.0.1:1"});
  roleless.identity.clear_role();
  EXPECT_EQ(start(roleless).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ParseControllers, SplitsAtCommas) {
  EXPECT_THAT(*ParseControllers("a:1"), ElementsAre("a:1"));
  EXPECT_THAT(*ParseControllers("a:1,[::1]:2"), ElementsAre("a:1", "[::1]:2"));
  for (const char* bad : {"", "a", "a:0", "a:1,", ",a:1", "a:1,,b:2", "a:1, b:2"}) {
    const auto parsed = ParseControllers(bad);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace freshet::runtime
