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
  // Null: leases run by the server's clock (Redis TIME). A clock given here must outlive the store,
  // and be the same for all members of the job: for tests.
  const Clock* clock = nullptr;
  // After a time this long without any operation of any member, Redis was away and nobody could
  // renew: the first operation extends all leases by that time. Zero: never. Absent: a quarter of
  // the lease's TTL by the server's clock, never by a clock of one's own. Whoever calls Sweep does
  // so several times within it, or quiet times would pass for outages.
  std::optional<absl::Duration> outage_threshold;
  // Called after each script that was answered, with its name (as of its file) and the time that
  // its round trip took. Called from the threads of the operations.
  std::function<void(std::string_view script, absl::Duration took)> on_script;
  // Maximum age of the server's memory figures, which LeasePrompts and NextBatch refresh.
  absl::Duration memory_period = absl::Seconds(1);
  // Sweep packs ledger rows into segments of about this many. At least 1.
  int64_t ledger_segment_rows = 4096;
};

// The store of a job whose roles are separate processes: each of them has an object of its own on
// the same Redis. The object keeps no state that matters: any process may die at any time, and
// another one goes on with the next operation.
//
// Schema. All keys begin with "{JOB}:", so that they share a slot. `config` (JSON, written once,
//   with the number of this format), `options` and `state` (packed: what the scripts need of it;
//   version, epoch, counters), `g:ORDINAL` (hash: a group and its samples' descriptors), sorted
//   sets over groups (`queue`, `kept`, `open`, `ready` by min version, `gleases` by expiry) and
//   rows (`rows:TASK`, `rleases:TASK`), `holds` and `tokens` (lease token -> row, group),
//   `claimed`, `step:S`, `digests`, `durable` (the journal), `ledger` (stream; one entry per group,
//   its id the number of its first row), `segments` (stream; ledger rows that Sweep has packed),
//   `stats`, `reasons`, `engines`, `replay`, `replays`,
//   `row_answers`, `revoked`, `above`, `dead` (list, the newest kMaxDeadLetters), `changes` (hash)
//   with a channel `changed:TOPIC` for each, `trash` (what is to be deleted, by time). Bytes:
//   `b:p:ORDINAL:SUM` (prompt), `b:TOKEN:INDEX:SUM` (response or partial) and `b:TOKEN:r:SUM`
//   (reference log-probs), TOKEN being the fencing token of the lease they were made under and SUM
//   their checksum.
// Atomicity. Each operation is one script in one round trip; those that bring bytes send them in
//   front, in the same round trip, under a name that nobody else uses, to expire in 5 minutes; the
//   script makes them permanent or refuses. So no refused worker changes accepted bytes. PutSamples
//   and PutRows are one script per 256 entries or 16 MiB of bytes, whichever comes first.
//   Operations that hand bytes out fetch them in a second round trip; what was deleted in between
//   belonged to a group that ended, and is left out. Bytes of ended attempts are deleted a minute
//   (or one lease TTL) later, those of durable steps at once, by Sweep, in slices.
// Failure. UNAVAILABLE: the effect of the call is unknown until it is repeated; all operations may
//   be. RESOURCE_EXHAUSTED: Redis is at its memory limit, nothing changed; operations that free
//   memory or move the job on work nevertheless. From kPressurePercent of the limit on,
//   LeasePrompts admits only the groups of one step and NextBatch reports store_full, which leaves
//   room for samples of running groups. Bytes that are gone or fail their checksum end their group
//   as dropped(corrupt) and the call goes on without it; if the group is trained already, NextBatch
//   (of a redo) gives DATA_LOSS. NOT_FOUND when the store was deleted, or made anew for a fork.
// Costs. A script takes tens of microseconds of the server; a claim of 64 groups of 16 samples
//   about 0.9 ms (docs/benchmarks.md). What a script does grows with the groups and rows that it
//   moves, never with the tokens.
// Loopholes. With an appendfsync other than `always`, a Redis that dies forgets acknowledged
//   operations. Ordinals and versions are counted in doubles: up to 2^53. A repeated request_id
//   leaves out leases whose group has ended and been deleted.
// Thread-safe.
class RedisTrajectoryStore final : public TrajectoryStore {
 public:
  // Writes the job's configuration and opens it; with the same options and origin it opens the
  // store that is there. INVALID_ARGUMENT: RedisStoreConfig::Validate. FAILED_PRECONDITION: the job
  // has a store with other values; the message names the first difference. FAILED_PRECONDITION
  // also when the store is of another format than this program's (kRedisStoreFormat); the message
  // names both and what to do.
  static absl::StatusOr<std::unique_ptr<RedisTrajectoryStore>> Create(
      std::shared_ptr<RedisClient> client, StoreOptions options, StoreOrigin origin,
      RedisStoreSettings settings = {});
  // Opens the job's store. NOT_FOUND when there is none; another format as for Create.
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
  // Also packs ledger rows, at most 16 segments a call, and deletes what is due, at most about
  // 6,000 groups a call.
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

