#ifndef FRESHET_ROLLOUT_WORKER_ROLLOUT_WORKER_H_
#define FRESHET_ROLLOUT_WORKER_ROLLOUT_WORKER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
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
#include "datastore/evaluation_store.h"
#include "datastore/trajectory_store.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/worker/episode_runner.h"
#include "weights/weight_subscriber.h"

namespace freshet {

// An evaluation to run alongside the rollouts: every prompt once, all with one pinned version.
struct EvaluationRun {
  std::string id;  // of the store's current evaluation (EvaluationStore)
  WeightSnapshot weights;
  std::vector<std::shared_ptr<const Prompt>> prompts;  // by row; attributes for the environment
  SamplingParams sampling;
  uint64_t seed = 0;
};

struct RolloutOptions {
  std::string worker = "rollout-0";
  // Prefix of its lease request ids. Must be unique among all workers that ever use this name,
  // because a repeated id returns the earlier reply.
  std::string request_prefix;
  SamplingParams sampling;
  uint64_t seed = 0;
  int64_t group_size = 1;         // samples per prompt: the size of a fresh lease
  int64_t max_prompt_tokens = 0;  // longest prompt of the job, to estimate what fits
  absl::Duration lease_ttl = absl::Seconds(30);
  absl::Duration idle_wait = absl::Milliseconds(2);  // longest idle sleep; delays weight swaps
  // How long a finished sample may wait to be batched with others of its engine. A sample that
  // completes the engine's part of its group is sent at once, along with all waiting ones.
  absl::Duration put_period;
  // How often the work of an engine that finishes no samples is counted in the store.
  absl::Duration count_period = absl::Seconds(1);
  // While the store is unreachable: maximum number of finished samples kept before generation
  // stops, and the retry delay, which doubles.
  int64_t max_unsent_samples = 4096;
  absl::Duration store_retry_delay = absl::Milliseconds(50);
  absl::Duration max_store_retry_delay = absl::Seconds(2);
  // Leasing pause after a group was handed back because its environment failed, and the longest
  // pause after engine failures.
  absl::Duration environment_pause = absl::Seconds(1);
  // Consecutive engine failures, without a finished generation in between, that stop the worker so
  // that its owner can create a new engine. By default the worker never stops, and a request on
  // which the engine fails alone is blamed.
  int most_engine_failures = std::numeric_limits<int>::max();
  double trace_ratio = 0;  // share of samples with lifecycle logging
};

struct RolloutCounters {
  double idle_seconds = 0;  // nothing to generate
  double swap_seconds = 0;  // loading new weights between two batches
  int64_t tokens_generated = 0;
  int64_t samples_finished = 0;
  int64_t samples_fenced = 0;   // finished for a lost lease
  int64_t samples_refused = 0;  // INVALID_ARGUMENT, as after a fork; their groups are handed back
  int64_t leases_cancelled = 0;
  int64_t weight_swaps = 0;
  std::string last_wait_reason;  // why the last lease request got none
  PolicyVersion committed;       // the newest version announced by the store
  int64_t unsent_samples = 0;    // finished but not yet stored
  int64_t store_outages = 0;
  int64_t groups_handed_back = 0;  // because an environment failed
  int64_t engine_failures = 0;
  // The worker's name if the store refuses it because it was revoked. Nothing is leased until
  // Rename.
  std::string fenced_name;  // "" if accepted
  EpisodeCounters episodes;
  EngineStats engine;
};

// Drives one engine: swaps weights at token boundaries, leases prompt groups through the store's
// admission gate, generates, and stores finished samples in batches (`put_period`). It never waits
// for the trainer: it idles only if the gate grants no lease. On stop it returns unfinished work,
// including tokens. An evaluation gets half of the engine before new leases are taken.
//
// With an EpisodeRunner every sample is an episode. Unfinished episodes cannot be continued
// elsewhere and are not returned. A group whose environment fails permanently is handed back as a
// whole, without a reward.
//
// FailLease ends a lease if the environment or the engine failed on its group, the engine rejected
// it, or the store rejected its samples. HandBackLease ends it if the environment answers no
// episode at all. The store bounds the number of both.
//
// If the engine fails with several groups in flight, the culprit is unknown. All groups go back by
// ReturnLease, and groups are then leased one at a time until one completes, then two at a time,
// and so on. So a bad prompt ends up alone and is given up, and no other prompt is. A prompt of an
// evaluation counts as a group here.
//
// An engine that fails on everything must not cost prompts that others can generate. So after it
// has failed on a lone group, others are tried alone. Until it finishes something, only the first
// of these groups is failed, and not even that one if the engine has never finished anything; the
// others go back by ReturnLease. If no untried group is available, one of them is retried and then
// failed.
//
// Tokens, idle and swap times are added to the store's generation totals (CountGeneration): before
// samples are stored, so that a step that trains on a sample finds its tokens counted; every
// `count_period`; and at the end of Run. A difference that could not be counted is added to the
// next one.
//
// While the store is unreachable (UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, ABORTED)
// generation continues; finished samples are kept and sent later, until their lease is refused.
// Only one thread may call Run(); the other methods are thread-safe.
class RolloutWorker {
 public:
  // `episodes` may be null. It, the store, the engine and the clock must outlive the worker.
  RolloutWorker(TrajectoryStore& store, InferenceEngine& engine,
                std::shared_ptr<WeightSubscriber> weights, const Clock& clock,
                RolloutOptions options, EpisodeRunner* episodes = nullptr);

