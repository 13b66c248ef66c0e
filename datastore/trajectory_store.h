#ifndef FRESHET_DATASTORE_TRAJECTORY_STORE_H_
#define FRESHET_DATASTORE_TRAJECTORY_STORE_H_

#include <cstdint>
#include <memory>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/ledger.h"
#include "datastore/staleness_policy.h"
#include "datastore/trajectory.h"

namespace freshet {

// Where a group stands. Every transition is counted; illegal ones are refused.
//   queued -> leased -> generated -> scored -> ready -> claimed -> trained -> durable
//   and -> requeued (back in the queue, perhaps with kept samples) | filtered | dropped | dead
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

// Columns of a sample. Readiness is kept per field, consumption per task.
enum class Field { kResponse, kReward, kRefLogprob };
constexpr int kNumFields = 3;
enum class Task { kScore, kRefLogprob };
constexpr int kNumTasks = 2;

// Configuration of one job's store; fixed for its life.
struct StoreOptions {
  std::string job;
  // Larger for each later job of this id; 0 for jobs of older versions.
  int64_t generation = 0;
  StalenessOptions staleness;      // eta, disposition, B, max_in_flight groups
  int32_t group_size = 1;          // G
  int64_t last_step = 0;           // no lease beyond the groups that this many steps need
  int64_t capacity_groups = 0;     // outstanding + trained-but-not-durable groups at most
  int64_t max_queued_prompts = 0;  // bound of the prompt queue
  absl::Duration lease_ttl = absl::Seconds(30);
  int32_t max_row_failures = 3;       // K: see DecideRowEnd
  int32_t max_lease_failures = 5;     // K: a group whose leases fail so often is dead(lease_failed)
  int32_t max_hand_backs = 16;        // K: a group handed back so often is dead(handed_back)
  int32_t max_requeues = 8;           // K: a group requeued so often is dead(too_slow)
  bool needs_ref_logprob = false;     // a group is ready only with Field::kRefLogprob
  bool filter_zero_variance = false;  // groups whose rewards are all equal are filtered
  int64_t max_filtered_in_a_row = 0;  // groups; 0 means 20 * B. After that the job pauses.
  int64_t max_ledger_rows = 1 << 20;  // not trimmed; with more of them no group is leased

  // INVALID_ARGUMENT naming the option, its value and its bound. capacity_groups must hold what is
  // outstanding, (eta + 1) * B; what a job's checkpoints need on top is for its owner to add.
  absl::Status Validate() const;
};

// Prompts that need not come again, as of one moment: all ordinals below `low_water`, and `above`.
// A trainer that stores it with a checkpoint reads it between that version's CommitStep and its own
// next one; groups that are not trained by then come again after a fork.
struct PromptCursor {
  int64_t low_water = 0;
  std::vector<int64_t> above;  // sorted ordinals > low_water that ended
};

// Where a store of a resumed job starts (architecture: recovery). A fresh job: the default.
struct StoreOrigin {
  PolicyVersion policy;    // version that the trainer loaded
  int64_t epoch = 0;       // last trainer epoch ever used; OpenEpoch hands out the next one
  int64_t ledger_seq = 0;  // last ledger row ever written; the next one gets +1
  std::string digest;      // digest over the surviving trained uids; "" means none
  bool resumed = false;    // false: the ledger opens with an `open` row
  // Cursor of the checkpoint: PutPrompts ignores these prompts, Cursor() goes on reporting them.
  PromptCursor cursor;

