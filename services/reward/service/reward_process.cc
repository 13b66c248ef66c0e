#include "services/reward/service/reward_process.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "prometheus/registry.h"
#include "services/base/str_cat.h"
#include "services/metrics/queue_metrics.h"
#include "services/reward/grpc_scorer.h"
#include "services/reward/job_scorers.h"
#include "services/reward/reward_service.h"
#include "services/reward/score_cache.h"
#include "services/reward/service/reward_metrics.h"
#include "services/reward/service/reward_work.h"
#include "services/runtime/channel_cache.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/worker_role.h"
#include "services/worker/worker_begin.h"

namespace freshet {
namespace {

constexpr size_t kCachedScores = 65'536;

}  // namespace

int RunRewardProcess(int argc, char** argv, const RewardHooks& hooks) {
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
  runtime::ChannelCache channels(runtime::ChannelOptionsOf(flags));
  const auto registry = std::make_shared<prometheus::Registry>();
  RewardMetrics shown(*registry);
  const auto answers = std::make_shared<ScoreCache>(kCachedScores);
  JobScorers scorers;
  RewardBoard board(metrics::kKeptJobs);
  RewardContext context;
  context.open_store =
      [&](const std::string& job) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    absl::StatusOr<std::unique_ptr<TrajectoryStore>> store = begin->datastore.open_store(job);
    if (!store.ok() || !hooks.wrap_store) return store;
    return hooks.wrap_store(*std::move(store));
  };
  context.time_scale = flags.time_scale;
  context.remote =
      GrpcScorers([&](const std::string& address) { return channels.Get(address); }, answers);
  context.scorers = &scorers;
  context.observers = &shown;
  context.board = &board;
  const RewardServiceOptions options;
  RewardService service(options, &scorers, shown.Of(ScoreObservers::kCalls));
  runtime::WorkerRole role(
      {begin->agent, /*exclusive=*/false},
      [&](const cluster::v1::Assign& assign, const std::string& worker, std::stop_token) {
        return RewardWork::Create(assign, worker, context);
      },
      {&service}, &log);

  shown.WatchCache(
      "services", [&] { return answers->hits(); }, [&] { return answers->misses(); });
  shown.WatchCache(
      "calls", [&] { return service.cache_hits(); }, [&] { return service.cache_misses(); });
  metrics::QueueMetrics queues(*registry);
  queues.Watch("score_calls", static_cast<int64_t>(options.max_queued),
               [&] { return static_cast<int64_t>(service.queued()); });
  runtime::ServeOptions serve;
  serve.role = "reward";
  serve.version = begin->agent.identity.version();
  serve.endpoint = flags.endpoint;
  serve.registry = registry;
  serve.before_scrape = [&] {
    shown.Refresh(board.Take());
    queues.Refresh();
  };
  return runtime::Serve(role, serve);
}

}  // namespace freshet
