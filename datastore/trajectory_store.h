#ifndef FRESHET_DATASTORE_TRAJECTORY_STORE_H_
#define FRESHET_DATASTORE_TRAJECTORY_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/adaptive_rollouts.h"
#include "datastore/call_budget.h"
#include "datastore/curation_policy.h"
#include "datastore/ledger.h"
#include "datastore/staleness_policy.h"
#include "datastore/trajectory.h"

namespace freshet {

// State of a group. Every transition is counted; illegal ones are rejected.
//   queued -> leased -> generated -> scored -> ready -> claimed -> trained -> durable
//   and -> requeued (back in the queue, possibly with kept samples) | filtered | dropped | dead
enum class GroupState {
  kQueued,
  kLeased,
  kGenerated,
  kScored,
  kReady,
  kClaimed,
  kTrained,
  kDurable,
  kRequeued,
  kFiltered,
  kDropped,
  kDead,
};
constexpr int kNumGroupStates = 12;
const char* Name(GroupState state);

// What workers lease rows for.
enum class Task { kScore };

// Configuration of a job's store, fixed for its lifetime.
struct StoreOptions {
  std::string job;
  // Increases with each later job of the same id; 0 for jobs of older versions.
  int64_t generation = 0;
  StalenessOptions staleness;      // eta, disposition, B, max_in_flight groups
  int32_t group_size = 1;          // G
  int64_t last_step = 0;           // leases stop at the groups that this many steps need
  int64_t capacity_groups = 0;     // maximum of outstanding plus trained-but-not-durable groups
  int64_t max_queued_prompts = 0;  // maximum length of the prompt queue
  absl::Duration lease_ttl = absl::Seconds(30);
  int32_t max_row_failures = 3;    // see DecideRowEnd
  int32_t max_lease_failures = 5;  // failed leases until a group is dead(lease_failed)
  int32_t max_hand_backs = 16;     // hand-backs until a group is dead(handed_back)
  int32_t max_requeues = 8;        // requeues until a group is dead(too_slow)
  RewardFilter filter;
  std::optional<ReplayOptions> replay;  // absent: nothing is replayed
  // Absent: every group has group_size samples. Otherwise group_size is the maximum.
  std::optional<AdaptiveOptions> adaptive;
  // Rows are offered for scoring once all samples of their group are finished, and a lease shows
  // the group's responses.
  bool score_whole_groups = false;
  int64_t max_filtered_in_a_row = 0;  // groups until the job pauses; 0: 20 * B
  int64_t max_ledger_rows = 1 << 20;  // untrimmed rows; above this no group is leased

  // INVALID_ARGUMENT: an option is out of range; the message names it, its value and its bound.
  // capacity_groups must hold the outstanding groups, (eta + 1) * B. The caller must add what the
  // job's checkpoints need.
  absl::Status Validate() const;

  // The staleness options for one sample: a replayed one has a bound of its own, and none of its
  // tokens are masked.
  StalenessOptions BoundOf(bool replayed) const;
};

// Snapshot of the prompts that ended: all ordinals below `low_water`, and those in `above`. To
// store it with a checkpoint, a trainer reads it after that version's CommitStep and before its
// next one. After a fork, groups that were not trained by then are generated again.
struct PromptCursor {
  int64_t low_water = 0;
  std::vector<int64_t> above;  // sorted ended ordinals > low_water
};

// Starting point of a resumed job's store. The default is a fresh job.
struct StoreOrigin {
  PolicyVersion policy;    // version loaded by the trainer
  int64_t epoch = 0;       // last trainer epoch used; OpenEpoch returns the next one
  int64_t ledger_seq = 0;  // last ledger row written; the next one gets +1
  std::string digest;      // digest over surviving trained uids; "": none
  bool resumed = false;    // false: the ledger starts with an `open` row
  // The checkpoint's cursor. PutPrompts ignores its prompts, and Cursor() still includes them.
  PromptCursor cursor;

