#ifndef FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_H_
#define FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_trajectory_store_config.h"
#include "datastore/redis/redis_trajectory_store_feed.h"
#include "datastore/trajectory_store.h"

namespace freshet {

struct RedisStoreSettings {
  // For tests: the clock for leases, which must outlive the store and be shared by all members of
  // the job. Null: the server's clock (Redis TIME).
  const Clock* clock = nullptr;
  // If no member performs any operation for this long, Redis is assumed to have been unreachable,
  // and the next operation extends all leases by that time. Zero: never. Absent: a quarter of the
  // lease TTL with the server's clock, never with another clock. Sweep must be called several times
  // within this period, or idle times count as outages.
  std::optional<absl::Duration> outage_threshold;
  // Called after each completed script with its file name and round-trip time, on the calling
  // thread.
  std::function<void(std::string_view script, absl::Duration took)> on_script;
  // Maximum age of the server's memory figures; LeasePrompts and NextBatch refresh them.
  absl::Duration memory_period = absl::Seconds(1);
  // Approximate number of ledger rows per segment that Sweep packs. At least 1.
  int64_t ledger_segment_rows = 4096;
};

// Store of a job whose roles are separate processes, each with its own object on the same Redis.
// The object holds no essential state: any process may die at any time and another one can
// continue.
//
// Schema. All keys start with "{JOB}:", so they share a slot. `config` (JSON, written once,
//   includes the format number), `options` and `state` (packed script state: version, epoch,
//   counters), `g:ORDINAL` (hash: a group and its samples' descriptors), sorted sets of groups
//   (`queue`, `kept`, `open`, `ready` by min version, `gleases` by expiry) and rows (`rows:TASK`,
//   `rleases:TASK`), `holds` and `tokens` (lease token -> row, group), `claimed`, `step:S`,
//   `digests`, `durable` (the journal), `ledger` (stream; one entry per group, whose id is the
//   number of its first row), `segments` (stream; ledger rows packed by Sweep), `stats`, `reasons`,
//   `engines`, `replay`, `replays`, `row_answers`, `revoked`, `above`, `dead` (list, newest
//   kMaxDeadLetters), `changes` (hash) with a channel `changed:TOPIC` for each, `trash` (keys to
//   delete, by time). Bytes: `b:p:ORDINAL:SUM` (prompt), `b:TOKEN:INDEX:SUM` (response or partial)
//   and `b:TOKEN:r:SUM` (reference log-probs), where TOKEN is the fencing token of the producing
//   lease and SUM the checksum.
// Atomicity. Each operation is one script in one round trip. Operations that bring bytes send them
//   first, in the same round trip, under unique names that expire in 5 minutes; the script makes
//   them permanent or rejects them. So a rejected worker never changes accepted bytes. PutSamples
//   and PutRows use one script per 256 entries or 16 MiB, whichever comes first. Operations that
//   return bytes fetch them in a second round trip; bytes deleted in between belonged to an ended
//   group, which is left out. Sweep deletes the bytes of ended attempts a minute (or one lease TTL)
//   later, and those of durable steps at once, in slices.
// Failure. UNAVAILABLE: the effect is unknown; any operation may be retried. RESOURCE_EXHAUSTED:
//   Redis is at its memory limit and nothing changed; operations that free memory or advance the
//   job still work. From kPressurePercent of the limit on, LeasePrompts admits only one step's
//   groups and NextBatch reports store_full, which reserves memory for running groups. Missing or
//   corrupt bytes end their group as dropped(corrupt), and the call continues without it; if the
//   group is already trained, NextBatch (of a redo) returns DATA_LOSS. NOT_FOUND: the store was
//   deleted or recreated for a fork.
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
  const StoreOrigin& origin() const { return config_.origin; }

  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) override;
  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) override;
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override;
  absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                           const std::vector<Response>& partials) override;
  absl::Status FailLease(int64_t token, const std::string& reason) override;
  absl::Status HandBackLease(int64_t token, const std::string& reason) override;
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override;
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override;
  absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                    const std::vector<RowPut>& rows) override;
  absl::Status EndRow(Task task, int64_t token, RowEnd end, const std::string& reason) override;
  absl::StatusOr<int64_t> RevokeWorker(const std::string& worker) override;
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override;
  absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) override;
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash) override;
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
  absl::StatusOr<std::vector<LedgerRow>> ReadLedger(int64_t after_seq, int64_t max_rows) override;
  absl::Status TrimLedger(int64_t upto_seq) override;
  absl::StatusOr<std::vector<DeadLetter>> DeadLetters(int64_t max_letters) override;
  uint64_t ChangeCount(Topic topic) override { return feed_.Count(topic); }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    return feed_.Await(topic, seen, timeout);
  }
  void Close() override { feed_.Close(); }

 private:
  RedisTrajectoryStore(std::shared_ptr<RedisClient> client, RedisStoreConfig config,
                       std::string generation, RedisStoreSettings settings);

  // Bytes to write. `name` follows "{JOB}:b:".
  struct Blob {
    std::string name;
    std::string bytes;
  };
  // First value of a script's reply.
  enum class Code {
    kOk,
    kGone,
    kFenced,
    kPrecondition,
    kInvalid,
    kRetry,
    kRevoked,
    kDead,
    kDone,
    kMismatch,
    kIndex,
    kResponse,
    kField,
    kBatch,
    kWait,
    kPaused,
    kReceipt,
    kDigest
  };
  struct Answer {
    Code code = Code::kOk;
    std::vector<RedisReply> values;
    absl::Status bytes;  // why accompanying bytes were rejected (first one)
    // INTERNAL unless there are exactly that many values.
    absl::Status Expect(size_t num_values) const;
  };
  // Location of bytes, and the field and attempt that reference them.
  struct BlobPlace {
    std::string name;
    int64_t ordinal = 0;
    int64_t attempt = 0;
    std::string field;  // as in drop_corrupt.lua
    std::string checksum;
    int64_t offset = 0;  // within the blob
    int64_t size = 0;    // 0: the whole blob
  };
  // Places to fetch, without duplicates; referenced by position.
  struct FetchPlan {
    std::vector<BlobPlace> places;
    std::map<std::string, size_t> prompts;  // position by blob name

    size_t Add(BlobPlace place);
    size_t AddPrompt(BlobPlace place);
  };
  // A sample as described by the scripts, before its bytes are fetched.
  struct SampleTicket {
    SampleKey key;
    std::string score;
    size_t prompt = 0;  // positions in the plan
    size_t response = 0;
    std::optional<size_t> ref;
  };
  // A lease before its bytes are fetched.
  struct LeaseTicket {
    GroupLease lease;
    size_t prompt = 0;                                // position in the plan
    std::vector<std::pair<size_t, size_t>> partials;  // positions in `missing` and in the plan
  };
  // Decoded bytes by position in the plan, null if the place has another type or is unreadable;
  // `corrupt` lists unreadable places with the reason.
  struct Bytes {
    std::vector<std::shared_ptr<const Prompt>> prompts;
    std::vector<std::shared_ptr<const Response>> responses;
    std::vector<std::shared_ptr<const std::vector<float>>> floats;
    std::vector<std::pair<BlobPlace, std::string>> corrupt;
  };
  // Entries for one script call, which returns errors per entry.
  struct Put {
    size_t position = 0;            // in the caller's list
    std::vector<std::string> args;  // same number for each entry
  };
  struct PutSlice {
    std::vector<Put> puts;
    std::vector<Blob> blobs;
    size_t bytes = 0;
    bool Full() const;
  };
  // Blob of one lease's samples, while it is being filled.
  struct SampleBlob {
    std::string bytes;
    int32_t first = 0;         // index of the first sample
    std::string sums;          // checksums of the samples
    std::vector<size_t> puts;  // positions in the slice
  };
  // Why a script rejected the entry at `position`.
  struct PutError {
    size_t position = 0;
    std::string code;
    int64_t values[3] = {0, 0, 0};
  };
  // Last batch returned by NextBatch, used to compute the commit's digest.
  struct Claim {
    int64_t epoch = 0;
    int64_t step = 0;
    std::string digest;  // of the previous version
    std::string ordinals;
    std::vector<int64_t> attempts;
  };

  std::vector<std::string> ScriptArgs(std::vector<std::string> args) const;
  // SET commands for bytes, sent before the script that makes them permanent or rejects them.
  using Commands = std::vector<std::vector<std::string>>;
  Commands SetCommands(std::vector<Blob> blobs) const;
  absl::StatusOr<Answer> Run(const RedisScript& script, std::vector<std::string> args,
                             std::vector<Blob> blobs = {});
  // One try: sends `sets` (left unchanged), then the script.
  absl::StatusOr<Answer> Send(const RedisScript& script, std::vector<std::string> args,
                              Commands& sets);
  absl::StatusOr<Answer> Accept(RedisReply reply);
  // Server memory use in percent of its limit if DecidePressure says `pressed`; otherwise 0, also
  // if the server does not answer.
  int64_t PressedPercent() ABSL_LOCKS_EXCLUDED(mu_);

  // redis_trajectory_store_puts.cc
  // Builds the script's arguments for these entries.
  using PutArgs =
      std::function<std::vector<std::string>(const std::vector<std::vector<std::string>>&)>;
  absl::StatusOr<std::vector<PutError>> SendPuts(const RedisScript& script,
                                                 const PutArgs& make_args, PutSlice slice);
  static std::map<int64_t, SampleBlob> EmptyBlobs(const std::vector<SamplePut>& samples,
                                                  size_t next);
  absl::StatusOr<PutSlice> SampleSlice(const std::vector<SamplePut>& samples, size_t& next,
                                       std::vector<absl::Status>& statuses) const;
  absl::StatusOr<Put> MakePut(const SamplePut& sample, size_t position,
                              std::map<int64_t, SampleBlob>& blobs, PutSlice& slice) const;
  void Seal(std::map<int64_t, SampleBlob> blobs, PutSlice& slice) const;
  absl::Status AddPut(Task task, const RowPut& row, size_t position, PutSlice& slice) const;
  absl::Status RefusedSample(const SamplePut& sample, const PutError& error) const;
  // Converts between port tokens and script tokens.
  std::string ScriptToken(int64_t token) const;
  int64_t PortToken(int64_t token) const { return token + config_.origin.TokenBase(); }

  // redis_trajectory_store_bytes.cc
  absl::StatusOr<Bytes> Fetch(const FetchPlan& plan);
  absl::Status FetchSlice(const FetchPlan& plan, size_t first, size_t behind, Bytes& bytes);
  static void Decode(const FetchPlan& plan, size_t position, std::string_view blob, Bytes& bytes);
  BlobPlace PromptPlace(int64_t ordinal, int64_t attempt, const std::string& sum) const;
  // Adds a sample's places to the plan. `record` is a SampleRecord; `ref` is "TOKEN CHECKSUM" or
  // "".
  absl::Status AddPlaces(std::string_view record, std::string_view ref,
                         const std::string& prompt_sum, FetchPlan& plan,
                         SampleTicket& ticket) const;
  // Members whose bytes are missing are null.
  absl::StatusOr<SampleView> View(const SampleTicket& ticket, const Bytes& bytes) const;
  // Ends the groups of these places. DATA_LOSS: one of them is already trained.
  absl::Status DropCorrupt(const std::vector<std::pair<BlobPlace, std::string>>& corrupt);

  absl::Status GiveUpLease(int64_t token, LeaseEnd end, const std::string& reason);
  absl::StatusOr<LeaseTicket> ParseLease(const std::string& text, FetchPlan& plan) const;
  static absl::StatusOr<GroupLease> FillLease(LeaseTicket ticket, const Bytes& bytes);
  absl::StatusOr<int64_t> ParseRow(const RedisReply& head, const RedisReply& score,
                                   const RedisReply& ref, FetchPlan& plan,
                                   SampleTicket& ticket) const;
  absl::StatusOr<bool> FillBatch(const Answer& answer, int64_t epoch, int64_t step,
                                 NextBatchReply& reply);
  absl::StatusOr<TrainGroup> ReadyGroup(const std::vector<SampleTicket>& tickets, int64_t step,
                                        const Bytes& bytes) const;
  absl::StatusOr<std::vector<SampleTicket>> GroupTickets(const RedisReply* fields,
                                                         FetchPlan& plan) const;
  std::string ExtendedDigest(std::string digest, const std::vector<int64_t>& ordinals,
                             const std::vector<int64_t>& attempts) const;
  std::vector<std::string> Uids(const std::vector<int64_t>& ordinals,
                                const std::vector<int64_t>& attempts) const;

  // redis_trajectory_store_reports.cc
  struct LedgerPage {
    int64_t after = 0;    // skip rows up to this one: already read or trimmed
    bool packed = false;  // from a segment
    std::vector<RedisReply> entries;
  };
  // Reads the segment with row after_seq + 1, or up to `max_entries` entries starting with the one
  // that has that row. Past the newest row, returns the newest entry.
  absl::StatusOr<LedgerPage> ReadLedgerPage(int64_t after_seq, int64_t max_entries);
  // Packs rows after `after` into segments while there are enough rows for one.
  absl::Status PackLedger(int64_t after, int64_t newest);

  const std::shared_ptr<RedisClient> client_;
  const RedisStoreConfig config_;
  const RedisStoreSettings settings_;
  const std::string prefix_;
  const std::string generation_;
  const std::string threshold_us_;
  RedisChangeFeed feed_;
  Mutex mu_;
  Claim claim_ ABSL_GUARDED_BY(mu_);
  int64_t pressed_percent_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time memory_read_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_H_
