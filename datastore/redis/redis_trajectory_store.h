#ifndef FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_H_
#define FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/redis/redis_batches.h"
#include "datastore/redis/redis_blobs.h"
#include "datastore/redis/redis_call_budget.h"
#include "datastore/redis/redis_change_feed.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_evaluation_store.h"
#include "datastore/redis/redis_leases.h"
#include "datastore/redis/redis_ledger.h"
#include "datastore/redis/redis_puts.h"
#include "datastore/redis/redis_reading.h"
#include "datastore/redis/redis_script_runner.h"
#include "datastore/redis/redis_trajectory_store_config.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Store of a job whose roles are separate processes, each with its own object on the same Redis.
// The object holds no essential state: any process may die at any time and another one can
// continue.
//
// Schema. All keys start with "{JOB}:", so they share a slot. `config` (JSON, written once,
//   includes the format number), `options` and `state` (packed script state: version, epoch,
//   counters), `g:ORDINAL` (hash: a group and its samples' descriptors), sorted sets of groups
//   (`queue`, `kept`, `open`, `ready` by min version, `gleases` by expiry) and rows (`rows:0`,
//   `rleases:0`), `holds` and `tokens` (lease token -> row, group), `claimed`, `step:S`,
//   `digests`, `durable` (the journal), `ledger` (stream; one entry per group, whose id is the
//   number of its first row), `segments` (stream; ledger rows packed by Sweep), `stats`, `reasons`,
//   `engines`, `replay`, `replays`, `row_history` and `task_history` (hashes by prompt key and by
//   task), `row_answers`, `revoked`, `above`, `calls` and `refused_calls` (hashes by reward
//   component), `dead` (list, newest kMaxDeadLetters), `changes` (hash) with a channel
//   `changed:TOPIC` for each, `trash` (keys to delete, by time). Bytes: `b:p:ORDINAL:SUM` (prompt)
//   and `b:TOKEN:INDEX:SUM` (response or partial), where TOKEN is the fencing token of the
//   producing lease and SUM the checksum. `e:*`: the evaluation (scripts/evaluation.lua).
// Atomicity. Each operation is one script in one round trip. Operations that bring bytes send them
//   first, in the same round trip, under unique names that expire in 5 minutes; the script makes
//   them permanent or rejects them. So a rejected worker never changes accepted bytes. Operations
//   that return bytes fetch them in a second round trip; bytes deleted in between belonged to an
//   ended group, which is left out. Sweep deletes the bytes of ended attempts a minute (or one
//   lease TTL) later, and those of durable steps at once, in slices.
// Failure. UNAVAILABLE: the effect is unknown; any operation but CountGeneration and
//   CallBudget::Spend, which may count twice, may be retried.
//   RESOURCE_EXHAUSTED: Redis is at its memory limit and nothing changed; operations that free
//   memory or advance the job still work. From kPressurePercent of the limit on, LeasePrompts
//   admits only one step's groups and NextBatch reports store_full, which reserves memory for
//   running groups. Missing or corrupt bytes end their group as dropped(corrupt), and the call
//   continues without it; if the group is already trained, NextBatch (of a redo) returns DATA_LOSS.
//   NOT_FOUND: the store was deleted or recreated for a fork.
// Costs. A script takes tens of microseconds of server time; claiming 64 groups of 16 samples takes
//   about 0.9 ms (docs/benchmarks.md). Cost grows with groups and rows, not with tokens.
// Limitations. With an appendfsync other than `always`, a Redis crash loses acknowledged
//   operations. Ordinals and versions are doubles in scripts: up to 2^53. A repeated request_id
//   omits leases whose group has ended and been deleted.
// Thread-safe.
class RedisTrajectoryStore final : public TrajectoryStore {
 public:
  // Writes the job's configuration and opens the store. If the store exists with the same options
  // and origin, opens it. INVALID_ARGUMENT: RedisStoreConfig::Validate. FAILED_PRECONDITION: the
  // existing store has other values (the message names the first difference) or another format than
  // kRedisStoreFormat (the message names both and the fix).
  static absl::StatusOr<std::unique_ptr<RedisTrajectoryStore>> Create(
      std::shared_ptr<RedisClient> client, StoreOptions options, StoreOrigin origin,
      RedisStoreSettings settings = {});
  // Opens the job's store. NOT_FOUND: there is none. FAILED_PRECONDITION: another format, as for
  // Create.
  static absl::StatusOr<std::unique_ptr<RedisTrajectoryStore>> Open(
      std::shared_ptr<RedisClient> client, const std::string& job,
      RedisStoreSettings settings = {});