  // Bytes to write, by their name behind "{JOB}:b:".
  struct Blob {
    std::string name;
    std::string bytes;
  };
  // The first value of a script's reply, by its text there.
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
  // A script's reply.
  struct Answer {
    Code code = Code::kOk;
    std::vector<RedisReply> values;
    absl::Status bytes;  // why bytes that came along were refused, the first of them
    // INTERNAL unless there are that many values.
    absl::Status Expect(size_t num_values) const;
  };
  // Where bytes are, and which field of which attempt says so.
  struct BlobPlace {
    std::string name;
    int64_t ordinal = 0;
    int64_t attempt = 0;
    std::string field;  // as in drop_corrupt.lua
    std::string checksum;
    int64_t offset = 0;  // in the blob
    int64_t size = 0;    // 0: the whole blob
  };
  // What to fetch: each place once, named by its position.
  struct FetchPlan {
    std::vector<BlobPlace> places;
    std::map<std::string, size_t> prompts;  // position by blob name

    size_t Add(BlobPlace place);
    size_t AddPrompt(BlobPlace place);
  };
  // A sample as the scripts describe it, before its bytes are there.
  struct SampleTicket {
    SampleKey key;
    std::string score;
    size_t prompt = 0;  // positions in the plan
    size_t response = 0;
    std::optional<size_t> ref;
  };
  // A lease before its bytes are there.
  struct LeaseTicket {
    GroupLease lease;
    size_t prompt = 0;                                // positions in the plan
    std::vector<std::pair<size_t, size_t>> partials;  // position in `missing`, and in the plan
  };
  // Decoded bytes by position in the plan, null where the place holds something else or what cannot
  // be read; and the latter, with the reason.
  struct Bytes {
    std::vector<std::shared_ptr<const Prompt>> prompts;
    std::vector<std::shared_ptr<const Response>> responses;
    std::vector<std::shared_ptr<const std::vector<float>>> floats;
    std::vector<std::pair<BlobPlace, std::string>> corrupt;
  };
  // Entries of a call for a script that answers with the errors of entries; one round trip.
  struct Put {
    size_t position = 0;            // in the caller's list
    std::vector<std::string> args;  // as many for each
  };
  struct PutSlice {
    std::vector<Put> puts;
    std::vector<Blob> blobs;
    size_t bytes = 0;
    bool Full() const;
  };
  // Samples of one lease in one blob, while it is being filled.
  struct SampleBlob {
    std::string bytes;
    int32_t first = 0;         // index of the first sample
    std::string sums;          // checksums of the samples
    std::vector<size_t> puts;  // in the slice
  };
  // Why a script did not take the entry at `position`.
  struct PutError {
    size_t position = 0;
    std::string code;
    int64_t values[3] = {0, 0, 0};
  };
  // The batch that NextBatch gave last, for the digest of its commit.
  struct Claim {
    int64_t epoch = 0;
    int64_t step = 0;
    std::string digest;  // of the version before
    std::string ordinals;
    std::vector<int64_t> attempts;
  };

  std::vector<std::string> ScriptArgs(std::vector<std::string> args) const;
  // Commands that bring bytes, before the script that makes them permanent or refuses.
  using Commands = std::vector<std::vector<std::string>>;
  Commands SetCommands(std::vector<Blob> blobs) const;
  absl::StatusOr<Answer> Run(const RedisScript& script, std::vector<std::string> args,
                             std::vector<Blob> blobs = {});
  // One try: the script behind `sets`, which stay as they are.
  absl::StatusOr<Answer> Send(const RedisScript& script, std::vector<std::string> args,
                              Commands& sets);
  absl::StatusOr<Answer> Accept(RedisReply reply);
  // Memory use of the server in percent of its limit while DecidePressure says `pressed`;
  // otherwise, and when the server does not answer, 0.
  int64_t PressedPercent() ABSL_LOCKS_EXCLUDED(mu_);

  // redis_trajectory_store_puts.cc
  // The script's arguments for these entries.
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
  // Token of the port <-> token of the scripts.
  std::string ScriptToken(int64_t token) const;
  int64_t PortToken(int64_t token) const { return token + config_.origin.TokenBase(); }

  // redis_trajectory_store_bytes.cc
  absl::StatusOr<Bytes> Fetch(const FetchPlan& plan);
  absl::Status FetchSlice(const FetchPlan& plan, size_t first, size_t behind, Bytes& bytes);
  static void Decode(const FetchPlan& plan, size_t position, std::string_view blob, Bytes& bytes);
  BlobPlace PromptPlace(int64_t ordinal, int64_t attempt, const std::string& sum) const;
  // Adds the places of a sample: `record` is a SampleRecord, `ref` is "TOKEN CHECKSUM" or "".
  absl::Status AddPlaces(std::string_view record, std::string_view ref,
                         const std::string& prompt_sum, FetchPlan& plan,
                         SampleTicket& ticket) const;
  // Null members where the bytes are not there.
  absl::StatusOr<SampleView> View(const SampleTicket& ticket, const Bytes& bytes) const;
  // Ends the groups of these places; DATA_LOSS when one is trained already.
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
    int64_t after = 0;    // ignore rows up to this one: they are read or trimmed
    bool packed = false;  // from a segment
    std::vector<RedisReply> entries;
  };
  // Reads the segment that holds row after_seq + 1, or up to `max_entries` entries, of which the
  // first holds that row. Past the newest row: the newest entry.
  absl::StatusOr<LedgerPage> ReadLedgerPage(int64_t after_seq, int64_t max_entries);
  // Packs the rows behind `after` into segments while enough rows for one are left.
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
