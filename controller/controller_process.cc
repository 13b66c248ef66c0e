#include "controller/controller_process.h"

#include <cstdlib>
#include <iostream>
#include <vector>

#include "base/command_line.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "controller/autoscale/pool_bounds.h"
#include "controller/kubernetes/scale_target.h"
#include "prometheus/registry.h"
#include "services/runtime/channel.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/serve.h"
#include "services/worker/worker_flags.h"

namespace freshet {
namespace {

// Watchers use blocking Redis calls, one connection each.
constexpr int kBlockingConnections = 128;
constexpr int kConnections = 16;

struct ScalingFlags {
  std::vector<std::string> bounds;
  std::string kubernetes_namespace;
  std::vector<std::string> targets;
};

void AddScalingFlags(const Command& app, ScalingFlags& flags) {
  app.Add("--pool-bounds", flags.bounds,
          "POOL=MIN..MAX: an autoscaled rollout pool and its bounds; repeatable");
  const Option name_space = app.Add(
      "--kubernetes-namespace", flags.kubernetes_namespace,
      "the workers are pods in this Kubernetes namespace; scale them through the API server");
  app.Add("--scale-target", flags.targets,
          "KEY=RESOURCE/NAME: the workload of KEY (rollout/POOL, reward or env); RESOURCE "
          "is deployments or leaderworkersets, the latter with *SIZE if a group has several "
          "workers; repeatable")
      .Needs(name_space);
}

// Returns INVALID_ARGUMENT naming the flag.
absl::Status TakeScalingFlags(const ScalingFlags& flags, ControllerRoleOptions& options) {
  auto bounds = ParsePoolBounds(flags.bounds);
  if (!bounds.ok()) return InvalidArgument("--pool-bounds: ", Message(bounds.status()));
  options.pool_bounds = *std::move(bounds);
  if (flags.kubernetes_namespace.empty()) return absl::OkStatus();
  auto targets = ParseScaleTargets(flags.targets);
  if (!targets.ok()) return InvalidArgument("--scale-target: ", Message(targets.status()));
  auto kubernetes = KubernetesOfPod(flags.kubernetes_namespace, [](const char* variable) {
    const char* const value = std::getenv(variable);
    return std::string(value != nullptr ? value : "");
  });
  if (!kubernetes.ok()) {
    return InvalidArgument("--kubernetes-namespace: ", Message(kubernetes.status()));
  }
  kubernetes->targets = *std::move(targets);
  options.kubernetes = *std::move(kubernetes);
  return absl::OkStatus();
}

}  // namespace

int RunControllerProcess(int argc, char** argv, const ControllerHooks& hooks) {
  runtime::ServeOptions serve;
  serve.role = "controller";
  serve.endpoint.listen = "127.0.0.1:7070";
  serve.endpoint.http_listen = "127.0.0.1:8081";
  serve.registry = std::make_shared<prometheus::Registry>();
  runtime::DatastoreFlags datastore;
  double time_scale = 1.0;
  double keep_hours = 24.0;
  std::string name;
  std::string status_listen;
  // Leaked so that it outlives the last log line.
  static auto* const log = new runtime::LogRing;
  runtime::ShipLog(*log);

  CommandLine app(
      "Manages a Freshet cluster: jobs, workers, prompts, evaluations. Several may run; one leads, "
      "the others are standbys.",
      "freshet-controller");
  runtime::AddEndpointFlags(app, serve.endpoint);
  runtime::AddUsersFlag(app, serve.endpoint);
  runtime::AddDatastoreFlags(app, datastore);
  app.Add("--name", name, "name in logs and as leader; default: controller-HOST-PID");
  app.Add("--status-listen", status_listen, "loopback HOST:PORT of the status page; \"\": none")
      .Check([](const std::string& address) {
        return address.empty() || runtime::IsLoopback(address)
                   ? std::string()
                   : address + " is not a loopback address: reach the page by a port-forward";
      });
  app.Add("--keep-hours", keep_hours, "hours to keep a job's data in the datastore after it ends")
      .Range(0.01, 8760.0)
      .ShowDefault();
  bool keep_trainer = false;
  app.AddFlag("--keep-trainer", keep_trainer,
              "a job waits indefinitely for the trainer that has its checkpoints; otherwise "
              "another trainer, which must have access to them, takes over after 60 s");
  std::vector<std::string> data_roots;
  runtime::AddDataRootFlag(app, data_roots);
  ScalingFlags scaling;
  AddScalingFlags(app, scaling);
  runtime::AddTimeScaleFlag(app, time_scale);
  if (const auto code = app.Parse(argc, argv)) return *code;

  auto redis = runtime::MakeRedisOptions(datastore, time_scale);
  if (!redis.ok()) {
    std::cerr << "freshet-controller: " << Message(redis.status()) << '\n';
    return 2;
  }
  ControllerRoleOptions options;
  options.redis = *std::move(redis);
  options.redis.max_connections = kConnections;
  options.redis.max_blocking_connections = kBlockingConnections;
  options.channel = runtime::Scaled(runtime::ChannelOptionsOf(serve.endpoint), time_scale);
  if (serve.endpoint.require_client_cert) options.member_name = serve.endpoint.tls_peer_name;
  options.timing = ControllerTiming().Scaled(time_scale);
  if (keep_trainer) options.timing.other_trainer_after = absl::InfiniteDuration();
  options.time_scale = time_scale;
  options.retention.keep = absl::Hours(keep_hours);
  options.name = name;
  options.status_listen = status_listen;
  options.registry = serve.registry;
  options.log = log;
  options.hooks = hooks;
  if (const absl::Status taken = TakeScalingFlags(scaling, options); !taken.ok()) {
    std::cerr << "freshet-controller: " << Message(taken) << '\n';
    return 2;
  }
  auto roots = DataRoots::Create(data_roots);
  if (!roots.ok()) {
    std::cerr << "freshet-controller: " << Message(roots.status()) << '\n';
    return 2;
  }
  options.roots = *std::move(roots);
  auto role = ControllerRole::Create(options);
  if (!role.ok()) {
    std::cerr << "freshet-controller: " << Message(role.status()) << '\n';
    return 2;
  }
  serve.version = Version();
  serve.before_scrape = [&role] { (*role)->RefreshMetrics(); };
  serve.ready_fields = [&role] {
    const std::string page = (*role)->status_address();
    return page.empty() ? std::string() : StrCat(" status=", page);
  };
  return runtime::Serve(**role, serve);
}

}  // namespace freshet
