#ifndef FRESHET_ROLLOUT_WORKER_ROLLOUT_WORKER_H_
#define FRESHET_ROLLOUT_WORKER_ROLLOUT_WORKER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/worker/episode_runner.h"
#include "weights/weight_subscriber.h"

namespace freshet {

// For each prompt of an evaluation: its response, or why it has none.
using EvaluationAnswers = std::vector<absl::StatusOr<Response>>;

// An evaluation to run beside the rollouts: every prompt once, all at one pinned version.
struct EvaluationRun {
  WeightSnapshot weights;
  std::vector<std::vector<int32_t>> prompts;
  // Fields of the prompts' rows, for the environment; empty without one.
  std::vector<std::map<std::string, std::string>> attributes = {};
  SamplingParams sampling;
  uint64_t seed = 0;
  // Called once on the worker's thread with the answers, one per prompt, when all are there; or
  // with an error when the run had to be given up. The worker takes the next evaluation by then. A
  // prompt that fails is tried three times, unless no retry helps (INVALID_ARGUMENT). A failure of
  // the engine counts only if it had nothing but that prompt.
  std::function<void(absl::StatusOr<EvaluationAnswers>)> done;
};

struct RolloutOptions {
  std::string worker = "rollout-0";
  // Begins the ids of its lease requests. Unique among all workers that ever have this name: a
  // repeated id gets the former answer again.
  std::string request_prefix;
  SamplingParams sampling;
  uint64_t seed = 0;
  int64_t group_size = 1;         // samples per prompt: the size of a fresh lease
  int64_t max_prompt_tokens = 0;  // longest prompt of the job, to know what the engine can take
  absl::Duration lease_ttl = absl::Seconds(30);
  absl::Duration idle_wait = absl::Milliseconds(2);  // longest sleep without work: bounds how late
                                                     // newly activated weights are noticed
  // Longest time that a finished sample waits for others of its engine, to be put with them. One
  // that completes what the engine has of its group goes at once, with all that wait.
  absl::Duration put_period;
  // While the store cannot be reached: finished samples that are kept, beyond which generation
  // stops, and the pause between two tries, which doubles.
  int64_t max_unsent_samples = 4096;
  absl::Duration store_retry_delay = absl::Milliseconds(50);
  absl::Duration max_store_retry_delay = absl::Seconds(2);
  // Pause of leasing after a group was handed back because its environment failed, and longest
  // pause after failures of the engine.
  absl::Duration environment_pause = absl::Seconds(1);
  // Failures of the engine in a row, without a finished generation in between, that end the worker:
  // whoever runs it makes a new engine. By default nobody does, and whatever the engine fails on
  // alone is to blame.
  int most_engine_failures = std::numeric_limits<int>::max();
  double trace_ratio = 0;  // share of the samples whose lives are logged
};

struct RolloutCounters {
  double idle_seconds = 0;  // nothing to generate
  double swap_seconds = 0;  // loading new weights between two batches
  int64_t tokens_generated = 0;
  int64_t samples_finished = 0;
  int64_t samples_fenced = 0;   // finished for a lease that was lost
  int64_t samples_refused = 0;  // INVALID_ARGUMENT, as after a fork; their groups are handed back
  int64_t leases_cancelled = 0;
  int64_t weight_swaps = 0;
  std::string last_wait_reason;  // why no lease came, the last time
  PolicyVersion committed;       // the newest version that the store has told of
  int64_t unsent_samples = 0;    // finished, while the store cannot be reached
  int64_t store_outages = 0;
  int64_t groups_handed_back = 0;  // because an environment failed
  int64_t engine_failures = 0;
  // The store refuses this worker's name: somebody revoked it. Nothing is leased until Rename.
  std::string fenced_name;  // empty: it does not
  EpisodeCounters episodes;
  EngineStats engine;
};

// Drives one engine: swaps weights at token boundaries, leases prompt groups through the store's
// admission gate, generates, and puts finished samples, several at once (`put_period`). Never waits
// for the trainer: it stops only when the gate gives no lease. On stop it hands back what is
// unfinished, tokens included. An evaluation fills half of the engine before new leases are taken.
//
// With an EpisodeRunner every sample is an episode. What is unfinished of it cannot be continued
// elsewhere and is not handed back; a group whose environment fails for good is handed back as a
// whole, without a reward.
//
// A lease ends by FailLease when the environment or the engine failed on its group, the engine
// refused it, or the store refused its samples; by HandBackLease when the environment answers no
// episode at all. The store bounds the number of both.
//
// When the engine fails on several groups at once, nobody knows on which: all go back by
// ReturnLease, and groups are leased one at a time until one is done, then two, and so on. So the
// prompt that the engine fails on comes alone and is given up, and no other one is. A prompt of an
// evaluation counts as a group here.
//
// An engine that fails on everything must not cost prompts, which others can generate. So after it
// has failed on a group alone, others are tried alone. Until it finishes something, only the first
// of these groups has failed, and not even that one if the engine has never finished anything; the
// others go back by ReturnLease. When no untried group can be had, one of them is tried again and
// then has failed.
//
// While the store cannot be reached (UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, ABORTED)
// generation goes on, and finished samples are kept and sent later, until their lease is refused.
// Run() is confined to one thread; the other methods are thread-safe.
class RolloutWorker {
 public:
  // `episodes` may be null; it, the store, the engine and the clock must outlive the worker.
  RolloutWorker(TrajectoryStore& store, InferenceEngine& engine,
                std::shared_ptr<WeightSubscriber> weights, const Clock& clock,
                RolloutOptions options, EpisodeRunner* episodes = nullptr);

