#ifndef FRESHET_SERVICES_WORKER_WORKER_FLAGS_H_
#define FRESHET_SERVICES_WORKER_WORKER_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/log_ring.h"
#include "services/worker/worker_agent.h"

namespace freshet::runtime {

// Location of the datastore. The password is never printed.
struct DatastoreFlags {
  std::string address = "127.0.0.1:6379";
  std::string username;
  std::string password_file;  // "": the environment variable FRESHET_REDIS_PASSWORD, if set
  RedisTlsOptions tls;
};
// Adds --redis, --redis-user, --redis-password-file and --redis-tls*.
void AddDatastoreFlags(const Command& app, DatastoreFlags& flags);
// Arguments that give a child process the same flags. It inherits a password in the environment.
std::vector<std::string> DatastoreArguments(const DatastoreFlags& flags);
// Reads the password. Connect timeouts and back-offs are multiplied by `time_scale`.
// INVALID_ARGUMENT naming the flag or a file that cannot be used; NOT_FOUND: no password file.
absl::StatusOr<RedisOptions> MakeRedisOptions(const DatastoreFlags& flags, double time_scale);

// Adds --data-root: folders for DataRoots::Create.
void AddDataRootFlag(const Command& app, std::vector<std::string>& folders);

// Adds --time-scale: factor of all periods and deadlines of a process, for tests.
void AddTimeScaleFlag(const Command& app, double& time_scale);
// Scales the waits between connection attempts. Ping intervals are unchanged, because servers
// reject more frequent ones.
ChannelOptions Scaled(ChannelOptions options, double time_scale);

struct WorkerFlags {
  EndpointOptions endpoint;
  DatastoreFlags datastore;
  std::string controllers = "127.0.0.1:7070";
  std::string name;  // "": ROLE-HOST-PID
  std::string pool;
  std::string site;
  std::string engine;  // of a rollout; "": native
  double time_scale = 1.0;
};
// Adds the flags of endpoint and datastore, and --controller, --name, --pool, --site and
// --time-scale.
void AddWorkerFlags(const Command& app, WorkerFlags& flags);

// Options of the worker's outgoing channels.
ChannelOptions ChannelOptionsOf(const WorkerFlags& flags);
// Options of the worker's agent. Also sets the process's name in log lines. INVALID_ARGUMENT naming
// the flag.
absl::StatusOr<WorkerAgentOptions> MakeAgentOptions(const WorkerFlags& flags,
                                                    cluster::v1::Role role,
                                                    const std::string& program_version);

// Copies every later log line to `ring`, which must outlive the process's last line.
void ShipLog(LogRing& ring);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_WORKER_FLAGS_H_