  // INVALID_ARGUMENT: a number is negative, or `epoch` leaves no room for fencing tokens.
  absl::Status Validate() const;
  // Lower bound of the store's fencing tokens. Tokens of a resumed store never repeat those of its
  // predecessor, whose epoch was smaller.
  int64_t TokenBase() const { return epoch << 32; }
};

struct PutPromptsReply {
  int64_t accepted = 0;     // length of the accepted prefix
  int64_t high_water = -1;  // largest ordinal ever accepted
  bool full = false;        // the queue holds max_queued_prompts
};

// Leases a group's missing samples to one rollout worker.
struct GroupLease {
  int64_t token = 0;  // fencing token, unique in the job and increasing
  int64_t ordinal = 0;
  int32_t attempt = 0;
  absl::Time expires;
  Prompt prompt;
  int64_t max_new_tokens = 0;      // of a sample, besides the job's limit; 0: only that one
  std::vector<int32_t> missing;    // sample indices to generate
  std::vector<Response> partials;  // aligned with `missing`; tokens kept from earlier leases
};

struct LeaseRequest {
  std::string worker;
  std::string request_id;  // repeated id, same reply
  PolicyVersion engine;    // v_e: version that the engine would stamp on its next token
  int64_t max_groups = 0;
};
struct LeaseReply {
  std::vector<GroupLease> leases;
  std::string reason;       // why there are no more leases; never empty
  PolicyVersion committed;  // newest version at the time of the reply
};

// A sample as seen by a reward worker or the trainer.
struct SampleView {
  SampleKey key;
  std::string uid;
  // uid of the success that this sample is a copy of; empty: not replayed. The index of a replayed
  // sample is G + the index of the sample that it replaced.
  std::string replay_of = {};
  std::shared_ptr<const Prompt> prompt;
  std::shared_ptr<const Response> response;
  std::shared_ptr<const Score> score;  // null until scored
};

struct RowRequest {
  Task task = Task::kScore;
  std::string worker;
  std::string request_id;  // repeated id, same reply
  int64_t max_rows = 0;
};
struct RowLease {
  int64_t token = 0;
  absl::Time expires;
  SampleView sample;
  // The responses of all samples of the group, by index, with score_whole_groups; otherwise empty.
  std::vector<std::shared_ptr<const Response>> group = {};
};

struct FieldValues {
  std::shared_ptr<const Score> score;
};

// A finished sample to store (PutSamples), and a row's score (PutRows).
struct SamplePut {
  int64_t token = 0;  // of the group lease
  int32_t index = 0;
  std::shared_ptr<const Response> response;  // not null
  // Set if the producer already knows the score: equivalent to an immediate PutRows, so the row is
  // not offered for scoring.
  std::shared_ptr<const Score> score = nullptr;
};
struct RowPut {
  int64_t token = 0;  // of the row lease
  FieldValues values;
};

// A sample in a training batch. Tokens masked by the `mask` disposition have loss_mask 0.
struct TrainSample {
  SampleView sample;
  std::vector<uint8_t> loss_mask;
  int64_t min_version = 0;  // over loss-bearing tokens after masking
  int64_t max_version = 0;
};
struct TrainGroup {
  int64_t ordinal = 0;
  std::vector<TrainSample>
      samples;  // all of the group, by index; a replayed one in the replaced one's place
};
struct NextBatchReply {
  bool ready = false;
  std::vector<TrainGroup> groups;  // if ready: exactly B, sorted by ordinal
  std::string reason;              // blocking group and edge, with counts; never empty
  bool paused = false;             // the job paused itself (e.g. all groups were filtered)
  // Few or no prompts can be leased until a checkpoint is durable: the trainer must make one.
  bool store_full = false;
};

struct JournalEntry {
  int64_t step = 0;
  std::vector<std::string> uids;  // in training order
  std::string content_hash;
};
struct EpochRequest {
  std::string trainer;
  PolicyVersion loaded;  // version of the trainer's weights
  std::string digest;    // over the uids that trained these weights; "": not compared
  std::string id = {};   // unique, reused on retries; "": not idempotent
};
constexpr int64_t kMaxEpochRequests = 16;  // number of newest ids that a store remembers

struct OpenEpochReply {
  int64_t epoch = 0;
  int64_t lineage = 0;             // lineage of the committed version
  std::vector<JournalEntry> redo;  // committed steps after the loaded version, in order
  std::string digest;              // over surviving trained uids up to the loaded version
};

// Work of a job's rollout engines.
struct GenerationTotals {
  int64_t tokens = 0;   // generated, without evaluations
  absl::Duration idle;  // nothing to generate, summed over engines
  absl::Duration swap;  // loading new weights, summed over engines