  // Works until `stop`, then returns all leases. A store failure that cannot be retried ends it
  // with that status, and so do weights that the engine refuses and most_engine_failures. May be
  // called again after it has returned.
  absl::Status Run(std::stop_token stop);

  // Queues an evaluation; it may come before Run. False when one is queued or running, or when Run
  // has returned (the caller counts it as skipped).
  bool StartEvaluation(EvaluationRun run);
  bool EvaluationBusy() const;

  // While paused nothing is leased; what is leased is finished.
  void SetPaused(bool paused) { paused_.store(paused); }

  // At most so many groups (at least 1) are leased in one turn; no limit at first. When the gate
  // opens for all engines at once, the first one to ask would take what it has room for, and the
  // others would run empty: with its share of a step in each turn they divide it among them.
  void SetLeaseShare(int64_t groups) { lease_share_.store(std::max<int64_t>(groups, 1)); }

  // From the next turn on leases are taken as `worker`. All that was leased under the former name
  // is dropped, not handed back: its leases are taken to be revoked.
  void Rename(std::string worker);

  RolloutCounters counters() const;

 private:
  struct Running {
    int64_t token = 0;
    int32_t attempt = 0;
    std::map<int32_t, bool> open;  // sample indices that the store does not have yet
    size_t unsent = 0;             // of these, how many are finished
    int64_t answers_before = 0;    // of environments when it was leased
  };
  struct Unsent {
    SampleKey key;
    int64_t token = 0;
    std::shared_ptr<const Response> response;
  };
  struct ActiveEvaluation {
    EvaluationRun run;
    size_t submitted = 0;  // prompts that were, at least once
    size_t finished = 0;   // prompts with an answer
    std::set<size_t> in_flight = {};
    std::deque<size_t> again = {};  // failed prompts to submit once more
    std::map<size_t, int> failures = {};
    EvaluationAnswers answers = {};

    bool waits() const { return submitted < run.prompts.size() || !again.empty(); }
  };

  absl::Status Turn();
  void TakeName();
  absl::Status SwapWeights();

