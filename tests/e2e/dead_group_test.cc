// Prompts that no engine can generate do not hold a job up: their groups die with the reason, and
// other prompts take their places.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "freshet/env/v1/env_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/mutex.h"
#include "services/base/str_cat.h"
#include "tests/e2e/cluster_job.h"
#include "tests/testing/cluster_processes.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_SUCCEEDED;
using testing::HasSubstr;

constexpr int kAttempts = 3;

// An environment of a user's own whose every first step ends the episode, but for bad games: each
// step of these fails, or never ends.
class BadGames final : public env::v1::EnvService::Service {
 public:
  enum class Kind { kEveryFourthRaises, kOneHangs };
  explicit BadGames(Kind kind) : kind_(kind) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = StrCat("127.0.0.1:", port);
  }
  ~BadGames() override { server_->Shutdown(std::chrono::system_clock::now()); }
  const std::string& address() const { return address_; }
  // Steps that hang now.
  int hanging() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return hanging_;
  }

  grpc::Status Episode(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<env::v1::EpisodeReply, env::v1::EpisodeRequest>* stream) override {
    env::v1::EpisodeRequest request;
    bool bad = false;
    while (stream->Read(&request) && !request.has_close()) {
      if (request.has_reset()) bad = IsBad(request.reset().seed());
      if (request.has_step() && bad && kind_ == Kind::kEveryFourthRaises) {
        return {grpc::StatusCode::INTERNAL, "KeyError: 'answer'"};
      }
      if (request.has_step() && bad) Hang(*context);
      env::v1::EpisodeReply reply;
      reply.set_observation("?");
      reply.set_reward(request.step().action().size() % 2 == 0 ? 1 : 0);
      reply.set_terminated(request.has_step());
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

 private:
  // The samples of a prompt play the same game, of one seed.
  bool IsBad(uint64_t seed) ABSL_LOCKS_EXCLUDED(mu_) {
    if (kind_ == Kind::kEveryFourthRaises) return seed % 4 == 0;
    MutexLock lock(mu_);
    if (!hanging_seed_.has_value()) hanging_seed_ = seed;
    return seed == *hanging_seed_;
  }
  void Hang(const grpc::ServerContext& context) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++hanging_;
    while (!context.IsCancelled()) never_.WaitFor(mu_, absl::Milliseconds(20));
    --hanging_;
  }

  const Kind kind_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  mutable Mutex mu_;
  CondVar never_;
  int hanging_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<uint64_t> hanging_seed_ ABSL_GUARDED_BY(mu_);
};

class DeadGroupTest : public testing::Test {
 protected:
  void SetUp() override { FRESHET_SKIP_WITHOUT_REDIS(); }
  void Run(const BadGames& games, int steps) {
    const absl::Status up = cluster_.Start({"rollout-0", "reward-0", "trainer-0"});
    ASSERT_TRUE(up.ok()) << up;
    std::string yaml =
        QuickJob(steps, StrCat("environment: {type: grpc, address: \"", games.address(),
                               "\", max_turns: 2, max_turn_tokens: 8, step_timeout_ms: 60000}\n",
                               "reward: {components: {won: {type: environment}}}\n"));
    const std::string tokens = "max_new_tokens: 40";
    yaml.replace(yaml.find(tokens), tokens.size(), StrCat(tokens, ", max_attempts: ", kAttempts));
    ASSERT_TRUE(cluster_.Submit("j", yaml).ok());
  }
  // The reason of the group that died last; "" before one did.
  std::string LastReason() {
    const absl::StatusOr<job::v1::Job> job = cluster_.Get("j");
    return job.ok() && job->dead_groups_size() > 0 ? job->dead_groups(0).reason() : "";
  }
  void ExpectSuccess() {
    EXPECT_TRUE(cluster_.AwaitState("j", JOB_STATE_SUCCEEDED))
        << cluster_.Get("j")->ShortDebugString();
    const ChildResult verified = cluster_.Freshet({"ledger", "verify", "j"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("every promise holds"));
  }

  static ClusterOptions Options() {
    ClusterOptions options;
    options.simulated = false;
    return options;
  }
  ClusterProcesses cluster_{Options()};
};

TEST_F(DeadGroupTest, GamesThatRaiseAreGivenUpAndTheJobGoesOn) {
  BadGames games(BadGames::Kind::kEveryFourthRaises);
  Run(games, 10);
  ASSERT_TRUE(ClusterProcesses::Await([&] { return !LastReason().empty(); }))
      << cluster_.Get("j")->ShortDebugString();
  EXPECT_THAT(LastReason(), HasSubstr(StrCat("lease_failed: ", kAttempts, " times: environment")));
  EXPECT_THAT(LastReason(), HasSubstr("KeyError: 'answer'"));
  const ChildResult described = cluster_.Freshet({"describe", "j"});
  EXPECT_THAT(described.out, HasSubstr("died last"));
  EXPECT_THAT(described.out, HasSubstr("KeyError: 'answer'"));
  ExpectSuccess();
}

TEST_F(DeadGroupTest, APromptThatKillsItsEngineIsGivenUpAndTheJobGoesOn) {
  BadGames games(BadGames::Kind::kOneHangs);
  Run(games, 40);
  for (int i = 0; i < kAttempts; ++i) {
    ASSERT_TRUE(ClusterProcesses::Await([&] { return games.hanging() > 0; }))
        << i << " kills: " << cluster_.Get("j")->ShortDebugString();
    cluster_.Kill("rollout-0");  // as if the game had done it
    ASSERT_TRUE(ClusterProcesses::Await([&] { return games.hanging() == 0; }));
    ASSERT_TRUE(cluster_.Launch("rollout-0").ok());
  }
  ASSERT_TRUE(ClusterProcesses::Await([&] { return !LastReason().empty(); }))
      << cluster_.Get("j")->ShortDebugString();
  EXPECT_THAT(LastReason(), HasSubstr(StrCat("lease_failed: ", kAttempts, " times: worker")));
  EXPECT_THAT(LastReason(), HasSubstr("was lost"));
  ExpectSuccess();
  EXPECT_EQ(games.hanging(), 0);
}

}  // namespace
}  // namespace freshet
