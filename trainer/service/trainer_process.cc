#include "trainer/service/trainer_process.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/fault_point.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "services/runtime/channel.h"
#include "services/runtime/gpu_memory_metrics.h"
#include "services/runtime/process_identity.h"
#include "services/runtime/serve.h"
#include "services/worker/role_name.h"
#include "trainer/ranks/grpc/rank_role.h"
#include "trainer/ranks/grpc/rank_service.h"
#include "trainer/service/cluster_weight_plane.h"
#include "trainer/service/trainer_metrics.h"
#include "trainer/service/trainer_service.h"
#include "trainer/service/training_work.h"
#include "weights/grpc/weight_sync_metrics.h"

namespace freshet {
namespace {

std::string DefaultStateDir() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0') {
    return StrCat(state, "/freshet");
  }
  const char* home = std::getenv("HOME");
  return StrCat(home != nullptr ? home : "", "/.local/state/freshet");
}

struct RankFlags {
  int rank = 0;
  int ranks = 1;
  std::string rendezvous;
};

void AddRankFlags(const Command& app, RankFlags& flags) {
  app.Add("--ranks", flags.ranks,
          "processes of this trainer, which train together; 1: a job's ranks are child processes")
      .Range(1, 64)
      .ShowDefault();
  app.Add("--rank", flags.rank, "number of this process; only 0 is a member of the cluster")
      .Range(0, 63)
      .ShowDefault();
  app.Add("--rendezvous", flags.rendezvous, "HOST:PORT of rank 0's gRPC services");
}