  // INVALID_ARGUMENT naming the numbers unless none is negative and `epoch` leaves room for fencing
  // tokens.
  absl::Status Validate() const;
  // Fencing tokens of the store are larger than this: those of a resumed store never repeat those
  // of the one before, which had a smaller epoch.
  int64_t TokenBase() const { return epoch << 32; }
};

struct PutPromptsReply {
  int64_t accepted = 0;     // prompts taken from the front of the call
  int64_t high_water = -1;  // largest ordinal ever accepted
  bool full = false;        // the queue holds max_queued_prompts
};

// A lease of one group's missing samples to one rollout worker.
struct GroupLease {
  int64_t token = 0;  // fencing token, unique in the job and growing
  int64_t ordinal = 0;
  int32_t attempt = 0;
  absl::Time expires;
  Prompt prompt;
  std::vector<int32_t> missing;    // sample indices to generate
  std::vector<Response> partials;  // aligned with `missing`: tokens kept from a former lease
};

struct LeaseRequest {
  std::string worker;
  std::string request_id;  // repeated id, same answer
  PolicyVersion engine;    // v_e: what the engine would stamp on its next token
  int64_t max_groups = 0;
};
struct LeaseReply {
  std::vector<GroupLease> leases;
  std::string reason;       // why no more leases came than these; never empty
  PolicyVersion committed;  // the newest version, when the answer was made
};

// A sample as a task's worker or the trainer sees it.
struct SampleView {
  SampleKey key;
  std::string uid;
  std::shared_ptr<const Prompt> prompt;
  std::shared_ptr<const Response> response;
  std::shared_ptr<const Score> score;                      // null until scored
  std::shared_ptr<const std::vector<float>> ref_logprobs;  // null unless asked for
};

struct RowRequest {
  Task task = Task::kScore;
  std::string worker;
  std::string request_id;  // a repeated id gets the same answer
  int64_t max_rows = 0;
};
struct RowLease {
  int64_t token = 0;
  absl::Time expires;
  SampleView sample;
};

struct FieldValues {
  std::shared_ptr<const Score> score;                      // task kScore
  std::shared_ptr<const std::vector<float>> ref_logprobs;  // task kRefLogprob
};

// A finished sample on its way into the store, and a row's value; see PutSamples and PutRows.
struct SamplePut {
  int64_t token = 0;  // of the group's lease
  int32_t index = 0;
  std::shared_ptr<const Response> response;  // not null
  // Where the producer knows it already: as if by PutRows at once, so that nobody scores the row.
  std::shared_ptr<const Score> score = nullptr;
};
struct RowPut {
  int64_t token = 0;  // of the row's lease
  FieldValues values;
};

// A sample in a training batch. Tokens masked by the `mask` disposition have loss_mask 0 here.
struct TrainSample {
  SampleView sample;
  std::vector<uint8_t> loss_mask;
  int64_t min_version = 0;  // over loss-bearing tokens after masking
  int64_t max_version = 0;
};
struct TrainGroup {
  int64_t ordinal = 0;
  std::vector<TrainSample> samples;  // G of them, by index
};
struct NextBatchReply {
  bool ready = false;
  std::vector<TrainGroup> groups;  // exactly B, sorted by ordinal, when ready
  std::string reason;              // which group and which edge blocks, with counts; never empty
  bool paused = false;             // the job paused itself (for example: all groups filtered)
  // Few prompts or none can be leased until a checkpoint is durable: the trainer must make one.
  bool store_full = false;
};

struct JournalEntry {
  int64_t step = 0;
  std::vector<std::string> uids;  // in training order
  std::string content_hash;
};
struct EpochRequest {
  std::string trainer;
  PolicyVersion loaded;  // of the weights in hand
  std::string digest;    // over the uids that they were trained on; empty: not compared
  std::string id = {};   // unique, and kept when the request is repeated; empty: not idempotent
};
constexpr int64_t kMaxEpochRequests = 16;  // newest ids that a store remembers

struct OpenEpochReply {
  int64_t epoch = 0;
  int64_t lineage = 0;             // the current one: that of the committed version
  std::vector<JournalEntry> redo;  // committed steps after the loaded version, in order
  std::string digest;              // over the surviving trained uids up to the loaded version
};

struct StoreStats {
  int64_t groups[kNumGroupStates] = {};       // groups now in each state
  int64_t transitions[kNumGroupStates] = {};  // groups that ever entered each state
  int64_t outstanding = 0;
  int64_t queued_prompts = 0;
  int64_t committed_version = 0;
  int64_t leases_expired = 0;  // those of revoked workers included
  int64_t samples_put = 0;
  int64_t duplicate_puts = 0;
  int64_t fenced_puts = 0;
  std::vector<std::pair<std::string, int64_t>> ended_by_reason;  // "dropped(too_old)": groups
  // Time that groups spent in each state, over stays that ended.
  absl::Duration time_in_state[kNumGroupStates] = {};
  int64_t running = 0;         // groups under a live lease
  int64_t capacity_used = 0;   // of capacity_groups
  int64_t ledger_backlog = 0;  // rows not yet trimmed
  int64_t filtered_in_a_row = 0;
  // The length bias of a disposition: mean response length trained against mean length discarded.
  int64_t trained_samples = 0;
  int64_t trained_tokens = 0;
  int64_t discarded_samples = 0;
  int64_t discarded_tokens = 0;
};

// The blocking edge: the oldest unit of work and what it waits for.
struct Explanation {
  std::string edge;  // short fixed name: "prompts", "rollout", "reward", "trainer", ...
  std::string text;  // "step 41 needs 3 groups: 3 rows unscored, ..."
};

// A group that ended dead.
struct DeadLetter {
  absl::Time time;
  int64_t ordinal = 0;
  int32_t attempt = 0;
  std::string reason;  // as in the ledger, cut at 300 bytes
};
constexpr int64_t kMaxDeadLetters = 1000;  // the newest, per job

// What a waiter wants to hear of.
//   kPrompts: PutPrompts may take more. kAdmission: LeasePrompts may give more. kRows: LeaseRows.
//   kBatch: NextBatch. kSpace: the store became full, or has room again.
enum class Topic { kPrompts, kAdmission, kRows, kBatch, kSpace };
constexpr int kNumTopics = 5;

// Names of lost workers that a store refuses. Names carry an epoch and are not used again, so the
// oldest ones may be forgotten.
constexpr int64_t kMaxRevokedWorkers = 16384;

// Durable hand-over of trajectories between controller, rollout, reward and trainer, under a hard
// staleness bound. One object is one job. All operations are atomic and do not block on other
// members' progress; whoever has to wait calls AwaitChange between tries.
//
// Errors common to all operations:
//   INVALID_ARGUMENT: the caller's bug; never retry.
//   FAILED_PRECONDITION: fenced, expired or out of order: state must change first.
//   RESOURCE_EXHAUSTED: full; back off and retry.
//   UNAVAILABLE: the backend cannot be reached (Redis only).
// Thread-safe.
class TrajectoryStore {
 public:
  virtual ~TrajectoryStore() = default;

