#ifndef FRESHET_ENV_WORKERS_ENV_ROLE_H_
#define FRESHET_ENV_WORKERS_ENV_ROLE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "env_workers/service.h"
#include "services/runtime/serve.h"
#include "services/worker/worker_agent.h"

namespace freshet {

// An environment worker: serves episodes, and registers with a controller if there is one. It gets
// no assignments; the controller tells rollouts its address. Draining refuses new episodes and
// waits for running ones.
class EnvRole final : public runtime::Role,
                      private runtime::StatusSource,
                      private runtime::DirectiveSink {
 public:
  // `service` must outlive the role. Without `agent` it runs standalone.
  EnvRole(EnvService& service, std::optional<runtime::WorkerAgentOptions> agent,
          runtime::LogRing* log)
      : service_(service), agent_options_(std::move(agent)), log_(log) {}
  ~EnvRole() override { Stop(); }

  std::vector<grpc::Service*> Services() override { return {&service_}; }
  absl::Status Start(const runtime::RoleContext& context) override;
  absl::Status Drain(absl::Time deadline) override;
  void Stop() override;

 private:
  void FillStatus(cluster::v1::WorkerStatus& status) override;
  std::vector<std::string> AssignmentIds() override { return {}; }
  void OnEpoch(const std::string& worker) override;
  void OnDirective(const cluster::v1::Directive& directive) override;
  void OnFenced(const std::string& reason) override;

  EnvService& service_;
  std::optional<runtime::WorkerAgentOptions> agent_options_;
  runtime::LogRing* const log_;
  runtime::RoleContext context_;
  std::unique_ptr<runtime::WorkerAgent> agent_;
  Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_ENV_ROLE_H_
