#ifndef FRESHET_SERVICES_REWARD_SERVICE_REWARD_WORK_H_
#define FRESHET_SERVICES_REWARD_SERVICE_REWARD_WORK_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "model/model_setup.h"
#include "services/base/mutex.h"
#include "services/reward/composite_scorer.h"
#include "services/reward/reward_worker.h"
#include "services/reward/scorer_factory.h"
#include "services/runtime/worker_role.h"

namespace freshet {

// Opens the trajectory store of a job by its id.
using StoreOpener =
    std::function<absl::StatusOr<std::unique_ptr<TrajectoryStore>>(const std::string& job)>;

// Scores the rows of one job until it is stopped; `remote` makes scorers of type grpc.
class RewardWork final : public runtime::JobWork {
 public:
  static absl::StatusOr<std::unique_ptr<runtime::JobWork>> Create(
      const cluster::v1::Assign& assign, const std::string& worker, const StoreOpener& open_store,
      const RemoteScorerFactory& remote);

  absl::Status Run(std::stop_token stop) override;
  void FillStatus(cluster::v1::AssignmentStatus& status) const override;
  void SetWorker(const std::string& worker) override;

 private:
  RewardWork() = default;

  std::unique_ptr<TrajectoryStore> store_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<CompositeScorer> scorer_;
  RewardWorkerOptions options_;

  Mutex mu_;
  std::string worker_ ABSL_GUARDED_BY(mu_);
  std::stop_source renamed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_REWARD_WORK_H_
