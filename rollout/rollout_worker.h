#ifndef FRESHET_ROLLOUT_ROLLOUT_WORKER_H_
#define FRESHET_ROLLOUT_ROLLOUT_WORKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "datastore/trajectory_store.h"
#include "rollout/inference_engine.h"
#include "services/base/clock.h"
#include "services/base/mutex.h"
#include "weights/weight_subscriber.h"

namespace freshet {

// An evaluation to run beside the rollouts: every prompt once, all at one pinned version.
struct EvaluationRun {
  WeightSnapshot weights;
  std::vector<std::vector<int32_t>> prompts;
  SamplingParams sampling;
  uint64_t seed = 0;
  // Called on the worker's thread with the responses, one per prompt, when all are there; or with
  // an error when the run had to be given up.
  std::function<void(absl::StatusOr<std::vector<Response>>)> done;
};

struct RolloutOptions {
  std::string worker = "rollout-0";
  SamplingParams sampling;
  uint64_t seed = 0;
  int64_t group_size = 1;         // samples per prompt: the size of a fresh lease
  int64_t max_prompt_tokens = 0;  // longest prompt of the job, to know what the engine can take
  absl::Duration lease_ttl = absl::Seconds(30);
  absl::Duration idle_wait = absl::Milliseconds(2);  // longest sleep without work: bounds how late
                                                     // newly activated weights are noticed
};

struct RolloutCounters {
  double idle_seconds = 0;  // nothing to generate
  double swap_seconds = 0;  // loading new weights between two batches
  int64_t tokens_generated = 0;
  int64_t samples_finished = 0;
  int64_t samples_fenced = 0;  // finished for a lease that was lost
  int64_t leases_cancelled = 0;
  int64_t weight_swaps = 0;
  std::string last_wait_reason;  // why no lease came, the last time
};

// Drives one engine: swaps weights at token boundaries, leases prompt groups through the store's
// admission gate, generates, and puts finished samples. Never waits for the trainer: it stops only
// when the gate gives no lease. On stop it hands back what is unfinished, tokens included.
// Run() is confined to one thread; the other methods are thread-safe.
class RolloutWorker {
 public:
  RolloutWorker(TrajectoryStore& store, InferenceEngine& engine,
                std::shared_ptr<WeightSubscriber> weights, const Clock& clock,
                RolloutOptions options);

  // Works until `stop`, then returns all leases. An engine or store failure that cannot be retried
  // ends it with that status.
  absl::Status Run(std::stop_token stop);

  // Queues an evaluation; false when one is queued or running (the caller counts it as skipped).
  bool StartEvaluation(EvaluationRun run);
  bool EvaluationBusy() const;

  RolloutCounters counters() const;

 private:
  struct Running {
    int64_t token = 0;
    std::map<int32_t, bool> open;  // sample indices still to come
  };
  struct ActiveEvaluation {
    EvaluationRun run;
    size_t submitted = 0;
    size_t finished = 0;
    std::vector<Response> responses;
  };

  absl::Status Turn();
  absl::Status SwapWeights();
  absl::Status LeaseMore();
  absl::Status SubmitLease(GroupLease lease);
  absl::Status RenewLeases();
  absl::Status Deliver(std::vector<GenerationOutput> outputs);
  absl::Status DeliverSample(GenerationOutput output);
  void AdvanceEvaluation();
  void FinishEvaluation(absl::Status status);
  void ReturnAll();
  void Idle();
  int64_t GroupsThatFit() const;

  TrajectoryStore& store_;
  InferenceEngine& engine_;
  const std::shared_ptr<WeightSubscriber> weights_;
  const Clock& clock_;
  const RolloutOptions options_;

  // Owned by the thread of Run().
  std::map<int64_t, Running> running_;  // by request id, which is the lease's ordinal
  absl::Time next_renewal_;
  int64_t next_request_ = 0;
  uint64_t admission_seen_ = 0;
  bool gate_closed_ = false;
  std::optional<ActiveEvaluation> evaluation_;

  mutable Mutex mu_;
  std::optional<EvaluationRun> queued_evaluation_ ABSL_GUARDED_BY(mu_);
  bool evaluating_ ABSL_GUARDED_BY(mu_) = false;
  RolloutCounters counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ROLLOUT_WORKER_H_
