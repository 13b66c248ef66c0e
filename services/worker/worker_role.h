#ifndef FRESHET_SERVICES_WORKER_WORKER_ROLE_H_
#define FRESHET_SERVICES_WORKER_WORKER_ROLE_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "services/runtime/serve.h"
#include "services/worker/worker_agent.h"

namespace freshet::runtime {

// One job's work on a worker.
class JobWork {
 public:
  virtual ~JobWork() = default;

  // Runs until the job is done or `stop` is requested, then returns unfinished leases. Called once,
  // on its own thread; all other methods may be called meanwhile and must be quick. UNAVAILABLE,
  // ABORTED and FAILED_PRECONDITION mean that the work may succeed when restarted.
  virtual absl::Status Run(std::stop_token stop) = 0;

  // Fills waits_for and policy, and the state if it is not RUNNING.
  virtual void FillStatus(cluster::v1::AssignmentStatus& status) const = 0;
  // Adds its part of the worker's load.
  virtual void FillLoad(cluster::v1::WorkerStatus&) const {}

  // Sets the name in leases, "NAME#EPOCH". Leases under a former name are lost.
  virtual void SetWorker(const std::string&) {}
  virtual void SetPaused(bool) {}
  virtual void SetMembers(const cluster::v1::Members&) {}
  virtual void Evaluate(const cluster::v1::Evaluate&) {}
  virtual void SaveCheckpoint() {}
};

// Creates the work of an assignment. May take long (it may load a model); called on the work's
// thread. `worker` is the name in leases; `controller` outlives the work.
using JobWorkFactory = std::function<absl::StatusOr<std::unique_ptr<JobWork>>(
    const cluster::v1::Assign& assign, const std::string& worker, ControllerCalls& controller,
    std::stop_token stop)>;

struct WorkerRoleOptions {
  // identity.address and http_address are set at the start. Without it the worker runs standalone.
  std::optional<WorkerAgentOptions> agent;
  // A worker that runs one job at a time drops its current assignment for a new one.
  bool exclusive = true;
  // For calls that the worker serves besides its assignments: adds them to its status, and, until
  // the deadline, lets them finish without accepting new ones.
  std::function<void(cluster::v1::WorkerStatus&)> fill_load = nullptr;
  std::function<void(absl::Time deadline)> drain_calls = nullptr;
};

// Common part of all workers: joins the cluster, runs a JobWork per assignment, reports status,
// drains. Thread-safe.
class WorkerRole : public Role, private StatusSource, private DirectiveSink {
 public:
  // `services` are registered with the server and must outlive the role. Without `factory`,
  // assignments are ignored. `log` may be null.
  WorkerRole(WorkerRoleOptions options, JobWorkFactory factory,
             std::vector<grpc::Service*> services, LogRing* log);
  ~WorkerRole() override;

  std::vector<grpc::Service*> Services() override { return services_; }
  absl::Status Start(const RoleContext& context) override;
  absl::Status Drain(absl::Time deadline) override;
  void Stop() override;

 private:
  struct Assignment;

  void FillStatus(cluster::v1::WorkerStatus& status) override;
  std::vector<std::string> AssignmentIds() override;
  void OnEpoch(const std::string& worker) override;
  void OnDirective(const cluster::v1::Directive& directive) override;
  void OnFenced(const std::string& reason) override;

  void OnAssign(const cluster::v1::Assign& assign);
  void RunAssignment(const std::shared_ptr<Assignment>& assignment, std::stop_token stop);
  // Stops one assignment and waits until its work has ended.
  void End(const std::string& assignment_id);
  std::vector<std::shared_ptr<Assignment>> All();
  // Null if there is none with this id.
  std::shared_ptr<Assignment> Find(const std::string& assignment_id);
  // Calls `fn` with the work of an assignment, if it has one.
  void WithWork(const std::string& assignment_id, const std::function<void(JobWork&)>& fn);

  const WorkerRoleOptions options_;
  const JobWorkFactory factory_;
  const std::vector<grpc::Service*> services_;
  LogRing* const log_;
  RoleContext context_;
  std::unique_ptr<WorkerAgent> agent_;

  Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::string worker_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Assignment>> assignments_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_WORKER_ROLE_H_
