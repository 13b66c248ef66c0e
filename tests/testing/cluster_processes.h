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
  // Run the real rollout and trainer processes with simulated engines and models.
  bool simulated = true;
  // Scales all periods and deadlines of the controller. At 0.1, stalls are detected within 1 s
  // instead of 10 s, but a worker that is not scheduled for 0.2 s is declared lost.
  double time_scale = 1;
  // Additional redis.conf directives.
  std::map<std::string, std::string> redis;
  // Mutual TLS files of the members (`tls`) and of the command and the test (`client_tls`). Empty
  // paths mean plaintext.
  runtime::TlsFiles tls;
  runtime::TlsFiles client_tls;
  // File whose first line is the token of the command and the test; "": no token.
  std::string token_file;
  // Additional flags per role; may be empty.
  std::function<std::vector<std::string>(const std::string& role)> flags;
};

// A redis-server, a controller and workers as separate processes on their own ports and in their
// own folder. All are killed when this object or the test process ends. Confined to one thread.
class ClusterProcesses {
 public:
  explicit ClusterProcesses(ClusterOptions options = {}) : options_(std::move(options)) {}
  ~ClusterProcesses();

  // Starts Redis, the controller and `workers`, and waits until all are ready. Worker names:
  // "ROLE-ANYTHING" or "rollout.POOL-ANYTHING".
  absl::Status Start(const std::vector<std::string>& workers);
  // Starts a worker, or restarts an ended process. A restarted controller keeps its address.
  absl::Status Launch(const std::string& name);
  void Signal(const std::string& name, int signal);
  // Sends SIGKILL and waits for the exit.
  void Kill(const std::string& name);
  // Sends SIGTERM, as `freshet scale` does, and waits for the drain.
  absl::Status Drain(const std::string& name);

  // Response body of GET /metrics.
  std::string MetricsBody(const std::string& name) const;
  MetricsText Metrics(const std::string& name) const { return MetricsText(MetricsBody(name)); }
  std::string Log(const std::string& name) const { return folder_.Read("logs/" + name + ".log"); }
  // Runs `freshet` against a controller with `client_tls` and the token.
  ChildResult Freshet(const std::vector<std::string>& args,
                      const std::string& controller = "controller") const {
    return RunFreshet(options_.client_tls, options_.token_file, controller, args);
  }
  // Runs `freshet` with `tls` and no token.
  ChildResult FreshetAs(const runtime::TlsFiles& tls, const std::vector<std::string>& args) const {
    return RunFreshet(tls, "", "controller", args);
  }

  absl::Status Submit(const std::string& id, const std::string& yaml, int32_t priority = 0);
  absl::StatusOr<job::v1::Job> Get(const std::string& id);
  // Texts of the job's retained events of this kind.
  std::vector<std::string> Notices(const std::string& id, const std::string& kind);
  // Polls until `holds`. Returns false after `timeout`.
  static bool Await(const std::function<bool()>& holds, absl::Duration timeout = absl::Seconds(60));
  bool AwaitState(const std::string& id, job::v1::JobState state,
                  absl::Duration timeout = absl::Minutes(3));
  bool AwaitStep(const std::string& id, int64_t step, absl::Duration timeout = absl::Minutes(3));

  job::v1::JobService::Stub& jobs() { return *stub_; }
  RedisServer& redis() { return *redis_; }
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
