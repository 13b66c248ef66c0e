#ifndef FRESHET_DATASTORE_MEMORY_JOB_STATE_H_
#define FRESHET_DATASTORE_MEMORY_JOB_STATE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/adaptive_rollouts.h"
#include "datastore/curation_state.h"
#include "datastore/memory/group_table.h"
#include "datastore/memory/lease_replay.h"
#include "datastore/memory/ledger_journal.h"
#include "datastore/memory/lineage_chain.h"
#include "datastore/memory/row_table.h"
#include "datastore/memory/step_journal.h"
#include "datastore/memory/success_pool.h"
#include "datastore/response_check.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// State of a job and the operations of TrajectoryStore on it; the call time is an argument. Guarded
// by InMemoryTrajectoryStore's lock. No operation blocks or depends on the order of an unordered
// container, so the same calls give the same answers. Confined to one thread at a time (the store's
// lock).
class JobState {
 public:
  JobState(StoreOptions options, StoreOrigin origin);

  const StoreOptions& options() const { return options_; }

  // job_state_prompts.cc
  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts, absl::Time now);
  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request, absl::Time now);
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens,
                                                   absl::Time now);
  absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                           const std::vector<Response>& partials, absl::Time now);
  // FailLease and HandBackLease.
  absl::Status GiveUpLease(int64_t token, LeaseEnd end, const std::string& reason, absl::Time now);
  absl::Status PutSample(const SamplePut& sample, absl::Time now);

  // job_state_rows.cc
  absl::StatusOr<std::vector<RowLease>> LeaseRows(const RowRequest& request, absl::Time now);
  absl::Status PutFields(int64_t token, FieldValues values, absl::Time now);
  absl::Status EndRow(int64_t token, RowEnd end, const std::string& reason, absl::Time now);

  // job_state_batches.cc
  absl::StatusOr<OpenEpochReply> OpenEpoch(const EpochRequest& request, absl::Time now);
  absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step, absl::Time now);
  absl::StatusOr<std::vector<SampleView>> ReadSamples(const std::vector<SampleKey>& keys,
                                                      absl::Time now);
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           std::vector<int64_t> ordinals,
                                           const std::string& content_hash, absl::Time now);
  absl::Status MarkDurable(int64_t epoch, int64_t version, const std::string& checkpoint_sha256,
                           absl::Time now);
  absl::Status RecordResume(int64_t epoch_hint, int64_t parent_lineage, int64_t fork_version,
                            const std::string& checkpoint_sha256);

  // job_state_ends.cc
  int64_t Sweep(absl::Time now);
  absl::StatusOr<int64_t> RevokeWorker(const std::string& worker, absl::Time now);

  // job_state_curation.cc
  CurationState Curation(int64_t max_success_bytes) const;
  absl::Status RestoreCuration(CurationState state);

  // job_state_report.cc
  void CountGeneration(const GenerationTotals& added);
  StoreStats Stats() const;
  Explanation Explain(absl::Time now);
  PromptCursor Cursor() const;
  std::vector<DeadLetter> DeadLetters(int64_t max_letters) const;

  std::vector<LedgerRow> ReadLedger(int64_t after_seq, int64_t max_rows) const {
    return ledger_.Read(after_seq, max_rows);
  }
  void TrimLedger(int64_t upto_seq) {
    if (ledger_.backlog() >= options_.max_ledger_rows) Changed(Topic::kAdmission);
    ledger_.Trim(upto_seq);
  }

  // Bit (1 << topic) is set for every topic whose answer may have changed since the last call.
  uint32_t TakeChanges();

 private:
  // Last LeaseRows reply to a worker that contained rows.
  struct RowAnswer {
    std::string request_id;
    std::vector<int64_t> tokens;
  };
  // Last LeasePrompts reply to an engine.
  struct EngineNote {
    PolicyVersion version;
    std::string refusal;  // empty: leases were granted
  };

  PolicyVersion Committed() const { return {lineages_.current(), steps_.version()}; }
  void Changed(Topic topic) { changes_ |= uint32_t{1} << static_cast<uint32_t>(topic); }
  int64_t NewToken() { return ++last_token_; }

  // job_state_prompts.cc
  GroupLease Lease(Group& group, const LeaseRequest& request, absl::Time now);
  std::string LeaseKept(const LeaseRequest& request, absl::Time now, LeaseReply& reply);
  std::string LeaseQueued(const LeaseRequest& request, absl::Time now, LeaseReply& reply);
  AdmissionDecision Admission(const PolicyVersion& engine,
                              std::optional<int64_t> kept_version) const;
  ResponseBounds Bounds(const Group& group, bool needs_loss) const;
  // The group with this live lease, or null.
  Group* LiveLease(int64_t token);
  void CompleteGeneration(Group& group, absl::Time now);
  int64_t CapacityUsed() const;
  bool StoreFull() const;

  // job_state_curation.cc
  // Decides size and length limit of an attempt that has no tokens yet.
  void Adapt(Group& group);
  // Adds the scored group to the histories.
  void RememberOutcome(const Group& group);
  // Adds a success to the pool; sets its `oldest`.
  void AddSuccess(const std::string& prompt, PooledSuccess success);
  // Adds the scored group's success to the pool, or replaces a sample by one.
  void Replay(Group& group);
  // Filters the scored group if DecideFilter says so. Returns whether it did.
  bool Filter(Group& group, absl::Time now);

  // job_state_rows.cc
  // Of the sample in a slot, which may be a replayed one.
  SampleKey KeyOf(const Group& group, int32_t index) const;
  // The sample's loss window in a step that starts from `version`.
  LossWindow WindowOf(const SampleSlot& slot, int64_t version) const;
  SampleView View(const Group& group, int32_t index) const;
  // Fills sample and group of the lease.
  void FillRowLease(const Group& group, int32_t index, RowLease& lease) const;
  // Offers the sample for scoring, unless it has a score.
  void OfferRow(Group& group, int32_t index);
  absl::StatusOr<RowHold*> LiveRow(int64_t token);
  std::vector<RowLease> RepeatRows(const RowAnswer& answer, absl::Time now);
  void EndHeldRow(int64_t token, RowEnd end, const std::string& reason, absl::Time now);
  // Moves the group on if all of its samples are finished and scored.
  void Advance(Group& group, absl::Time now);

  // job_state_batches.cc
  absl::Status CheckEpoch(int64_t epoch) const;
  absl::Status CheckNextStep(int64_t step) const;
  absl::Status CheckLoaded(const PolicyVersion& loaded) const;
  // The epoch opened by a request with this id; 0 if none is remembered.
  int64_t EpochOf(const std::string& id) const;
  // Replaces the weights hash of a committed step.
  void ReplaceWeights(int64_t step, const std::string& content_hash);
  std::vector<TrainGroup> Batch(int64_t step, const std::vector<int64_t>& ordinals);
  absl::StatusOr<CommitReceipt> CommitRedo(int64_t step, const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash);
  CommitReceipt CommitClaimed(const std::string& content_hash, absl::Time now);
  CommitReceipt Receipt(const CommittedStep& step) const;
  void WriteTrainedRows(const CommittedStep& step, bool redo);
  void SetDurable(int64_t version, StepJournal::Durability durability, absl::Time now);

  // job_state_ends.cc
  absl::Status CheckWorker(const std::string& worker) const;
  void ExpireLeases(absl::Time now);
  void ApplyDisposition(absl::Time now);
  void ApplyDisposition(Group& group, absl::Time now);
  // Ends a lease that lacks samples: requeues the group, with or without kept tokens, or makes it
  // dead. `reason` is free text.
  void EndLease(Group& group, LeaseEnd end, const std::string& reason, absl::Time now);
  // Sequence number of the worker loss that ends this group's lease.
  int64_t CountLoss(const Group& group);
  // Ends the attempt; the prompt is queued again.
  void EndAttempt(Group& group, const std::string& label, const std::string& detail,
                  absl::Time now);
  // Ends the group for good. `label` is a short fixed word, `detail` free text for the ledger.
  void EndGroup(Group& group, LedgerEvent event, const std::string& label,
                const std::string& detail, absl::Time now);
  void WriteEndRows(const Group& group, LedgerEvent event, const std::string& label,
                    const std::string& detail);
  // The row of one sample that is not trained on.
  void WriteEndRow(const Group& group, int32_t index, LedgerEvent event, const std::string& reason);
  void ForgetTokens(Group& group);
  LedgerRow SampleRow(const Group& group, int32_t index, int64_t step, const LossWindow& window);

  // job_state_report.cc
  std::vector<GroupAge> OutstandingAges() const;
  // What the next step waits for, or that it does not wait.
  Explanation Blocking(const ConsumptionDecision& decision, absl::Time now) const;
  Explanation BlockingGroup(const Group& group, absl::Time now) const;
  Explanation BlockingSupply() const;

  const StoreOptions options_;
  const StoreOrigin origin_;
  LineageChain lineages_;
  int64_t diverged_in_ = 0;  // epoch of the last redo with different weights
  GroupTable groups_;
  RowTable rows_;
  LedgerJournal ledger_;
  StepJournal steps_;
  LeaseReplay replay_;
  SuccessPool pool_;
  RolloutHistories histories_;
  std::map<std::string, RowAnswer> row_answers_;  // by worker
  std::map<int64_t, int64_t> group_tokens_;       // every group lease of a live attempt -> ordinal
  std::map<std::string, EngineNote> engines_;     // by worker
  std::map<std::string, int64_t> ended_by_reason_;
  std::map<std::string, int64_t> skipped_by_reason_;
  std::deque<DeadLetter> dead_letters_;  // newest first
  std::set<std::string> revoked_;        // lost workers
  std::deque<std::string> revoked_in_order_;
  std::vector<int64_t> origin_above_;  // sorted ordinals that ended before the resume

  int64_t last_token_;
  int64_t high_water_;
  int64_t epoch_;  // last epoch used
  bool epoch_open_ = false;
  std::deque<std::pair<std::string, int64_t>> epoch_requests_;  // newest ids and their epochs
  int64_t redo_next_ = 0;         // next step to redo; version() + 1 if none
  std::vector<int64_t> claimed_;  // for step version() + 1, in this epoch
  std::string paused_;            // reason; empty if not paused
  int64_t filtered_in_a_row_ = 0;
  bool was_full_ = false;
  bool resume_recorded_ = false;
  absl::Time next_expiry_ = absl::InfiniteFuture();  // no lease expires earlier
  int64_t losses_ = 0;                               // lost workers that held group leases
  std::string lost_worker_;                          // the newest of these
  int64_t lost_token_ = 0;                           // newest token at that time
  uint32_t changes_ = 0;
  StoreStats counters_;  // only the plain counters are used
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_JOB_STATE_H_
