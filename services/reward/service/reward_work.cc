#include "services/reward/service/reward_work.h"

#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/evaluation_store.h"
#include "datastore/retrying_trajectory_store.h"
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
  work->evaluates_ = assign.spec().has_eval();
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<CompositeScorer> scorer,
                           MakeCompositeScorer(assign.spec().reward(), context.remote));
  if (context.observers != nullptr) scorer->SetObserver(context.observers->Of(assign.job_id()));
  work->scorer_ = std::move(scorer);
  FRESHET_ASSIGN_OR_RETURN(work->backend_, context.open_store(assign.job_id()));
  RetryOptions retry;
  retry.first_backoff *= context.time_scale;
  retry.max_backoff *= context.time_scale;
  retry.on_outage = [](const absl::Status& status) {
    FRESHET_LOG(Warning) << "event=datastore_outage error=" << LogQuoted(Message(status));
  };
  work->store_ =
      std::make_unique<RetryingTrajectoryStore>(*work->backend_, SystemClock::Get(), retry);
  work->options_ = MakeRewardOptions(assign.spec());
  work->options_.job = assign.job_id();
  work->options_.lease_period = kLeasePeriod;
  work->options_.request_prefix = StrCat(assign.assignment_id(), "/");
  work->options_.first_retry *= context.time_scale;
  work->options_.longest_retry *= context.time_scale;
  work->SetWorker(worker);
  if (context.stats_by_job != nullptr) {
    work->on_board_ =
        context.stats_by_job->Begin(assign.job_id(), [raw = work.get()] { return raw->Stats(); });
  }
  return work;
}

RewardWork::~RewardWork() {
  if (on_board_.has_value()) context_.stats_by_job->End(*on_board_);
}

// Each name gets new RewardWorkers, because rows leased under a former name are lost.
absl::Status RewardWork::Run(std::stop_token stop) {
  const std::stop_callback wake(stop, [this] {
    store_->Close();
    backend_->evaluations().Close();
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
    const ResponseDecoder decode = [this](const std::vector<int32_t>& ids) {
      return tokenizer_->Decode(ids, /*skip_special=*/true);
    };
    RewardWorker worker(*store_, *scorer_, decode, options);
    RewardWorker evaluator(backend_->evaluations(), *scorer_, decode, options);
    {
      MutexLock lock(mu_);
      running_ = &worker;
      evaluating_ = &evaluator;
      running_name_ = options.worker;
    }
    std::jthread evaluation_thread;
    if (evaluates_) evaluation_thread = std::jthread([&] { evaluator.Run(turn); });
    worker.Run(turn);
    if (evaluates_) evaluation_thread.join();
    MutexLock lock(mu_);
    running_ = evaluating_ = nullptr;
    past_.Add(StatsOf(worker));
    past_.Add(StatsOf(evaluator));
  }
  return absl::OkStatus();
}

RewardStats RewardWork::Stats() const {
  MutexLock lock(mu_);
  RewardStats stats = past_;
  for (const RewardWorker* worker : {running_, evaluating_}) {
    if (worker != nullptr) stats.Add(StatsOf(*worker));
  }
  const int64_t workers = evaluates_ ? 2 : 1;
  stats.parallel = workers * options_.parallel;
  stats.max_in_hand = workers * options_.max_in_hand;
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
  for (const RewardWorker* worker : {running_, evaluating_}) {
    if (worker != nullptr && status.waits_for().empty()) status.set_waits_for(worker->WaitsFor());
  }
}

void RewardWork::FillLoad(cluster::v1::WorkerStatus& status) const {
  MutexLock lock(mu_);
  if (running_ != nullptr && running_->counters().fenced) {
    status.set_refused_worker(running_name_);
  }
}

}  // namespace freshet