  // INVALID_ARGUMENT: a value is negative.
  absl::Status Validate() const;
  friend bool operator==(const GenerationTotals&, const GenerationTotals&) = default;
};

struct StoreStats {
  int64_t groups[kNumGroupStates] = {};       // current number of groups per state
  int64_t transitions[kNumGroupStates] = {};  // groups that ever entered each state
  int64_t outstanding = 0;
  int64_t queued_prompts = 0;
  int64_t committed_version = 0;
  int64_t leases_expired = 0;  // includes those of revoked workers
  int64_t samples_put = 0;
  int64_t duplicate_puts = 0;
  int64_t fenced_puts = 0;
  std::vector<std::pair<std::string, int64_t>> ended_by_reason;  // "dropped(too_old)": groups
  // group_size minus the samples of each group, summed: of `groups`, and of `ended_by_reason`
  // (without reasons for which it is 0).
  int64_t skipped[kNumGroupStates] = {};
  std::vector<std::pair<std::string, int64_t>> skipped_by_reason;
  // Total time of completed stays in each state.
  absl::Duration time_in_state[kNumGroupStates] = {};
  int64_t running = 0;         // groups under a live lease
  int64_t capacity_used = 0;   // of capacity_groups
  int64_t ledger_backlog = 0;  // rows not yet trimmed
  int64_t filtered_in_a_row = 0;
  // Length bias of a disposition: mean response length trained versus discarded.
  int64_t trained_samples = 0;
  int64_t trained_tokens = 0;
  int64_t discarded_samples = 0;
  int64_t discarded_tokens = 0;
  int64_t replayed_samples = 0;  // samples replaced by a success of the pool
  int64_t pooled_successes = 0;  // in the pool
  int64_t skipped_samples = 0;   // group_size minus the samples of each leased group, summed
  int64_t limited_groups = 0;    // leases of groups with a limit of their own for the length
  GenerationTotals generation;
  std::vector<ComponentCalls> calls;  // of components with a limit, by name
};

// The blocking edge: the oldest unit of work and what it waits for.
struct Explanation {
  std::string edge;  // short fixed name: "prompts", "rollout", "reward", "trainer", ...
  std::string text;  // "step 41 needs 3 groups: 3 rows unscored, ..."
};

struct DeadLetter {
  absl::Time time;
  int64_t ordinal = 0;
  int32_t attempt = 0;
  std::string reason;  // as in the ledger, truncated to 300 bytes
};
constexpr int64_t kMaxDeadLetters = 1000;  // newest ones kept per job

// What a waiter waits for.
//   kPrompts: PutPrompts may accept more. kAdmission: LeasePrompts may return more. kRows:
//     LeaseRows. kBatch: NextBatch. kSpace: the store became full, or has room again. kEvaluation:
//     LeaseRows of evaluations().
enum class Topic { kPrompts, kAdmission, kRows, kBatch, kSpace, kEvaluation };
constexpr int kNumTopics = 6;

// Number of lost workers whose names a store rejects. The oldest may be forgotten because names
// contain an epoch and are not reused.
constexpr int64_t kMaxRevokedWorkers = 16384;

class EvaluationStore;

// Rows that reward workers lease and score. Thread-safe.
//
// Errors of all operations:
//   INVALID_ARGUMENT: a bug in the caller; never retry.
//   FAILED_PRECONDITION: fenced, expired or out of order: state must change first.
//   RESOURCE_EXHAUSTED: full; back off and retry.
//   UNAVAILABLE: the backend cannot be reached (Redis only).
class RowQueue {
 public:
  virtual ~RowQueue() = default;

  // How long a lease lasts without renewal.
  virtual absl::Duration lease_ttl() const = 0;

