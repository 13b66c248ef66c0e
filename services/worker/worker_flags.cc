#include "services/worker/worker_flags.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/process_identity.h"
#include "services/worker/role_name.h"

namespace freshet::runtime {
namespace {

constexpr size_t kMaxPasswordBytes = 4096;

}  // namespace

void AddDatastoreFlags(const Command& app, DatastoreFlags& flags) {
  app.Add("--redis", flags.address, "HOST:PORT of the datastore").ShowDefault();
  app.Add("--redis-user", flags.username, "user of the datastore; default: Redis' default user");
  app.Add("--redis-password-file", flags.password_file,
          "file with the datastore's password; else the variable FRESHET_REDIS_PASSWORD");
  const Option tls = app.AddFlag("--redis-tls", flags.tls.enabled, "use TLS to the datastore");
  app.Add("--redis-tls-ca", flags.tls.ca,
          "PEM file: roots that its certificate is checked against; default: the system's")
      .Needs(tls);
  app.Add("--redis-tls-cert", flags.tls.cert, "PEM file: client certificate chain").Needs(tls);
  app.Add("--redis-tls-key", flags.tls.key, "PEM file: its private key").Needs(tls);
  app.Add("--redis-tls-name", flags.tls.server_name,
          "name in its certificate; default: the host of --redis")
      .Needs(tls);
}

std::vector<std::string> DatastoreArguments(const DatastoreFlags& flags) {
  std::vector<std::string> arguments = {"--redis", flags.address};
  const auto add = [&arguments](const char* name, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  };
  add("--redis-user", flags.username);
  add("--redis-password-file", flags.password_file);
  if (!flags.tls.enabled) return arguments;
  arguments.emplace_back("--redis-tls");
  add("--redis-tls-ca", flags.tls.ca);
  add("--redis-tls-cert", flags.tls.cert);
  add("--redis-tls-key", flags.tls.key);
  add("--redis-tls-name", flags.tls.server_name);
  return arguments;
}

absl::StatusOr<RedisOptions> MakeRedisOptions(const DatastoreFlags& flags, double time_scale) {
  const std::optional<HostPort> parsed = ParseHostPort(flags.address);
  if (!parsed.has_value() || parsed->port == 0) {
    return InvalidArgument("--redis \"", flags.address, "\" is not HOST:PORT");
  }
  RedisOptions options;
  options.host = parsed->host;
  options.port = parsed->port;
  options.username = flags.username;
  options.tls = flags.tls;
  if (!flags.password_file.empty()) {
    FRESHET_ASSIGN_OR_RETURN(std::string text, ReadFile(flags.password_file, kMaxPasswordBytes));
    options.password.assign(text.begin(), std::find(text.begin(), text.end(), '\n'));
    if (options.password.empty()) {
      return InvalidArgument("--redis-password-file ", flags.password_file, " is empty");
    }
  } else if (const char* variable = std::getenv("FRESHET_REDIS_PASSWORD"); variable != nullptr) {
    options.password = variable;
  }
  for (absl::Duration* time : {&options.connect_timeout, &options.command_timeout,
                               &options.reconnect_backoff_min, &options.reconnect_backoff_max}) {
    *time *= time_scale;
  }
  return options;
}

void AddDataRootFlag(const Command& app, std::vector<std::string>& folders) {
  app.Add("--data-root", folders,
          "folder below which jobs may name files (datasets, models, tokenizers); "
          "repeatable; default: none");
}

void AddTimeScaleFlag(const Command& app, double& time_scale) {
  app.Add("--time-scale", time_scale, "factor of all periods and deadlines, for tests")
      .Range(0.01, 10.0)
      .ShowDefault();
}

ChannelOptions Scaled(ChannelOptions options, double time_scale) {
  options.initial_reconnect_backoff *= time_scale;
  options.max_reconnect_backoff *= time_scale;
  return options;
}

void AddWorkerFlags(const Command& app, WorkerFlags& flags) {
  AddEndpointFlags(app, flags.endpoint);
  AddDatastoreFlags(app, flags.datastore);
  app.Add("--controller", flags.controllers,
          "HOST:PORT of the controller, or of several separated by commas")
      .ShowDefault();
  app.Add("--name", flags.name, "name in the cluster; default: ROLE-HOST-PID");
  app.Add("--pool", flags.pool, "pool of rollout engines; default: \"default\"");
  app.Add("--site", flags.site,
          "network location of a rollout or trainer; weights enter each site once; workers "
          "without --site share one");
  AddTimeScaleFlag(app, flags.time_scale);
}

ChannelOptions ChannelOptionsOf(const WorkerFlags& flags) {
  return Scaled(ChannelOptionsOf(flags.endpoint), flags.time_scale);
}

absl::StatusOr<WorkerAgentOptions> MakeAgentOptions(const WorkerFlags& flags,
                                                    cluster::v1::Role role,
                                                    const std::string& program_version) {
  WorkerAgentOptions options;
  FRESHET_ASSIGN_OR_RETURN(options.controllers, ParseControllers(flags.controllers));
  options.channel = ForMember(ChannelOptionsOf(flags), RoleName(cluster::v1::ROLE_CONTROLLER));
  for (absl::Duration* time : {&options.backoff.initial, &options.backoff.max,
                               &options.call_timeout, &options.data_timeout}) {
    *time *= flags.time_scale;
  }
  options.identity.set_role(role);
  options.identity.set_worker(
      flags.name.empty() ? StrCat(RoleName(role), "-", HostName(), "-", ::getpid()) : flags.name);
  SetLogWorker(options.identity.worker());
  options.identity.set_pool(flags.pool);
  options.identity.set_engine(flags.engine);
  options.identity.set_host(HostId());
  options.identity.set_site(flags.site);
  options.identity.set_version(program_version);
  options.identity.set_incarnation(RandomId());
  return options;
}

void ShipLog(LogRing& ring) {
  SetLogSink([&ring](LogSeverity severity, absl::Time time, std::string_view text) {
    ring.Add(severity, time, text);
  });
}

}  // namespace freshet::runtime
