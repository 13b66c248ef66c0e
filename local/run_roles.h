#ifndef FRESHET_LOCAL_RUN_ROLES_H_
#define FRESHET_LOCAL_RUN_ROLES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "dataset/prompt_feeder.h"
#include "datastore/memory/in_memory_trajectory_store.h"
#include "local/job_setup.h"
#include "local/local_agent.h"
#include "local/local_run_options.h"
#include "local/metrics_server.h"
#include "local/run_evaluations.h"
#include "local/run_folder.h"
#include "local/run_recorder.h"
#include "rollout/engine/native_engine.h"
#include "rollout/environment/environment_client.h"
#include "rollout/worker/episode_runner.h"
#include "rollout/worker/rollout_worker.h"
#include "runlog/display.h"
#include "services/reward/worker/reward_worker.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/loop/trainer_loop.h"
#include "weights/weight_publisher.h"
#include "weights/weight_subscriber.h"

namespace freshet {

// What the roles of a local run are made from; all must outlive them.
struct RunContext {
  const JobSetup& setup;
  const RunFolder& folder;
  Display& display;
  const Clock& clock;
  FaultPoints& faults;
  const LocalRunOptions& options;
  std::function<bool()> stopping;  // whether the run was asked to stop; thread-safe
};

// The roles of a local run, in the order of creation; destroyed in reverse.
struct RunRoles {
  absl::Time start;
  int64_t ledger_seq = 0;  // last row in the folder's ledger before the recorder opens it
  std::shared_ptr<PolicyLearner> learner;  // null in a job of kind generate
  std::shared_ptr<Learner> trained;        // `learner`, or it and other ranks; or a FrozenLearner
  std::vector<WeightEntry> entries;
  std::unique_ptr<InMemoryTrajectoryStore> store;
  std::shared_ptr<WeightSubscriber> subscriber = std::make_shared<WeightSubscriber>();
  std::unique_ptr<NativeEngine> engine;
  std::unique_ptr<EnvironmentClient> environments;  // only if samples are episodes with one
  std::unique_ptr<EpisodeRunner> episodes;
  std::unique_ptr<LocalAgent> agent;  // only if samples are episodes of an agent
  std::unique_ptr<RolloutWorker> rollout;
  // Of the rollouts, and of the evaluations if there are any.
  std::vector<std::unique_ptr<RewardWorker>> reward_workers;
  std::unique_ptr<PromptFeeder> feeder;
  std::unique_ptr<MetricsServer> metrics;
  std::unique_ptr<RunRecorder> recorder;
  std::unique_ptr<RunEvaluations> evaluations;  // only if the job evaluates
  std::unique_ptr<WeightPublisher> publisher;
  std::unique_ptr<TrainerLoop> trainer;
};

// Creates the store, with its first row in the folder's ledger, and the learner with its initial
// weights: from the checkpoint, or from the model followed by the warm-up. OK if `stopping` ended
// the warm-up.
absl::Status LoadLearner(const RunContext& run, RunRoles& roles);
// Creates the other roles, and starts the first epoch. `roles` must not move afterwards.
absl::Status MakeRoles(const RunContext& run, RunRoles& roles);

}  // namespace freshet

#endif  // FRESHET_LOCAL_RUN_ROLES_H_