  virtual const StoreOptions& options() const = 0;

  // Controller. Takes a prefix of `prompts` (ordinals must grow within the call); an ordinal not
  // above the high-water mark is ignored and counts as accepted, so a retried call is harmless.
  // INVALID_ARGUMENT: ordinals that are negative or do not grow, a leap of more than 2^20 ordinals
  // (the cursor lists the gaps), or a negative first_attempt.
  virtual absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) = 0;

  // Rollout. Runs the admission gate (staleness_policy.h) once per group handed out. Requeued
  // groups with kept tokens go first, and only to an engine with v_e >= their min version and their
  // newest partial token (versions within a sample do not decrease); then the queue by ordinal,
  // except for groups that lost their place (HandBackLease). A repeated request_id of a worker
  // returns the same leases, as long as it is among the worker's recent ones; an empty id is never
  // remembered.
  virtual absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) = 0;
  // Extends the leases of these tokens (of groups or rows) to one TTL from now. Returns the tokens
  // that are no longer live or belong to another worker: the caller stops working for them.
  virtual absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                           const std::vector<int64_t>& tokens) = 0;
  // Returns a group whose holder stops or has no room. `partials` are aligned with `indices`; an
  // empty response keeps nothing. Finished samples are always kept; at eta = 0 partials never are
  // (determinism). The group is requeued: with kept tokens it keeps its attempt, its min version
  // and its slot in `outstanding`; with none it starts a new attempt, in its former place in the
  // queue. An expired lease does the same with no partials, but may make the group dead, as
  // FailLease and HandBackLease do.
  // FAILED_PRECONDITION without a live lease; INVALID_ARGUMENT as for PutSample, except that a
  // partial needs no loss-bearing token.
  virtual absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                                   const std::vector<Response>& partials) = 0;
  // Hands back a group that the engine or its environment failed on: as an expiry, with a reason.
  // After max_lease_failures such leases, the expired ones and those of revoked workers included
  // (DecideLeaseEnd says which count), the group is dead(lease_failed: the last reason), and
  // another one is admitted in its place. FAILED_PRECONDITION without a live lease.
  virtual absl::Status FailLease(int64_t token, const std::string& reason) = 0;
  // Hands back a group on which nothing could be tried because its environment does not answer. If
  // that repeats (DecideLeaseEnd), a group without kept tokens loses its place in the queue: it
  // goes behind the waiting prompts (QueuePlace). After max_hand_backs it is
  // dead(handed_back: the last reason), and another one is admitted in its place.
  // FAILED_PRECONDITION without a live lease.
  virtual absl::Status HandBackLease(int64_t token, const std::string& reason) = 0;
  // Accepts finished samples, in order, each for itself: the statuses are aligned with `samples`.
  // An error of the call as a whole (UNAVAILABLE, RESOURCE_EXHAUSTED, ...) leaves open which were
  // accepted: repeat them all. Idempotent by (token, index): a repeated put is OK and changes
  // nothing, until the attempt has ended, so that a put whose answer was lost can be retried. OK
  // says that exactly these bytes were accepted: FAILED_PRECONDITION without a live lease of that
  // token, also when another worker's sample has taken the place.
  // INVALID_ARGUMENT: misaligned columns, spans that do not cover the response or decrease, or no
  // loss-bearing token; a span that is older than the group's min version, of a version that is not
  // committed, or of a lineage that the store never had (what older lineages of it made stays
  // trainable: staleness counts versions alone); a score that PutRows would refuse. `response`
  // holds the whole response, kept tokens of former leases included.
  virtual absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) = 0;
  // PutSamples of one: its status, or that of the call.
  absl::Status PutSample(int64_t token, int32_t index, Response response);

  // Reward and reference workers: rows whose inputs for `task` are ready, each once, oldest first.
  // A repeat of the request_id of the worker's last call that brought rows returns those of them
  // whose leases are live, and renews these; an empty id is never remembered.
  virtual absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) = 0;
  absl::StatusOr<std::vector<RowLease>> LeaseRows(Task task, const std::string& worker,
                                                  int64_t max_rows) {
    return LeaseRowsFor({task, worker, "", max_rows});
  }
  // Puts the values of leased rows, in order, each for itself, as PutSamples does. Idempotent by
  // token. FAILED_PRECONDITION without a live lease of that token and task.
  // INVALID_ARGUMENT: the task's value is absent, not finite or misaligned with the response, or a
  // score of outcome kInfraError, which is no score: use FailRow. A group whose samples all have
  // the fields it needs becomes ready, or filtered when filter_zero_variance holds and all rewards
  // are equal; after max_filtered_in_a_row of those without a ready one the job pauses.
  virtual absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                            const std::vector<RowPut>& rows) = 0;
  // PutRows of one: its status, or that of the call.
  absl::Status PutFields(Task task, int64_t token, FieldValues values);
  // Ends the lease of a row: `end` is kFailed, with a reason, or kReturned. The row is offered
  // again, or its group is dead(TASK_failed: the last reason), as DecideRowEnd says; an expired
  // lease does the same without a reason. FAILED_PRECONDITION without a live lease of that token
  // and task. INVALID_ARGUMENT: another `end`.
  virtual absl::Status EndRow(Task task, int64_t token, RowEnd end, const std::string& reason) = 0;
  absl::Status FailRow(Task task, int64_t token, const std::string& reason) {
    return EndRow(task, token, RowEnd::kFailed, reason);
  }

  // Controller. The worker is lost: its live leases of groups and rows end now, as DecideLeaseEnd
  // and DecideRowEnd say (a worker that drains has handed its own back before). From then on
  // LeasePrompts, LeaseRows and RenewLeases of that name give FAILED_PRECONDITION; the newest
  // kMaxRevokedWorkers names are remembered. Returns the number of leases returned. Idempotent.
  // INVALID_ARGUMENT: an empty name.
  virtual absl::StatusOr<int64_t> RevokeWorker(const std::string& worker) = 0;

  // Trainer. Fences every former epoch; its claimed groups are ready again. `loaded` is the version
  // of the weights in hand, which came from a checkpoint and so counts as durable.
  // FAILED_PRECONDITION: a lineage that the store never had, a version of an older lineage from
  // which the current one does not come (see CommitStep), a version that is not committed, one
  // whose later steps are forgotten, or another digest than the store's of that version; nothing
  // has changed then. A repeated id gets the same epoch again and changes nothing, so that a call
  // whose answer was lost can be repeated; ABORTED when that epoch has been fenced, which says
  // nothing about `loaded`.
  virtual absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) = 0;
  absl::StatusOr<OpenEpochReply> OpenEpoch(const std::string& trainer, PolicyVersion loaded) {
    return OpenEpochFor({trainer, loaded, ""});
  }
  // Exactly B complete groups for `step` (= committed version + 1), oldest first, after the hard
  // staleness check; or the reason why not. Idempotent by (epoch, step) until committed. For a
  // committed step that is not forgotten: that step's batch again (redo). FAILED_PRECONDITION: a
  // fenced epoch, another step, or redo steps that come first.
  virtual absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) = 0;
  // V becomes V + 1 and the claimed groups `trained`; journal and ledger are appended in the same
  // atomic operation. `ordinals` must be those of NextBatch. Idempotent by (epoch, step) with the
  // same ordinals and hash; FAILED_PRECONDITION with others or from a fenced epoch. Then groups
  // that have become hopeless meet their disposition. A redone step must give the committed
  // ordinals, moves nothing, and is recorded as redo. Where its hash differs from the committed one
  // (other hardware, program or rank count), the hash takes the place of that one, and the first
  // such step D of an epoch raises the lineage by one: versions from D on are of the new lineage,
  // while checkpoints of older ones are loaded up to D - 1 only, and no longer count as durable
  // from D on. Groups and samples stay as they are. The receipt tells the lineage of the version.
  virtual absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                                   const std::vector<int64_t>& ordinals,
                                                   const std::string& content_hash) = 0;
  // A checkpoint of `version` is durable; digest and sha256 go to the ledger. Rows are forgotten
  // once the second-newest durable checkpoint holds them. Idempotent by version.
  // FAILED_PRECONDITION: a version above the committed one, or a fenced epoch.
  virtual absl::Status MarkDurable(int64_t epoch, int64_t version,
                                   const std::string& checkpoint_sha256) = 0;

  // Writes the `resumed` row of a store whose origin is a resumed job, with the origin's lineage
  // and digest; `fork_version` < 0 says that it is no fork. FAILED_PRECONDITION for a fresh store,
  // a second time, or once another row is written.
  virtual absl::Status RecordResume(int64_t epoch_hint, int64_t parent_lineage,
                                    int64_t fork_version, const std::string& checkpoint_sha256) = 0;

  // Expired leases go back to the queue; hopeless groups end. Returns the number of expired leases.
  virtual absl::StatusOr<int64_t> Sweep() = 0;
  virtual absl::StatusOr<StoreStats> Stats() = 0;
  virtual absl::StatusOr<Explanation> Explain() = 0;
  virtual absl::StatusOr<PromptCursor> Cursor() = 0;
  // Ledger rows with seq > after_seq, oldest first, at most `max_rows`. Rows that a caller has
  // confirmed by TrimLedger are gone.
  virtual absl::StatusOr<std::vector<LedgerRow>> ReadLedger(int64_t after_seq,
                                                            int64_t max_rows) = 0;
  virtual absl::Status TrimLedger(int64_t upto_seq) = 0;
  // Groups that died, newest first, at most `max_letters` of the newest kMaxDeadLetters.
  // INVALID_ARGUMENT: max_letters below 1.
  virtual absl::StatusOr<std::vector<DeadLetter>> DeadLetters(int64_t max_letters) = 0;

  // A number that grows whenever an operation may have changed the answer for `topic`.
  virtual uint64_t ChangeCount(Topic topic) = 0;
  // Blocks until ChangeCount(topic) > seen, or for `timeout` of real time, or until Close().
  // Returns the current count. Usage: read the count, try, await with that count, try again.
  virtual uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) = 0;
  // Wakes every waiter, now and later. Operations go on working.
  virtual void Close() = 0;
};

// Opens the trajectory store of the job with this id. Errors as of the store's Open.
using StoreOpener =
    std::function<absl::StatusOr<std::unique_ptr<TrajectoryStore>>(const std::string& job)>;

}  // namespace freshet

#endif  // FRESHET_DATASTORE_TRAJECTORY_STORE_H_
