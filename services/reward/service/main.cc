#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "prometheus/registry.h"
#include "services/base/str_cat.h"
#include "services/reward/grpc_scorer.h"
#include "services/reward/reward_service.h"
#include "services/reward/score_cache.h"
#include "services/reward/service/reward_work.h"
#include "services/runtime/channel_cache.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/worker_role.h"
#include "services/worker/worker_begin.h"

namespace freshet {
namespace {

constexpr size_t kCachedScores = 65'536;

int Main(int argc, char** argv) {
  CLI::App app("scores the samples of a cluster's jobs", "freshet-reward");
  runtime::WorkerFlags flags;
  runtime::AddWorkerFlags(app, flags);
  if (const std::optional<int> code = runtime::ParseCommandLine(app, argc, argv)) return *code;

  const absl::StatusOr<WorkerBegin> begin = BeginWorker(flags, cluster::v1::ROLE_REWARD);
  if (!begin.ok()) {
    std::fprintf(stderr, "freshet-reward: %s\n", Message(begin.status()).c_str());
    return 2;
  }
  runtime::LogRing log;
  runtime::ShipLog(log);
  runtime::ChannelCache channels(runtime::ChannelOptionsOf(flags.endpoint));
  const RemoteScorerFactory remote =
      GrpcScorers([&](const std::string& address) { return channels.Get(address); },
                  std::make_shared<ScoreCache>(kCachedScores));
  RewardService service({});
  runtime::ServeOptions serve;
  serve.role = "reward";
  serve.endpoint = flags.endpoint;
  serve.registry = std::make_shared<prometheus::Registry>();
  runtime::WorkerRole role(
      {begin->agent, /*exclusive=*/false},
      [&](const cluster::v1::Assign& assign, const std::string& worker, std::stop_token) {
        return RewardWork::Create(assign, worker, begin->datastore.open_store, remote);
      },
      {&service}, &log);
  return runtime::Serve(role, serve);
}

}  // namespace
}  // namespace freshet

int main(int argc, char** argv) { return freshet::Main(argc, argv); }