  // Leases rows that have no score, each row once, oldest first. Repeating the request_id of the
  // worker's last call that returned rows returns and renews those whose leases are live; an empty
  // id is not remembered.
  virtual absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) = 0;
  absl::StatusOr<std::vector<RowLease>> LeaseRows(Task task, const std::string& worker,
                                                  int64_t max_rows) {
    return LeaseRowsFor({task, worker, "", max_rows});
  }
  // Stores scores of leased rows in order, each independently. The returned statuses are aligned
  // with `rows`. Idempotent by token. FAILED_PRECONDITION: no live lease with that token.
  // INVALID_ARGUMENT: a score that is absent or not finite, or has outcome kInfraError (use
  // FailRow).
  virtual absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                            const std::vector<RowPut>& rows) = 0;
  // PutRows for one row. Returns its status or that of the call.
  absl::Status PutFields(Task task, int64_t token, FieldValues values);
  // Ends a row's lease as kFailed (with a reason) or kReturned. Following DecideRowEnd, the row is
  // offered again or given up. An expired lease has the same effect without a reason.
  // FAILED_PRECONDITION: no live lease with that token. INVALID_ARGUMENT: another `end`.
  virtual absl::Status EndRow(Task task, int64_t token, RowEnd end, const std::string& reason) = 0;
  absl::Status FailRow(Task task, int64_t token, const std::string& reason) {
    return EndRow(task, token, RowEnd::kFailed, reason);
  }

  // Extends the leases of these tokens (groups or rows) to one TTL from now. Returns the tokens
  // that are not live or belong to another worker; the caller must stop working on them.
  virtual absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                           const std::vector<int64_t>& tokens) = 0;

  // Counter that increases whenever an operation may have changed the answer for `topic`.
  virtual uint64_t ChangeCount(Topic topic) = 0;
  // Blocks until ChangeCount(topic) > seen, `timeout` of real time has passed, or Close(). Returns
  // the current count. Usage: read the count, try, await with that count, try again.
  virtual uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) = 0;
  // Wakes all current and future waiters. Operations still work.
  virtual void Close() = 0;
};

// Durable hand-over of trajectories between controller, rollout, reward and trainer under a hard
// staleness bound. One object serves one job. Operations are atomic and do not block on other
// members' progress; callers wait with AwaitChange between tries.
//
// PutRows: a group whose samples are all scored becomes ready, or filtered (DecideFilter). After
// max_filtered_in_a_row filtered groups without a ready one the job pauses. A row that is given up
// (EndRow) makes its group dead(score_failed: last reason).
//
// Success pool (StoreOptions::replay, DecideReplay): in the same operation, before the filter, a
// rare success is added to the pool, or a copy of the pool's success for the same prompt replaces a
// sample of the group. The replaced sample gets a ledger row dropped(replaced); the copy has a new
// uid. The pool keeps one success per prompt, that with the newest oldest loss-bearing version (the
// latest of equal ones). Successes beyond max_age or `capacity`, oldest first, are removed when one
// is added. A success stays in the pool when it is replayed. The pool outlives all processes; a
// fork starts with what its origin had (CurationState), or with an empty one.
//
// Adaptive rollouts (StoreOptions::adaptive, DecideRollouts): an attempt's first lease decides how
// many samples the group has and how long they may be, by the groups of the same prompt and task
// that were scored until then, before replay and filter. `trained` rows tell the size of a group
// that is smaller than G. Histories outlive processes like the pool.
class TrajectoryStore : public RowQueue {
 public:
  virtual const StoreOptions& options() const = 0;
  absl::Duration lease_ttl() const final { return options().lease_ttl; }
  // The job's evaluations. Lives as long as this object.
  virtual EvaluationStore& evaluations() = 0;
  // The calls of its reward components, also while evaluations are scored. Lives as long as this
  // object.
  virtual CallBudget& calls() = 0;

