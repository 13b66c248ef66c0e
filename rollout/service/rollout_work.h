#ifndef FRESHET_ROLLOUT_SERVICE_ROLLOUT_WORK_H_
#define FRESHET_ROLLOUT_SERVICE_ROLLOUT_WORK_H_

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/log_gate.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "model/model_setup.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/environment/agent_client.h"
#include "rollout/environment/environment_client.h"
#include "rollout/grpc/grpc_rollout_service.h"
#include "rollout/openai/endpoint_port.h"
#include "rollout/openai/rollout_endpoint.h"
#include "rollout/service/pull_timer.h"
#include "rollout/service/rollout_stats.h"
#include "rollout/worker/episode_runner.h"
#include "rollout/worker/rollout_worker.h"
#include "services/worker/worker_role.h"
#include "weights/weight_member.h"
#include "weights/weight_subscriber.h"

namespace freshet {

using EngineFactory = std::function<absl::StatusOr<std::unique_ptr<InferenceEngine>>(
    const job::v1::JobSpec& spec, const ModelConfig& model)>;

// Environments of a job whose workers' addresses may change.
class EnvironmentPool {
 public:
  virtual ~EnvironmentPool() = default;
  virtual EnvironmentClient& client() = 0;
  virtual void SetAddresses(std::vector<std::string> addresses) = 0;
};

// The engine's side of a job's weight plane.
class RolloutWeightPlane {
 public:
  virtual ~RolloutWeightPlane() = default;
  // `device`: where the engine computes, as in OpenDevice; "cpu" if it takes the host's bytes.
  virtual void Serve(const std::string& job, const std::string& transport,
                     const std::string& device, std::shared_ptr<WeightSubscriber> subscriber) = 0;
  virtual void Forget(const std::string& job) = 0;
  // Pulls the newest version, at least `at_least`, from a member; see PullWeights. `timeout`: per
  // member.
  virtual absl::Status Pull(const std::string& job, const PolicyVersion& at_least,
                            const std::vector<WeightMember>& engines,
                            const std::optional<WeightMember>& trainer,
                            const std::shared_ptr<WeightSubscriber>& subscriber,
                            absl::Duration timeout, std::stop_token stop) = 0;
};

// Dependencies of a rollout process's works; all must outlive them.
struct RolloutContext {
  StoreOpener open_store;
  EngineFactory make_engine;
  RolloutWeightPlane* weights = nullptr;
  // Returns null if the job's environment is not available here.
  std::function<absl::StatusOr<std::unique_ptr<EnvironmentPool>>(const job::v1::JobSpec&)>
      open_environments;
  GrpcRolloutService* calls = nullptr;
  openai::EndpointPort* port = nullptr;  // null: the process has no OpenAI endpoint
  const Clock* clock = nullptr;
  RolloutStatsByJob* stats_by_job = nullptr;  // receives the works' stats
  // How long an engine without weights waits for a publication before it pulls, and between pulls.
  absl::Duration pull_after = absl::Seconds(1);
  double time_scale = 1.0;  // of the delays between tries
};

// Generates for one job until it is stopped.
class RolloutWork final : public runtime::JobWork {
 public:
  static absl::StatusOr<std::unique_ptr<runtime::JobWork>> Create(
      const cluster::v1::Assign& assign, const std::string& worker,
      runtime::ControllerCalls& controller, const RolloutContext& context);
  ~RolloutWork() override;

  absl::Status Run(std::stop_token stop) override;
  void FillStatus(cluster::v1::AssignmentStatus& status) const override;
  void FillLoad(cluster::v1::WorkerStatus& status) const override;
  void SetWorker(const std::string& worker) override;
  void SetPaused(bool paused) override;
  void SetMembers(const cluster::v1::Members& members) override;
  void Evaluate(const cluster::v1::Evaluate& evaluate) override;

 private:
  RolloutWork(runtime::ControllerCalls& controller, const RolloutContext& context)
      : controller_(controller), context_(context) {}

  void OpenEndpoint();
  // Creates what plays the job's episodes, if its samples are episodes.
  absl::Status OpenEpisodes();
  // Lets calls of others in, and keeps them out.
  void Attach();
  void Detach();
  // Runs on a second thread next to the engine's: pulls missing weights and starts evaluations.
  void RunBackground(std::stop_token stop);
  // The trainer's limit for a publication, or more: counts fp32 weights.
  absl::Duration PublicationTimeout() const;
  void PullWhenDue(PullTimer& timer, const std::stop_token& stop);
  void StartEvaluation(const cluster::v1::Evaluate& evaluate);
  // Errors: why the evaluation cannot start; StartEvaluation abandons it with that reason.
  absl::Status TryStartEvaluation(const cluster::v1::Evaluate& evaluate);
  RolloutStats Stats() const;

  runtime::ControllerCalls& controller_;
  const RolloutContext& context_;
  int64_t stats_id_ = 0;  // in stats_by_job; 0: none yet
  std::string job_;
  job::v1::JobSpec spec_;
  ModelSetup model_;  // without its tokenizer
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<WeightSubscriber> subscriber_;
  std::unique_ptr<TrajectoryStore> store_;
  std::unique_ptr<InferenceEngine> engine_;
  std::unique_ptr<EnvironmentPool> environments_;
  std::unique_ptr<openai::RolloutEndpoint> endpoint_;
  RolloutTarget target_;
  std::unique_ptr<AgentClient> agent_;  // only of a job with an agent
  std::unique_ptr<Episodes> episodes_;  // null: samples are no episodes
  std::unique_ptr<RolloutWorker> worker_;
  LogGate pull_log_;  // used by the RunBackground thread

  mutable Mutex mu_;
  CondVar wake_;
  cluster::v1::Members members_ ABSL_GUARDED_BY(mu_);
  // The last pull, if it failed and the version is still missing.
  struct FailedPull {
    PolicyVersion at_least;
    std::string error;
  };
  std::optional<FailedPull> failed_pull_ ABSL_GUARDED_BY(mu_);
  std::optional<cluster::v1::Evaluate> evaluate_ ABSL_GUARDED_BY(mu_);  // to start
  // For rates in FillLoad.
  mutable absl::Time last_load_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  mutable int64_t last_tokens_ ABSL_GUARDED_BY(mu_) = 0;
  mutable double last_idle_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ROLLOUT_WORK_H_