  // Runs until `stop`, then returns all leases. Stops with an error on a permanent store failure,
  // weights that the engine rejects, or most_engine_failures. May be called again after it has
  // returned.
  absl::Status Run(std::stop_token stop);

  // Queues an evaluation, also before Run. Returns false if Run has returned. It replaces one with
  // another id that is queued or running, whose answers the store no longer takes; the same id
  // again has no effect. Answers are stored as they come, failures at the end. A failed prompt is
  // tried three times unless retrying is useless (INVALID_ARGUMENT); an engine failure counts only
  // if that prompt was the engine's only work. The evaluation is abandoned
  // (EvaluationStore::Abandon) if its weights cannot be loaded, no prompt has an answer, or Run
  // ends; and it is dropped once the store no longer has it.
  bool StartEvaluation(EvaluationRun run);
  bool EvaluationBusy() const;

  // While paused nothing new is leased; leased groups are finished.
  void SetPaused(bool paused) { paused_.store(paused); }

  // Limits the groups leased per turn (at least 1); initially unlimited. When the gate opens for
  // all engines at once, this keeps the first one from taking everything it has room for and
  // starving the others.
  void SetLeaseShare(int64_t groups) { lease_share_.store(std::max<int64_t>(groups, 1)); }

  // From the next turn on, leases are taken as `worker`. Work leased under the former name is
  // dropped, not returned, because those leases are assumed revoked.
  void Rename(std::string worker);

  RolloutCounters counters() const;

 private:
  struct Running {
    int64_t token = 0;
    int32_t attempt = 0;
    std::set<int32_t> open;      // sample indices not yet stored
    size_t unsent = 0;           // finished ones among `open`
    int64_t answers_before = 0;  // episodes_->answers() when it was leased
  };
  struct Unsent {
    SampleKey key;
    int64_t token = 0;
    std::shared_ptr<const Response> response;
  };
  struct ActiveEvaluation {
    EvaluationRun run;
    size_t submitted = 0;  // prompts submitted at least once
    size_t finished = 0;   // prompts with an answer
    std::set<size_t> in_flight = {};
    std::deque<size_t> again = {};  // failed prompts to resubmit
    std::map<size_t, int> failures = {};
    std::vector<EvaluationAnswer> unsent = {};
    std::vector<EvaluationAnswer> failed = {};
    bool loaded = false;
    absl::Time send_at = absl::InfinitePast();

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
  void AddUnsent(int64_t ordinal, Running& running, int32_t index, Response response);
  absl::Status CountWhenDue();
  absl::Status CountGeneration();
  absl::Status SendWhenDue();
  absl::Status SendUnsent();
  absl::Status Settle(const Unsent& sample, const absl::Status& status);
  std::string Uid(const SampleKey& key) const;
  // Logs the result of a sample if its lifecycle is logged.
  void TraceSettled(const Unsent& sample, const absl::Status& status) const;

  // Store outages. `status` is the result of a repeatable call. StoreFailed returns true if the
  // call will be retried.
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
  void SendAnswers();
  // `abandoned`: why it cannot go on; "": nothing is left to do.
  void FinishEvaluation(const std::string& abandoned);

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

  // Used only by the thread of Run().
  std::string worker_;                  // name in leases
  std::map<int64_t, Running> running_;  // by ordinal
  std::deque<Unsent> unsent_;
  absl::Time send_at_ = absl::InfinitePast();  // when unsent_ is due
  int refused_in_a_row_ = 0;
  int engine_failures_in_a_row_ = 0;
  // What the engine failed on alone since it last finished something: ordinals, and -1 - I for
  // prompt I of the evaluation.
  std::set<int64_t> failed_alone_;
  bool engine_worked_ = false;  // it has finished something
  // Maximum number of groups and evaluation prompts in flight; reduced after an engine failure.
  int64_t most_in_hand_ = std::numeric_limits<int64_t>::max();
  bool evaluation_yields_ = false;  // the engine failed on it: lease groups first
  GenerationTotals counted_;        // what the store has counted
  absl::Time next_count_ = absl::InfinitePast();
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
