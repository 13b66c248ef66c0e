#include <iostream>

#include "CLI/CLI.hpp"
#include "controller/service/controller_role.h"
#include "prometheus/registry.h"
#include "services/base/str_cat.h"
#include "services/base/version.h"
#include "services/runtime/channel.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/serve.h"
#include "services/runtime/worker_flags.h"

namespace {

// Watchers block in the datastore, one connection each.
constexpr int kBlockingConnections = 128;
constexpr int kConnections = 16;

int Run(int argc, char** argv) {
  freshet::runtime::ServeOptions serve;
  serve.role = "controller";
  serve.endpoint.listen = "127.0.0.1:7070";
  serve.endpoint.http_listen = "127.0.0.1:8081";
  serve.registry = std::make_shared<prometheus::Registry>();
  freshet::runtime::DatastoreFlags datastore;
  double time_scale = 1.0;
  double keep_hours = 24.0;
  std::string name;

  CLI::App app(
      "Directs a Freshet cluster: jobs, workers, prompts, evaluations. Several may run; one "
      "leads, the others stand by.",
      "freshet-controller");
  freshet::runtime::AddEndpointFlags(app, serve.endpoint);
  freshet::runtime::AddDatastoreFlags(app, datastore);
  app.add_option("--name", name, "name in logs and as leader; default: controller-HOST-PID");
  app.add_option("--keep-hours", keep_hours,
                 "hours that a job's data stays in the datastore after its end")
      ->check(CLI::Range(0.01, 8760.0))
      ->capture_default_str();
  app.add_option("--time-scale", time_scale, "factor of all periods and deadlines, for tests")
      ->check(CLI::Range(0.01, 10.0))
      ->capture_default_str();
  if (const auto code = freshet::runtime::ParseCommandLine(app, argc, argv)) return *code;

  const auto address = freshet::runtime::ResolveDatastore(datastore);
  if (!address.ok()) {
    std::cerr << "freshet-controller: " << freshet::Message(address.status()) << '\n';
    return 2;
  }
  freshet::ControllerRoleOptions options;
  options.redis.host = address->host;
  options.redis.port = address->port;
  options.redis.password = address->password;
  options.redis.max_connections = kConnections;
  options.redis.max_blocking_connections = kBlockingConnections;
  options.channel = freshet::runtime::ChannelOptionsOf(serve.endpoint);
  options.timing = freshet::ControllerTiming().Scaled(time_scale);
  options.retention.keep = absl::Hours(keep_hours);
  options.name = name;
  options.registry = serve.registry;
  auto role = freshet::ControllerRole::Create(options);
  if (!role.ok()) {
    std::cerr << "freshet-controller: " << freshet::Message(role.status()) << '\n';
    return 2;
  }
  serve.version = freshet::Version();
  serve.before_scrape = [&role] { (*role)->RefreshMetrics(); };
  return freshet::runtime::Serve(**role, serve);
}

}  // namespace

int main(int argc, char** argv) { return Run(argc, argv); }