  // Controller. Accepts a prefix of `prompts`. Ordinals at or below the high-water mark are ignored
  // and count as accepted, so retries are harmless.
  // INVALID_ARGUMENT: ordinals that are negative or not increasing, a gap of more than 2^20
  // ordinals (the cursor lists gaps), or a negative first_attempt.
  virtual absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) = 0;

  // Rollout. Applies the admission gate (staleness_policy.h) to each group. Requeued groups with
  // kept tokens come first, and only go to an engine whose v_e is at least their min version and
  // their newest partial token (versions within a sample do not decrease). Then comes the queue by
  // ordinal, except for groups that lost their place (HandBackLease). A repeated request_id among
  // the worker's recent ones returns the same leases; an empty id is not remembered.
  virtual absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) = 0;
  // Returns a group whose holder stops or has no room. `partials` are aligned with `indices`; an
  // empty response keeps nothing. Finished samples are always kept; at eta = 0 partials never are
  // (determinism). The group is requeued: with kept tokens it keeps its attempt, its min version
  // and its slot in `outstanding`; without, it starts a new attempt in its former queue place. An
  // expired lease has the same effect without partials, but may make the group dead, like FailLease
  // and HandBackLease.
  // FAILED_PRECONDITION: no live lease. INVALID_ARGUMENT: as for PutSample, except that a partial
  // needs no loss-bearing token.
  virtual absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                                   const std::vector<Response>& partials) = 0;
  // Ends a lease because the engine or environment failed on the group. Like an expiry, with a
  // reason. After max_lease_failures such ends, including expired leases and those of revoked
  // workers as counted by DecideLeaseEnd, the group is dead(lease_failed: last reason) and another
  // one is admitted in its place. FAILED_PRECONDITION: no live lease.
  virtual absl::Status FailLease(int64_t token, const std::string& reason) = 0;
  // Ends a lease whose group is not known to be at fault: the environment did not answer, or the
  // inference server was lost while it had this group alone. If this repeats
  // (DecideLeaseEnd), a group without kept tokens moves behind the waiting prompts (QueuePlace).
  // After max_hand_backs it is dead(handed_back: last reason) and another one is admitted in its
  // place. FAILED_PRECONDITION: no live lease.
  virtual absl::Status HandBackLease(int64_t token, const std::string& reason) = 0;
  // Stores finished samples in order, each independently. The returned statuses are aligned with
  // `samples`. After an error of the whole call (UNAVAILABLE, RESOURCE_EXHAUSTED, ...) it is
  // unknown which samples were accepted: repeat all of them. Idempotent by (token, index) until the
  // attempt ends: a repeated put returns OK and changes nothing. OK means that exactly these bytes
  // were accepted.
  // FAILED_PRECONDITION: no live lease with that token, also if another worker's sample took the
  // place.
  // INVALID_ARGUMENT: misaligned columns; spans that do not cover the response or decrease; no
  // loss-bearing token; a span older than the group's min version, of an uncommitted version, or of
  // a lineage that the store never had (older lineages of the store stay trainable, because
  // staleness counts only versions); a score that PutRows would reject. `response` is the whole
  // response, including tokens kept from earlier leases.
  virtual absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) = 0;
  // PutSamples for one sample. Returns its status or that of the call.
  absl::Status PutSample(int64_t token, int32_t index, Response response);
  // Adds to StoreStats::generation, in whole microseconds. Not idempotent: after UNAVAILABLE it is
  // unknown whether it counted. INVALID_ARGUMENT: a value is negative.
  virtual absl::Status CountGeneration(const GenerationTotals& added) = 0;

  // Controller. Marks a worker as lost: its live leases of groups and rows end now (DecideLeaseEnd,
  // DecideRowEnd). A draining worker has already returned its leases. From then on LeasePrompts,
  // LeaseRows and RenewLeases return FAILED_PRECONDITION for that name; the newest
  // kMaxRevokedWorkers names are remembered. Returns the number of leases ended. Idempotent.
  // INVALID_ARGUMENT: empty name.
  virtual absl::StatusOr<int64_t> RevokeWorker(const std::string& worker) = 0;

  // Trainer. Opens a new epoch and fences all earlier ones; their claimed groups become ready
  // again. `loaded` is the version of the trainer's weights. It came from a checkpoint, so it
  // counts as durable.
  // FAILED_PRECONDITION, without effect: a lineage that the store never had; a version of an older
  // lineage that the current one does not descend from (CommitStep); an uncommitted version; a
  // version whose later steps are forgotten; or a digest that differs from the store's for that
  // version. A repeated id returns the same epoch without effect, so the call can be retried.
  // ABORTED: that epoch has been fenced; this says nothing about `loaded`.
  virtual absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) = 0;
  absl::StatusOr<OpenEpochReply> OpenEpoch(const std::string& trainer, PolicyVersion loaded) {
    return OpenEpochFor({trainer, loaded, ""});
  }
  // Returns exactly B complete groups for `step` (= committed version + 1), oldest first, after the
  // hard staleness check; or the reason why not. Idempotent by (epoch, step) until committed. For a
  // committed step that is not forgotten, returns that step's batch again (redo).
  // FAILED_PRECONDITION: a fenced epoch, another step, or pending redo steps.
  virtual absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) = 0;
  // Prompts and responses of samples in a batch of NextBatch, in the order of `keys`, without
  // scores. Changes nothing: for the trainer's other ranks.
  // NOT_FOUND: a sample is not in a claimed or trained group, for example because another epoch has
  // put its group back. DATA_LOSS: its bytes are missing or corrupt.
  virtual absl::StatusOr<std::vector<SampleView>> ReadSamples(
      const std::vector<SampleKey>& keys) = 0;
  // Commits a step: V becomes V + 1, the claimed groups become `trained`, and journal and ledger
  // are appended, all atomically. `ordinals` must be those of NextBatch. Idempotent by (epoch,
  // step) with the same ordinals and hash. FAILED_PRECONDITION: other ordinals or hash, or a fenced
  // epoch. Afterwards the disposition is applied to hopeless groups.
  //
  // A redone step must have the committed ordinals; it changes no group and is recorded as redo. If
  // its hash differs from the committed one (other hardware, program or rank count), the new hash
  // replaces it, and the first such step D of an epoch increments the lineage: versions from D on
  // belong to the new lineage. Checkpoints of older lineages can then only be loaded up to D - 1
  // and no longer count as durable from D on. The receipt has the version's lineage.
  virtual absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                                   const std::vector<int64_t>& ordinals,
                                                   const std::string& content_hash) = 0;
  // Records that a checkpoint of `version` is durable; writes digest and sha256 to the ledger. Rows
  // are forgotten once the second-newest durable checkpoint contains them. Idempotent by version.
  // FAILED_PRECONDITION: a version above the committed one, or a fenced epoch.
  virtual absl::Status MarkDurable(int64_t epoch, int64_t version,
                                   const std::string& checkpoint_sha256) = 0;

  // Writes the `resumed` row of a resumed job's store, with the origin's lineage and digest.
  // `fork_version` < 0: not a fork. FAILED_PRECONDITION: a fresh store, a second call, or another
  // row already written.
  virtual absl::Status RecordResume(int64_t epoch_hint, int64_t parent_lineage,
                                    int64_t fork_version, const std::string& checkpoint_sha256) = 0;

  // Requeues expired leases and ends hopeless groups. Returns the number of expired leases.
  virtual absl::StatusOr<int64_t> Sweep() = 0;
  virtual absl::StatusOr<StoreStats> Stats() = 0;
  virtual absl::StatusOr<Explanation> Explain() = 0;
  virtual absl::StatusOr<PromptCursor> Cursor() = 0;
  // Returns up to `max_rows` ledger rows with seq > after_seq, oldest first. TrimLedger removes
  // rows.
  virtual absl::StatusOr<std::vector<LedgerRow>> ReadLedger(int64_t after_seq,
                                                            int64_t max_rows) = 0;
  virtual absl::Status TrimLedger(int64_t upto_seq) = 0;
  // Returns up to `max_letters` dead groups, newest first. INVALID_ARGUMENT: max_letters below 1.
  virtual absl::StatusOr<std::vector<DeadLetter>> DeadLetters(int64_t max_letters) = 0;
};

// Opens a job's trajectory store. Returns the errors of the store's Open.
using StoreOpener =
    std::function<absl::StatusOr<std::unique_ptr<TrajectoryStore>>(const std::string& job)>;

}  // namespace freshet

#endif  // FRESHET_DATASTORE_TRAJECTORY_STORE_H_
