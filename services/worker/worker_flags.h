#ifndef FRESHET_SERVICES_WORKER_WORKER_FLAGS_H_
#define FRESHET_SERVICES_WORKER_WORKER_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/log_ring.h"
#include "services/worker/worker_agent.h"

namespace CLI {
class App;
}

namespace freshet::runtime {

// Where the datastore is. The password is never printed.
struct DatastoreFlags {
  std::string address = "127.0.0.1:6379";
  std::string username;
  std::string password_file;  // "": the environment variable FRESHET_REDIS_PASSWORD, if set
  RedisTlsOptions tls;
};
// Adds --redis, --redis-user, --redis-password-file and --redis-tls*.
void AddDatastoreFlags(CLI::App& app, DatastoreFlags& flags);
// Reads the password. Connect timeouts and back-offs are multiplied by `time_scale`.
// INVALID_ARGUMENT naming the flag or a file that cannot be used; NOT_FOUND: no password file.
absl::StatusOr<RedisOptions> MakeRedisOptions(const DatastoreFlags& flags, double time_scale);

// Adds --data-root: folders for DataRoots::Create.
void AddDataRootFlag(CLI::App& app, std::vector<std::string>& folders);

// Adds --time-scale: the factor of all periods and deadlines of a process, for tests.
void AddTimeScaleFlag(CLI::App& app, double& time_scale);
// Waits between connects, scaled. Pings stay as they are: servers refuse more frequent ones.
ChannelOptions Scaled(ChannelOptions options, double time_scale);

// What all workers are told on their command line.
struct WorkerFlags {
  EndpointOptions endpoint;
  DatastoreFlags datastore;
  std::string controllers = "127.0.0.1:7070";
  std::string name;  // "": ROLE-HOST-PID
  std::string pool;
  double time_scale = 1.0;
};
// Adds the flags of the endpoint and the datastore, and --controller, --name, --pool and
// --time-scale.
void AddWorkerFlags(CLI::App& app, WorkerFlags& flags);

// How such a worker calls others.
ChannelOptions ChannelOptionsOf(const WorkerFlags& flags);
// Options of the agent of such a worker, whose name the log's lines bear from here on.
// INVALID_ARGUMENT naming the flag.
absl::StatusOr<WorkerAgentOptions> MakeAgentOptions(const WorkerFlags& flags,
                                                    cluster::v1::Role role,
                                                    const std::string& program_version);

// From now on every log line goes to `ring` too, which must outlive the process's last line.
void ShipLog(LogRing& ring);

// "rollout", as in the names of binaries, metrics and logs.
const char* Name(cluster::v1::Role role);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_WORKER_FLAGS_H_
