#include "services/reward/service/reward_work.h"

#include <utility>
#include <vector>

#include "model/bundle_proto.h"
#include "services/base/status_macros.h"
#include "services/reward/reward_setup.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<runtime::JobWork>> RewardWork::Create(
    const cluster::v1::Assign& assign, const std::string& worker, const StoreOpener& open_store,
    const RemoteScorerFactory& remote) {
  std::unique_ptr<RewardWork> work(new RewardWork());
  FRESHET_ASSIGN_OR_RETURN(ModelSetup model,
                           OpenModelBundle(assign.spec(), FromProto(assign.model())));
  work->tokenizer_ = std::move(model.tokenizer);
  FRESHET_ASSIGN_OR_RETURN(work->scorer_, MakeJobScorer(assign.spec(), remote));
  FRESHET_ASSIGN_OR_RETURN(work->store_, open_store(assign.job_id()));
  work->options_ = MakeRewardOptions(assign.spec());
  work->SetWorker(worker);
  return work;
}

// One RewardWorker per name: rows leased under a former name are gone.
absl::Status RewardWork::Run(std::stop_token stop) {
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(mu_);
    renamed_.request_stop();
  });
  while (!stop.stop_requested()) {
    RewardWorkerOptions options = options_;
    std::stop_token turn;
    {
      MutexLock lock(mu_);
      options.worker = worker_;
      turn = renamed_.get_token();
    }
    RewardWorker worker(
        *store_, *scorer_,
        [this](const std::vector<int32_t>& ids) {
          return tokenizer_->Decode(ids, /*skip_special=*/true);
        },
        options);
    worker.Run(turn);
  }
  return absl::OkStatus();
}

void RewardWork::SetWorker(const std::string& worker) {
  MutexLock lock(mu_);
  worker_ = worker;
  renamed_.request_stop();
  renamed_ = std::stop_source();
}

void RewardWork::FillStatus(cluster::v1::AssignmentStatus&) const {}

}  // namespace freshet
