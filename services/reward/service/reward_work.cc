#include "services/reward/service/reward_work.h"

#include <thread>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/evaluation_store.h"
#include "model/bundle_proto.h"
#include "services/reward/worker/reward_setup.h"

namespace freshet {
namespace {

// Each lease and each put is a durable round trip to Redis. This delay batches rows that finish one
// by one, of which there may be hundreds per second.
constexpr absl::Duration kLeasePeriod = absl::Milliseconds(10);

RewardStats StatsOf(const RewardWorker& worker) {
  const RewardCounters counters = worker.counters();
  return {counters.lost, counters.store_errors, /*parallel=*/0, counters.unsent};
}

}  // namespace

absl::StatusOr<std::unique_ptr<runtime::JobWork>> RewardWork::Create(
    const cluster::v1::Assign& assign, const std::string& worker, const RewardContext& context) {
  std::unique_ptr<RewardWork> work(new RewardWork(context));
  FRESHET_ASSIGN_OR_RETURN(ModelSetup model,
                           OpenModelBundle(assign.spec(), FromProto(assign.model())));
  work->tokenizer_ = std::move(model.tokenizer);
  FRESHET_ASSIGN_OR_RETURN(work->scorer_,
                           MakeCompositeScorer(assign.spec().reward(), context.services));
  work->scorer_->SetObserver(context.observers->Of(assign.job_id()));
  FRESHET_ASSIGN_OR_RETURN(work->store_, context.open_store(assign.job_id()));
  work->queues_.push_back(work->store_.get());
  if (assign.spec().has_eval()) work->queues_.push_back(&work->store_->evaluations());
  work->options_ = MakeRewardOptions(assign.spec());
  work->options_.job = assign.job_id();
  work->options_.calls = &work->store_->calls();
  work->options_.lease_period = kLeasePeriod;
  work->options_.request_prefix = StrCat(assign.assignment_id(), "/");
  work->options_.first_retry *= context.time_scale;
  work->options_.longest_retry *= context.time_scale;
  work->SetWorker(worker);
  work->stats_id_ =
      context.stats_by_job->Begin(assign.job_id(), [raw = work.get()] { return raw->Stats(); });
  return work;
}

RewardWork::~RewardWork() { context_.stats_by_job->End(stats_id_); }

// Each name gets new RewardWorkers, because rows leased under a former name are lost.
absl::Status RewardWork::Run(std::stop_token stop) {
  const std::stop_callback wake(stop, [this] {
    for (RowQueue* queue : queues_) queue->Close();
    MutexLock lock(mu_);
    renamed_.request_stop();
  });
  const ResponseDecoder decode = [this](const std::vector<int32_t>& ids) {
    return tokenizer_->Decode(ids, /*skip_special=*/true);
  };
  while (!stop.stop_requested()) {
    std::vector<std::shared_ptr<RewardWorker>> workers;
    std::stop_token turn;
    {
      MutexLock lock(mu_);
      RewardWorkerOptions options = options_;
      options.worker = running_name_ = worker_;
      for (RowQueue* queue : queues_) {
        workers.push_back(std::make_shared<RewardWorker>(*queue, *scorer_, decode, options));
      }
      running_ = workers;
      turn = renamed_.get_token();
    }
    {
      std::vector<std::jthread> threads;
      for (const auto& worker : workers) {
        threads.emplace_back([&worker, turn] { worker->Run(turn); });
      }
    }
    MutexLock lock(mu_);
    for (const auto& worker : workers) past_.Add(StatsOf(*worker));
    running_.clear();
  }
  return absl::OkStatus();
}

RewardStats RewardWork::Stats() const {
  MutexLock lock(mu_);
  RewardStats stats = past_;
  for (const auto& worker : running_) stats.Add(StatsOf(*worker));
  stats.parallel = std::ssize(queues_) * options_.parallel;
  stats.max_in_hand = std::ssize(queues_) * options_.max_in_hand;
  return stats;
}

void RewardWork::SetWorker(const std::string& worker) {
  MutexLock lock(mu_);
  if (worker == worker_) return;  // a new session under the same epoch: nothing is lost
  worker_ = worker;
  renamed_.request_stop();
  renamed_ = std::stop_source();
}

void RewardWork::FillStatus(cluster::v1::AssignmentStatus& status) const {
  MutexLock lock(mu_);
  for (const auto& worker : running_) {
    if (status.waits_for().empty()) status.set_waits_for(worker->WaitsFor());
  }
}

void RewardWork::FillLoad(cluster::v1::WorkerStatus& status) const {
  MutexLock lock(mu_);
  if (!running_.empty() && running_.front()->counters().fenced) {
    status.set_refused_worker(running_name_);
  }
}

}  // namespace freshet
