// A stalled job reports the reason in `describe`, in an event and in a metric, within 10 s at the
// default time scale. The tests run at ten times the speed.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "freshet/env/v1/env_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster_job.h"
#include "tests/testing/cluster_processes.h"
#include "tests/testing/loopback_server.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::HasSubstr;

// An environment whose episodes end after the first step, until it hangs.
class UsersEnvironment final : public env::v1::EnvService::Service {
 public:
  ~UsersEnvironment() override { Hang(false); }
  std::string address() const { return server_.address(); }
  void Hang(bool hang) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    hangs_ = hang;
    changed_.NotifyAll();
  }

  grpc::Status Episode(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<env::v1::EpisodeReply, env::v1::EpisodeRequest>* stream) override {
    env::v1::EpisodeRequest request;
    while (stream->Read(&request) && !request.has_close()) {
      if (request.has_step()) HangIfSo(*context);
      env::v1::EpisodeReply reply;
      reply.set_observation("?");
      reply.set_reward(request.step().action().size() % 2 == 0 ? 1 : 0);
      reply.set_terminated(request.has_step());
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

 private:
  void HangIfSo(const grpc::ServerContext& context) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    while (hangs_ && !context.IsCancelled()) changed_.WaitFor(mu_, absl::Milliseconds(100));
  }

  Mutex mu_;
  CondVar changed_;
  bool hangs_ ABSL_GUARDED_BY(mu_) = false;
  const LoopbackServer server_{this};
};

class WatchdogTest : public testing::Test {
 protected:
  void SetUp() override {
    FRESHET_SKIP_WITHOUT_REDIS();
    ::setenv("FRESHET_SIM_ENGINE", "16 1.0 0.02 1.0 8 0.8", 1);
    ::setenv("FRESHET_SIM_STEP_SECONDS", "0.05", 1);
  }
  void Run(const std::vector<std::string>& workers, const std::string& more,
           bool simulated = true) {
    ClusterOptions options;
    options.simulated = simulated;
    options.time_scale = 0.1;
    cluster_ = std::make_unique<ClusterProcesses>(options);
    const absl::Status up = cluster().Start(workers);
    ASSERT_TRUE(up.ok()) << up;
    // Steps of a real model are shorter; the job must not end before it is disturbed.
    ASSERT_TRUE(cluster().Submit("j", QuickJob(simulated ? 60 : 120, more)).ok());
    ASSERT_TRUE(cluster().AwaitStep("j", 5)) << cluster().Get("j")->DebugString();
  }
  ClusterProcesses& cluster() { return *cluster_; }
  std::string WaitsFor() { return cluster().Get("j").value_or(job::v1::Job()).waits_for(); }
  std::optional<double> Blocking(const char* edge) {
    return cluster()
        .Metrics("controller")
        .Find("freshet_job_blocking_edge", {{"edge", edge}, {"job", "j"}});
  }
  // Expects that `describe`, the event and the metric report that the job blocks on `edge` because
  // of `why`. The event is created when the stall begins and contains `at_first` instead.
  void ExpectStall(const char* edge, const std::string& why) { ExpectStall(edge, why, why); }
  void ExpectStall(const char* edge, const std::string& why, const std::string& at_first) {
    EXPECT_TRUE(ClusterProcesses::Await([&] {
      const std::string text = WaitsFor();
      return Blocking(edge) == 1 && text.starts_with(StrCat(edge, ": ")) &&
             text.find(why) != std::string::npos;
    })) << cluster().Get("j")->ShortDebugString();
    const ChildResult described = cluster().Freshet({"describe", "j"});
    EXPECT_THAT(described.out, HasSubstr(StrCat(edge, ": ")));
    EXPECT_THAT(described.out, HasSubstr(why));
    EXPECT_THAT(described.out, HasSubstr("stalled"));
    EXPECT_THAT(cluster().Notices("j", "stalled"),
                testing::Contains(testing::AllOf(HasSubstr(edge), HasSubstr(at_first))));
    EXPECT_TRUE(ClusterProcesses::Await([&] {
      return cluster()
                 .Metrics("controller")
                 .Find("freshet_job_stalled_seconds", {{"job", "j"}})
                 .value_or(0) > 0;
    }));
  }
  void ExpectProgress() {
    // Check while the job runs: only its last events are retained.
    EXPECT_TRUE(ClusterProcesses::Await([&] {
      return !cluster().Notices("j", "progress").empty();
    })) << cluster().Get("j")->ShortDebugString();
    EXPECT_TRUE(cluster().AwaitState("j", JOB_STATE_SUCCEEDED))
        << cluster().Get("j")->ShortDebugString();
  }