  ~RedisTrajectoryStore() override = default;

  const StoreOptions& options() const override { return config_.options; }
  EvaluationStore& evaluations() override { return evaluations_; }
  CallBudget& calls() override { return calls_; }
  const StoreOrigin& origin() const { return config_.origin; }

  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) override {
    return puts_.PutPrompts(prompts);
  }
  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) override {
    return leases_.LeasePrompts(request);
  }
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override {
    return leases_.Renew(worker, tokens);
  }
  absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                           const std::vector<Response>& partials) override {
    return leases_.Return(token, indices, partials);
  }
  absl::Status FailLease(int64_t token, const std::string& reason) override {
    return leases_.GiveUp(token, LeaseEnd::kFailed, reason);
  }
  absl::Status HandBackLease(int64_t token, const std::string& reason) override {
    return leases_.GiveUp(token, LeaseEnd::kHandedBack, reason);
  }
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override {
    return puts_.PutSamples(samples);
  }
  absl::Status CountGeneration(const GenerationTotals& added) override;
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    return leases_.LeaseRows(request);
  }
  absl::StatusOr<std::vector<absl::Status>> PutRows(Task,
                                                    const std::vector<RowPut>& rows) override {
    return puts_.PutRows(rows);
  }
  absl::Status EndRow(Task, int64_t token, RowEnd end, const std::string& reason) override {
    return leases_.EndRow(token, end, reason);
  }
  absl::StatusOr<int64_t> RevokeWorker(const std::string& worker) override;
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    return batches_.OpenEpoch(request);
  }
  absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) override {
    return batches_.Next(epoch, step);
  }
  absl::StatusOr<std::vector<SampleView>> ReadSamples(const std::vector<SampleKey>& keys) override {
    return batches_.Read(keys);
  }
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash) override {
    return batches_.Commit(epoch, step, ordinals, content_hash);
  }
  absl::Status MarkDurable(int64_t epoch, int64_t version,
                           const std::string& checkpoint_sha256) override;
  absl::Status RecordResume(int64_t epoch_hint, int64_t parent_lineage, int64_t fork_version,
                            const std::string& checkpoint_sha256) override;
  // Also packs ledger rows, at most 16 segments per call, and deletes due keys, at most about 6,000
  // groups per call.
  absl::StatusOr<int64_t> Sweep() override;
  absl::StatusOr<StoreStats> Stats() override;
  absl::StatusOr<Explanation> Explain() override;
  absl::StatusOr<PromptCursor> Cursor() override;
  absl::StatusOr<std::vector<LedgerRow>> ReadLedger(int64_t after_seq, int64_t max_rows) override {
    return ledger_.Read(after_seq, max_rows);
  }
  absl::Status TrimLedger(int64_t upto_seq) override { return ledger_.Trim(upto_seq); }
  absl::StatusOr<std::vector<DeadLetter>> DeadLetters(int64_t max_letters) override;
  uint64_t ChangeCount(Topic topic) override { return feed_.Count(topic); }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    return feed_.Await(topic, seen, timeout);
  }
  void Close() override { feed_.Close(); }

 private:
  RedisTrajectoryStore(std::shared_ptr<RedisClient> client, RedisStoreConfig config,
                       std::string generation, const RedisStoreSettings& settings);

  const RedisStoreConfig config_;
  RedisChangeFeed feed_;
  RedisScriptRunner runner_;
  RedisMemoryGauge memory_;
  RedisBlobReader reader_;
  RedisPuts puts_;
  RedisLeases leases_;
  RedisBatches batches_;
  RedisLedger ledger_;
  RedisEvaluationStore evaluations_;
  RedisCallBudget calls_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_H_
