#ifndef FRESHET_SERVICES_REWARD_SERVICE_REWARD_WORK_H_
#define FRESHET_SERVICES_REWARD_SERVICE_REWARD_WORK_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "model/model_setup.h"
#include "services/reward/scorers/composite_scorer.h"
#include "services/reward/scorers/score_observer.h"
#include "services/reward/scorers/scorer_factory.h"
#include "services/reward/worker/reward_worker.h"
#include "services/runtime/stats_by_job.h"
#include "services/worker/worker_role.h"

namespace freshet {

struct RewardStats {
  int64_t lost = 0;
  int64_t store_errors = 0;
  int64_t parallel = 0;     // rows that may be scored concurrently
  int64_t unsent = 0;       // scores not yet stored
  int64_t max_in_hand = 0;  // limit on unsent scores plus rows being scored

  void Add(const RewardStats& other) {
    lost += other.lost;
    store_errors += other.store_errors;
    parallel += other.parallel;
    unsent += other.unsent;
    max_in_hand += other.max_in_hand;
  }
  void ClearGauges() { parallel = unsent = max_in_hand = 0; }
};
using RewardStatsByJob = metrics::StatsByJob<RewardStats>;

// Dependencies of a reward process's works; all must outlive them.
struct RewardContext {
  StoreOpener open_store;
  ServiceScorers services;
  ScoreObservers* observers = nullptr;
  RewardStatsByJob* stats_by_job = nullptr;
  double time_scale = 1.0;  // of the waits while the datastore is unreachable
};

// Scores the rows of one job, and of its evaluations, until it is stopped.
class RewardWork final : public runtime::JobWork {
 public:
  static absl::StatusOr<std::unique_ptr<runtime::JobWork>> Create(const cluster::v1::Assign& assign,
                                                                  const std::string& worker,
                                                                  const RewardContext& context);
  ~RewardWork() override;

  absl::Status Run(std::stop_token stop) override;
  void FillStatus(cluster::v1::AssignmentStatus& status) const override;
  void FillLoad(cluster::v1::WorkerStatus& status) const override;
  void SetWorker(const std::string& worker) override;

 private:
  explicit RewardWork(const RewardContext& context) : context_(context) {}
  RewardStats Stats() const;

  const RewardContext& context_;
  std::unique_ptr<TrajectoryStore> store_;
  // Of the rollouts, and of the evaluations if the job has any. Each has its own RewardWorker.
  std::vector<RowQueue*> queues_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<CompositeScorer> scorer_;
  int64_t stats_id_ = 0;  // in stats_by_job; 0: none yet
  RewardWorkerOptions options_;

  mutable Mutex mu_;
  std::string worker_ ABSL_GUARDED_BY(mu_);
  std::stop_source renamed_ ABSL_GUARDED_BY(mu_);
  // One per queue, under `running_name_`.
  std::vector<std::shared_ptr<RewardWorker>> running_ ABSL_GUARDED_BY(mu_);
  std::string running_name_ ABSL_GUARDED_BY(mu_);
  RewardStats past_ ABSL_GUARDED_BY(mu_);  // under former names
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_REWARD_WORK_H_
