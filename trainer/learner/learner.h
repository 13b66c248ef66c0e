#ifndef FRESHET_TRAINER_LEARNER_LEARNER_H_
#define FRESHET_TRAINER_LEARNER_LEARNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"
#include "trainer/checkpoint/checkpoint_contents.h"
#include "trainer/learner/loss_selection.h"
#include "trainer/loss/importance_ratio.h"

namespace freshet {

class WeightShards;

// A process that takes part in data-parallel training.
struct RankState {
  int rank = 0;
  std::string state;  // what it does, in words: "computes"
  int64_t step = 0;   // the last one it began; 0: none
  // The last collective operation that it started, such as "all-reduce of gradients"; "": none.
  std::string last_collective;
};

// Result of one training step. Means are over loss-bearing tokens unless noted.
struct TrainStepResult {
  double loss = 0;
  double grad_norm = 0;  // before clipping; mean over the step's minibatches
  double learning_rate = 0;
  double entropy = 0;      // nats
  double kl_behavior = 0;  // nats, k3 estimate, current versus behavior policy
  double kl_ref = 0;       // nats, versus the frozen reference; 0 without one
  double ratio_clip_fraction = 0;
  double importance_weight_mean = 1;
  // Current policy versus the one that sampled.
  double logprob_diff = 0;  // nats, mean absolute difference
  ImportanceRatios importance_ratios;
  LossSelection selection;
  int64_t duplicated_samples = 0;  // that count once more in place of one that was not asked
  int64_t tokens_trained = 0;
  double model_flops = 0;  // FLOPs needed by the model (model_flops.h); 0: unknown
  double optimizer_seconds = 0;
  double checkpoint_seconds = 0;  // the update waited until a snapshot was copied or written
  // For every sample, in the shape of the groups; empty if the learner has none.
  std::vector<std::vector<double>> advantages;
  std::vector<std::string> lost_ranks;  // why ranks were lost during the step
  int64_t ranks = 1;                    // that computed the last minibatch
};

// The model under training: turns batches into new weights. The trainer loop decides when to train,
// the learner how. Used only by the trainer loop's thread, except that the result of Snapshot() may
// be used on any thread.
class Learner {
 public:
  virtual ~Learner() = default;

  // Trains on exactly these groups, in this order. On error the weights must not be published.
  // FAILED_PRECONDITION if loss or gradient is not finite (the message says which) and the weights
  // are unchanged; ABORTED if it is so in a later minibatch of the step; UNAVAILABLE if
  // StateLost(). After this and other errors the weights may have changed. CANCELLED: Stop, while
  // the first minibatch waited for ranks; the weights are unchanged. ABORTED: likewise in a later
  // one.
  virtual absl::StatusOr<TrainStepResult> TrainStep(int64_t step,
                                                    const std::vector<TrainGroup>& groups) = 0;

  // The parameters as one flat arena to publish, valid until the next TrainStep or Arena. INTERNAL:
  // they cannot be copied from a GPU. UNAVAILABLE: StateLost().
  virtual absl::StatusOr<std::string_view> Arena() const = 0;

  // What each rank holds of the last Arena(), to publish it together; null: nothing.
  virtual std::shared_ptr<WeightShards> Shards() const = 0;

  // The learner's state for a checkpoint, which may be lent: TrainStep then waits, before it
  // changes the state, until the result has copied it or all holders have dropped the result.
  // UNAVAILABLE: StateLost().
  virtual absl::StatusOr<std::shared_ptr<const LearnerState>> Snapshot() const = 0;

  // All ranks, by number, if there are several. Thread-safe.
  virtual std::vector<RankState> Ranks() const = 0;
  // Whether a part of the state was lost with a rank. Then TrainStep, Arena and Snapshot return
  // UNAVAILABLE, and training goes on only from a checkpoint.
  virtual bool StateLost() const = 0;
  // Why ranks were lost during the last step, if that failed.
  virtual std::vector<std::string> LostRanks() const = 0;
  // Which ranks a step waits for, and what they do; "": it does not wait. Thread-safe.
  virtual std::string WaitsFor() const = 0;
  // The job stops: TrainStep waits for no missing ranks any more. Thread-safe.
  virtual void Stop() = 0;
};

// A learner of one process: it has no other ranks.
class SingleProcessLearner : public Learner {
 public:
  std::shared_ptr<WeightShards> Shards() const override { return nullptr; }
  std::vector<RankState> Ranks() const override { return {}; }
  bool StateLost() const override { return false; }
  std::vector<std::string> LostRanks() const override { return {}; }
  std::string WaitsFor() const override { return ""; }
  void Stop() override {}
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_LEARNER_H_
