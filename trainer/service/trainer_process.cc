#include "trainer/service/trainer_process.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "prometheus/registry.h"
#include "services/base/clock.h"
#include "services/base/fault_point.h"
#include "services/base/log.h"
#include "services/base/str_cat.h"
#include "services/metrics/queue_metrics.h"
#include "services/metrics/weight_sync_metrics.h"
#include "services/runtime/channel_cache.h"
#include "services/runtime/process_identity.h"
#include "services/runtime/worker_role.h"
#include "services/worker/worker_begin.h"
#include "trainer/service/cluster_weight_plane.h"
#include "trainer/service/trainer_metrics.h"
#include "trainer/service/trainer_service.h"
#include "trainer/service/training_work.h"

namespace freshet {
namespace {

std::string DefaultStateDir() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0') {
    return StrCat(state, "/freshet");
  }
  const char* home = std::getenv("HOME");
  return StrCat(home != nullptr ? home : "", "/.local/state/freshet");
}

}  // namespace

int RunTrainerProcess(int argc, char** argv, LearnerFactory& learners, const TrainerHooks& hooks) {
  CLI::App app("trains the models of a cluster's jobs", "freshet-trainer");
  runtime::WorkerFlags flags;
  std::string state_dir = DefaultStateDir();
  double peak_flops = 0;
  runtime::AddWorkerFlags(app, flags);
  std::vector<std::string> data_roots;
  runtime::AddDataRootFlag(app, data_roots);
  app.add_option("--state-dir", state_dir, "folder of the jobs' checkpoints")
      ->capture_default_str();
  app.add_option(
         "--peak-flops", peak_flops,
         "operations per second that the processor can do, for freshet_mfu_ratio; 0: unknown")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  if (const std::optional<int> code = runtime::ParseCommandLine(app, argc, argv)) return *code;
  const absl::StatusOr<DataRoots> roots = DataRoots::Create(data_roots);
  if (!roots.ok()) {
    std::fprintf(stderr, "freshet-trainer: %s\n", Message(roots.status()).c_str());
    return 2;
  }
  absl::StatusOr<WorkerBegin> begin = BeginWorker(flags, cluster::v1::ROLE_TRAINER);
  if (!begin.ok()) {
    std::fprintf(stderr, "freshet-trainer: %s\n", Message(begin.status()).c_str());
    return 2;
  }
  runtime::LogRing log;
  runtime::ShipLog(log);
  const Clock& clock = SystemClock::Get();
  FaultPoints faults;
  const auto registry = std::make_shared<prometheus::Registry>();
  metrics::WeightSyncMetrics sync(*registry);
  TrainerMetrics training(*registry, peak_flops);
  runtime::ChannelCache channels(runtime::ChannelOptionsOf(flags));
  // To the engines that it publishes to.
  const ChannelSource source = [&](const std::string& address) -> std::shared_ptr<grpc::Channel> {
    return channels.Get(address, cluster::v1::ROLE_ROLLOUT).value_or(nullptr);
  };
  const std::string host = runtime::HostId();
  GrpcWeightService weights({.host = host}, source, clock, &sync);
  GrpcTrainerService service(learners, state_dir, *roots);

  runtime::WorkerRole* worker = nullptr;
  TrainingContext context;
  context.open_store =
      [&](const std::string& job) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    absl::StatusOr<std::unique_ptr<TrajectoryStore>> store = begin->datastore.open_store(job);
    if (!store.ok() || !hooks.wrap_store) return store;
    return hooks.wrap_store(*std::move(store));
  };
  context.events = begin->datastore.events.get();
  context.learners = &learners;
  context.roots = *roots;
  context.open_weights = [&](const cluster::v1::Assign& assign) {
    return ClusterWeightPlane::Create(assign, host, source, clock, &sync, weights,
                                      flags.time_scale);
  };
  context.fetch_rows = [&](const cluster::v1::FetchRowsRequest& request) {
    return worker->agent()->FetchRows(request);
  };
  context.clock = &clock;
  context.faults = &faults;
  context.sync = &sync;
  context.listener = &training;
  context.state_dir = state_dir;
  context.time_scale = flags.time_scale;
  runtime::WorkerRole role(
      {begin->agent, /*exclusive=*/true},
      [&](const cluster::v1::Assign& assign, const std::string& name, std::stop_token) {
        return TrainingWork::Create(assign, name, context);
      },
      {&weights, &service}, &log);
  worker = &role;
  runtime::ServeOptions serve;
  serve.role = "trainer";
  serve.endpoint = flags.endpoint;
  serve.version = begin->agent.identity.version();
  serve.registry = registry;
  metrics::QueueMetrics queues(*registry);
  queues.Watch("trainer_calls", GrpcTrainerService::kMaxQueue,
               [&service] { return static_cast<int64_t>(service.queued_calls()); });
  queues.Watch("weight_calls", GrpcWeightService::kMaxQueuedCalls,
               [&weights] { return static_cast<int64_t>(weights.queued_calls()); });
  queues.Watch("weight_prepares", weights.max_streams(),
               [&weights] { return int64_t{weights.open_prepares()}; });
  queues.Watch("weight_pulls", weights.max_streams(),
               [&weights] { return int64_t{weights.open_pulls()}; });
  serve.before_scrape = [&] {
    training.Refresh();
    queues.Refresh();
  };
  return runtime::Serve(role, serve);
}

}  // namespace freshet
