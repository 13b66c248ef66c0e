#ifndef FRESHET_TESTS_TESTING_CLUSTER_PROCESSES_H_
#define FRESHET_TESTS_TESTING_CLUSTER_PROCESSES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "freshet/job/v1/job_service.grpc.pb.h"
#include "services/runtime/endpoint_options.h"
#include "tests/datastore/redis/redis_server.h"
#include "tests/runlog/scratch_folder.h"
#include "tests/testing/child_process.h"
#include "tests/testing/metrics_text.h"

namespace freshet {

struct ClusterOptions {
  // Engines and models that only take time, in the real rollout and trainer processes.
  bool simulated = true;
  // Of all periods and deadlines of the controller. At 0.1 a stall is told within 1 s, not within
  // 10 s; but a worker that a busy machine keeps from running for 0.2 s is lost.
  double time_scale = 1;
  // Redis keys beside the defaults, as in redis.conf.
  std::map<std::string, std::string> redis;
  // Mutual TLS: files of the members, and of the command and the test; no paths: plaintext.
  runtime::TlsFiles tls;
  runtime::TlsFiles client_tls;
  // First line: the token of the command and the test; "": none.
  std::string token_file;
  // More flags of the processes of a role; may be empty.
  std::function<std::vector<std::string>(const std::string& role)> flags;
};

// A redis-server, a controller and workers as processes of their own, with ports and a folder of
// their own. Everything ends with this object, and with the test. Confined to one thread.
class ClusterProcesses {
 public:
  explicit ClusterProcesses(ClusterOptions options = {}) : options_(std::move(options)) {}
  ~ClusterProcesses();

  // Redis and the controller, then these workers, "ROLE-ANYTHING" or "rollout.POOL-ANYTHING"; waits
  // until all are ready.
  absl::Status Start(const std::vector<std::string>& workers);
  // One more worker, or one that has ended; a controller comes back at its former address.
  absl::Status Launch(const std::string& name);
  void Signal(const std::string& name, int signal);
  // kill -9, and waits for the end.
  void Kill(const std::string& name);
  // Ends it as `freshet scale` does: SIGTERM, and waits for the drain.
  absl::Status Drain(const std::string& name);

  // The answer to GET /metrics, and the same judged.
  std::string MetricsBody(const std::string& name) const;
  MetricsText Metrics(const std::string& name) const { return MetricsText(MetricsBody(name)); }
  std::string Log(const std::string& name) const { return folder_.Read("logs/" + name + ".log"); }
  // Runs the command `freshet` against a controller, with the files of `client_tls` and the token.
  ChildResult Freshet(const std::vector<std::string>& args,
                      const std::string& controller = "controller") const {
    return RunFreshet(options_.client_tls, options_.token_file, controller, args);
  }
  // The same with other files, and without a token.
  ChildResult FreshetAs(const runtime::TlsFiles& tls, const std::vector<std::string>& args) const {
    return RunFreshet(tls, "", "controller", args);
  }

  absl::Status Submit(const std::string& id, const std::string& yaml, int32_t priority = 0);
  absl::StatusOr<job::v1::Job> Get(const std::string& id);
  // Texts of the events of this kind that the job has kept.
  std::vector<std::string> Notices(const std::string& id, const std::string& kind);
  // Looks until `holds`, often; false after `timeout`.
  static bool Await(const std::function<bool()>& holds, absl::Duration timeout = absl::Seconds(60));
  bool AwaitState(const std::string& id, job::v1::JobState state,
                  absl::Duration timeout = absl::Minutes(3));
  bool AwaitStep(const std::string& id, int64_t step, absl::Duration timeout = absl::Minutes(3));

  job::v1::JobService::Stub& jobs() { return *stub_; }
  RedisServer& redis() { return *redis_; }
  // All keys in Redis.
  std::vector<std::string> Keys();
  const ScratchFolder& folder() const { return folder_; }

 private:
  struct Process {
    std::unique_ptr<ChildProcess> child;
    std::string grpc;
    std::string http;
  };
  std::vector<std::string> Command(const std::string& name) const;
  ChildResult RunFreshet(const runtime::TlsFiles& tls, const std::string& token_file,
                         const std::string& controller, const std::vector<std::string>& args) const;
  absl::Status Await(const std::string& name, Process& process);

  const ClusterOptions options_;
  const ScratchFolder folder_;
  std::unique_ptr<RedisServer> redis_;
  std::map<std::string, Process> processes_;
  std::unique_ptr<job::v1::JobService::Stub> stub_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_CLUSTER_PROCESSES_H_