// INVALID_ARGUMENT naming the flag.
absl::Status CheckRankFlags(const RankFlags& flags) {
  if (flags.rank >= flags.ranks) {
    return InvalidArgument("--rank: ", flags.rank, " is not below --ranks ", flags.ranks);
  }
  if (flags.rank > 0 && flags.rendezvous.empty()) {
    return InvalidArgument("--rendezvous: needed with --rank ", flags.rank);
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT naming the flag.
absl::Status CheckHook(const std::string& program) {
  std::error_code error;
  if (program.empty()) return absl::OkStatus();
  if (std::filesystem::is_directory(program, error)) {
    return InvalidArgument("--checkpoint-hook: ", program, " is a directory");
  }
  if (::access(program.c_str(), X_OK) == 0) return absl::OkStatus();
  return InvalidArgument("--checkpoint-hook: ", program,
                         " cannot be executed: ", std::strerror(errno));
}

// Serves as one of ranks 1 .. until the process is told to stop. Returns the exit code.
int ServeRank(const runtime::WorkerFlags& flags, const RankFlags& ranks, LearnerFactory& learners) {
  absl::StatusOr<StoreOpener> open_store = MakeStoreOpener(flags.datastore, flags.time_scale);
  if (!open_store.ok()) {
    std::fprintf(stderr, "freshet-trainer: %s\n", Message(open_store.status()).c_str());
    return 2;
  }
  RankRoleOptions options;
  options.rank = ranks.rank;
  options.ranks = ranks.ranks;
  options.rank_zero = ranks.rendezvous;
  options.connect = [&] {
    runtime::ChannelOptions channel =
        runtime::ForMember(runtime::ChannelOptionsOf(flags), RoleName(cluster::v1::ROLE_TRAINER));
    channel.own_connection = true;
    return runtime::MakeChannel(ranks.rendezvous, channel);
  };
  options.run = [&](UniqueFd socket) { return learners.RunRank(std::move(socket), *open_store); };
  if (const absl::Status usable = options.connect().status(); !usable.ok()) {
    std::fprintf(stderr, "freshet-trainer: --rendezvous: %s\n", Message(usable).c_str());
    return 2;
  }
  RankRole role(std::move(options));
  runtime::ServeOptions serve;
  serve.role = RoleName(cluster::v1::ROLE_TRAINER);
  serve.version = Version();
  serve.endpoint = flags.endpoint;
  return runtime::Serve(role, serve);
}

}  // namespace

int RunTrainerProcess(int argc, char** argv, LearnerFactory& learners,
                      const OpenCommunicatorBackend& open_backend, StoreWrapper wrap_store,
                      GpuMemoryReader read_gpus, const OpenDeviceMemory& open_gpu) {
  CommandLine app("trains the models of a cluster's jobs", "freshet-trainer");
  runtime::WorkerFlags flags;
  std::string state_dir = DefaultStateDir();
  double peak_flops = 0;
  runtime::AddWorkerFlags(app, flags);
  std::vector<std::string> data_roots;
  runtime::AddDataRootFlag(app, data_roots);
  app.Add("--state-dir", state_dir, "folder of the jobs' checkpoints").ShowDefault();
  app.Add("--peak-flops", peak_flops,
          "peak operations per second of a rank, for freshet_mfu_ratio; 0: unknown")
      .NotNegative()
      .ShowDefault();
  CheckpointHookOptions hook;
  double hook_timeout = absl::ToDoubleSeconds(hook.time_limit);
  app.Add("--checkpoint-hook", hook.program,
          "program that is run with the directory of each checkpoint, for example to upload it");
  app.Add("--checkpoint-hook-timeout", hook_timeout, "seconds that one run of it may take")
      .Range(1, 86'400)
      .ShowDefault();
  RankFlags ranks;
  AddRankFlags(app, ranks);
  if (const std::optional<int> code = app.Parse(argc, argv)) return *code;
  std::shared_ptr<JoinedRanks> joined;
  if (ranks.rank == 0 && ranks.ranks > 1) joined = std::make_shared<JoinedRanks>(ranks.ranks);
  hook.time_limit = absl::Seconds(hook_timeout);
  absl::Status usable = CheckRankFlags(ranks);
  if (usable.ok()) usable = CheckHook(hook.program);
  if (usable.ok() && ranks.rank > 0 && !hook.program.empty()) {
    usable = InvalidArgument("--checkpoint-hook: only --rank 0 writes checkpoints; remove it");
  }
  if (usable.ok() && joined != nullptr) usable = learners.UseRanks(joined);
  if (!usable.ok()) {
    std::fprintf(stderr, "freshet-trainer: %s\n", Message(usable).c_str());
    return 2;
  }
  if (ranks.rank > 0) return ServeRank(flags, ranks, learners);
  const absl::StatusOr<DataRoots> roots = DataRoots::Create(data_roots);
  if (!roots.ok()) {
    std::fprintf(stderr, "freshet-trainer: %s\n", Message(roots.status()).c_str());
    return 2;
  }
  const auto process =
      WorkerProcess::Create(flags, cluster::v1::ROLE_TRAINER, std::move(wrap_store));
  if (process == nullptr) return 2;

  const Clock& clock = SystemClock::Get();
  FaultPoints faults;
  metrics::WeightSyncMetrics sync(process->registry());
  TrainerMetrics training(process->registry(), peak_flops);
  metrics::GpuMemoryMetrics gpus(process->registry(), std::move(read_gpus));
  const ChannelSource engines = process->Members(cluster::v1::ROLE_ROLLOUT);
  const std::string host = runtime::HostId();
  GrpcWeightService weights({.host = host}, engines, clock, &sync);
  WatchQueues(weights, process->queues());
  GrpcTrainerService service(learners, state_dir, *roots);
  process->queues().Watch("trainer_calls", GrpcTrainerService::kMaxQueue,
                          [&] { return static_cast<int64_t>(service.queued_calls()); });
  // Of the process, because an engine may still read a copy at the end of its job.
  std::shared_ptr<DeviceCopies> copies;
  OpenDeviceCopies open_copies;
  if (open_gpu) {
    open_copies = [&](const std::string& device) -> absl::StatusOr<std::shared_ptr<DeviceCopies>> {
      FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<DeviceMemory> gpu, open_gpu(device));
      if (copies == nullptr) copies = std::make_shared<DeviceCopies>(std::move(gpu));
      return copies;
    };
  }
  TrainingContext context;
  context.open_store = process->open_store();
  context.store_arguments = runtime::DatastoreArguments(flags.datastore);
  context.store_arguments.insert(context.store_arguments.end(),
                                 {"--time-scale", StrCat(flags.time_scale)});
  context.events = &process->events();
  context.learners = &learners;
  context.roots = *roots;
  context.open_weights = [&](const cluster::v1::Assign& assign) {
    return ClusterWeightPlane::Create(assign, host, flags.site, engines, clock, &sync, weights,
                                      open_backend, open_copies, flags.time_scale);
  };
  context.clock = &clock;
  context.faults = &faults;
  context.sync = &sync;
  context.listener = &training;
  context.state_dir = state_dir;
  context.hook = hook;
  context.time_scale = flags.time_scale;
  std::vector<grpc::Service*> services = {&weights, &service};
  std::optional<GrpcRankService> rank_service;
  WorkerProcess::Extras extras;
  if (joined != nullptr) {
    services.push_back(&rank_service.emplace(joined));
    // The step in hand may still end with its ranks, but waits for no others.
    extras.drain_calls = [&joined](absl::Time /*deadline*/) { joined->Stop(); };
  }
  return process->Serve(
      /*exclusive=*/true,
      [&](const cluster::v1::Assign& assign, const std::string& worker,
          runtime::ControllerCalls& controller,
          std::stop_token) { return TrainingWork::Create(assign, worker, controller, context); },
      services,
      [&] {
        training.Refresh();
        gpus.Refresh();
      },
      extras);
}

}  // namespace freshet