  std::unique_ptr<ClusterProcesses> cluster_;
};

TEST_F(WatchdogTest, NamesAnEmptyRewardPool) {
  Run({"rollout-0", "reward-0", "trainer-0"}, kLengthReward);
  ASSERT_TRUE(cluster().Drain("reward-0").ok());
  ExpectStall("reward", "0 reward workers ready");
  ASSERT_TRUE(cluster().Launch("reward-0").ok());
  ExpectProgress();
}

TEST_F(WatchdogTest, NamesAnEmptyRolloutPool) {
  Run({"rollout-0", "reward-0", "trainer-0"}, kLengthReward);
  ASSERT_TRUE(cluster().Drain("rollout-0").ok());
  ExpectStall("rollout", "pool default: 0 rollouts ready");
  ASSERT_TRUE(cluster().Launch("rollout-0").ok());
  ExpectProgress();
}

TEST_F(WatchdogTest, NamesAHungEnvironment) {
  Run({"rollout-0", "reward-0", "env-0", "trainer-0"},
      "environment: {type: guess_number, max_turns: 2, max_turn_tokens: 8, "
      "options: {max: \"10\"}}\n"
      "reward: {components: {won: {type: environment}}}\n",
      /*simulated=*/false);
  cluster().Signal("env-0", SIGSTOP);
  // The stall may begin before the worker is declared lost, when its episodes do not answer.
  ExpectStall("env", "0 environment workers ready", "environment");
  cluster().Signal("env-0", SIGCONT);
  ExpectProgress();
}

TEST_F(WatchdogTest, NamesAUsersEnvironmentThatNeverAnswers) {
  UsersEnvironment environment;
  Run({"rollout-0", "reward-0", "trainer-0"},
      StrCat("environment: {type: grpc, address: \"", environment.address(),
             "\", max_turns: 2, max_turn_tokens: 8, step_timeout_ms: 500}\n"
             "reward: {components: {won: {type: environment}}}\n"),
      /*simulated=*/false);
  environment.Hang(true);
  ExpectStall("env", StrCat("environment grpc ", environment.address()));
  environment.Hang(false);
  ExpectProgress();
}

TEST_F(WatchdogTest, NamesAFullDatastore) {
  Run({"rollout-0", "reward-0", "trainer-0"}, kLengthReward);
  const auto redis = cluster().redis().Client();
  ASSERT_TRUE(redis->Command({"CONFIG", "SET", "maxmemory", "1mb"}).ok());
  ExpectStall("datastore", "redis is at its memory limit");
  ASSERT_TRUE(redis->Command({"CONFIG", "SET", "maxmemory", "0"}).ok());
  ExpectProgress();
}

TEST_F(WatchdogTest, NamesAStoppedTrainer) {
  Run({"rollout-0", "reward-0", "trainer-0"}, kLengthReward);
  cluster().Signal("trainer-0", SIGSTOP);
  ExpectStall("trainer", "trainer-0 is lost", "trainer trainer-0 ");
  cluster().Signal("trainer-0", SIGCONT);
  ExpectProgress();
}

}  // namespace
}  // namespace freshet