  // Leases.
  absl::Status LeaseMore();
  int64_t GroupsThatFit() const;
  absl::Status SubmitLease(GroupLease lease);
  absl::Status ReturnLease(int64_t token, const std::string& why);
  absl::Status HandBack(int64_t token, const std::string& why);
  absl::Status FailLease(int64_t token, const std::string& why);
  absl::Status IgnoreLostLease(const absl::Status& status);
  absl::Status EngineFailed(const absl::Status& why);
  int64_t InHand() const;
  bool EngineRests() const;
  bool IsToBlame(int64_t request) const;
  absl::Status SubmitLeases(std::vector<GroupLease> leases, bool only_one);
  absl::Status RenewLeases();
  void CancelGeneration(int64_t ordinal);
  void DropLeases();
  void ReturnAll();

  // Finished samples.
  absl::Status Deliver(std::vector<GenerationOutput> outputs);
  absl::Status DeliverEpisode(EpisodeResult result);
  absl::Status GiveUpGroup(int64_t ordinal, const absl::Status& why);
  void Keep(int64_t ordinal, Running& running, int32_t index, Response response);
  absl::Status SendWhenDue();
  absl::Status SendUnsent();
  absl::Status Settle(const Unsent& sample, const absl::Status& status);
  std::string Uid(const SampleKey& key) const;
  // Logs what became of a sample, of those whose lives are logged.
  void TraceSettled(const Unsent& sample, const absl::Status& status) const;

  // The store's outages. `status` is of a call that may be repeated; true: it will be.
  bool StoreFailed(const absl::Status& status);
  void StoreWorks();
  bool StoreAwaited() const { return clock_.Now() < store_retry_at_; }

  // Evaluation.
  absl::Status AdvanceEvaluation();
  absl::Status SubmitEvaluation(size_t prompt);
  int64_t EvaluationShare() const;
  bool EvaluationWaitsForEngine() const;
  bool EvaluationFits(size_t prompt) const;
  int64_t EvaluationInFlight() const;
  void CancelEvaluation(size_t prompt);
  void TakeBackEvaluation(const absl::Status& why, bool count);
  void DeliverEvaluation(size_t prompt, absl::StatusOr<Response> response);
  void FinishEvaluation(absl::Status status);

  void Idle();
  int64_t EpisodeRoom() const;

  TrajectoryStore& store_;
  InferenceEngine& engine_;
  const std::shared_ptr<WeightSubscriber> weights_;
  const Clock& clock_;
  const RolloutOptions options_;
  EpisodeRunner* const episodes_;
  std::atomic<bool> paused_{false};
  std::atomic<int64_t> lease_share_{std::numeric_limits<int64_t>::max()};

  // Owned by the thread of Run().
  std::string worker_;                  // name in leases
  std::map<int64_t, Running> running_;  // by ordinal
  std::deque<Unsent> unsent_;
  absl::Time send_at_ = absl::InfinitePast();  // when unsent_ is due
  int refused_in_a_row_ = 0;
  int engine_failures_in_a_row_ = 0;
  // What the engine failed on alone since it last finished something: ordinals, and -1 - I for the
  // prompt I of the evaluation.
  std::set<int64_t> failed_alone_;
  bool engine_worked_ = false;  // it has finished something
  // Groups and prompts of the evaluation that may be in hand: few after the engine has failed.
  int64_t most_in_hand_ = std::numeric_limits<int64_t>::max();
  bool evaluation_yields_ = false;  // the engine failed on it: groups are leased first
  absl::Time next_renewal_;
  int64_t next_request_ = 0;
  uint64_t admission_seen_ = 0;
  bool gate_closed_ = false;
  bool fenced_ = false;
  absl::Time leasing_pause_until_ = absl::InfinitePast();
  absl::Time store_retry_at_ = absl::InfinitePast();
  int64_t store_failures_ = 0;  // in a row; > 0 during an outage
  std::optional<ActiveEvaluation> evaluation_;

  mutable Mutex mu_;
  std::optional<std::string> new_name_ ABSL_GUARDED_BY(mu_);
  std::optional<EvaluationRun> queued_evaluation_ ABSL_GUARDED_BY(mu_);
  bool evaluating_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // Run has returned
  RolloutCounters counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_ROLLOUT_WORKER_H_
