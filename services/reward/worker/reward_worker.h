#ifndef FRESHET_SERVICES_REWARD_WORKER_REWARD_WORKER_H_
#define FRESHET_SERVICES_REWARD_WORKER_REWARD_WORKER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"
#include "services/reward/scorers/composite_scorer.h"
#include "services/reward/worker/held_leases.h"
#include "services/reward/worker/lease_ahead.h"
#include "services/reward/worker/outage.h"

namespace freshet {

// Decodes response tokens, skipping special tokens. Called from all of the worker's threads.
using ResponseDecoder = std::function<std::string(const std::vector<int32_t>&)>;

struct RewardWorkerOptions {
  std::string job;  // that log lines name
  std::string worker = "reward-0";
  std::string request_prefix;  // of request ids; unique among workers of the same name
  int64_t parallel = 1;        // rows that Run scores concurrently, >= 1
  // Rows leased at once, >= 1. Run leases more if it has more idle threads, and fewer until it
  // knows how long rows take.
  int64_t batch_rows = 256;
  absl::Duration score_timeout = absl::Seconds(1);  // per row, shared by its components
  // Work that Run leases ahead per thread, estimated from past row times. Rows stuck behind a slow
  // one would be better off with other workers.
  absl::Duration batch_time = absl::Seconds(1);
  // Scores are stored in batches, delayed by at most this.
  absl::Duration put_period = absl::Milliseconds(20);
  absl::Duration max_wait = absl::Milliseconds(100);  // longest single wait for rows
  absl::Duration look_again = absl::Seconds(1);       // poll interval without store changes
  // Minimum time between two leases of rows, unless the first one returned all that it asked for.
  // Batches rows that arrive one by one.
  absl::Duration lease_period = absl::ZeroDuration();
  absl::Duration renewal_check = absl::Milliseconds(250);  // period of RenewWhenDue
  // Maximum number of rows in hand, including scores not yet stored.
  int64_t max_in_hand = 4096;
  // Backoff while the scorer or the store is unavailable: first pause, which doubles, and longest
  // pause.
  absl::Duration first_retry = absl::Milliseconds(200);
  absl::Duration longest_retry = absl::Seconds(5);
  double trace_ratio = 0;  // share of samples with lifecycle logging
  // Counts calls of components with a limit; outlives the worker. Null: none is counted.
  CallBudget* calls = nullptr;
};

// Results of the rows that a worker leased; each row counts in one of the first six.
struct RewardCounters {
  int64_t ok = 0;            // scored, outcome kOk
  int64_t wrong_format = 0;  // scored, outcome kWrongFormat
  int64_t timeouts = 0;      // failed with DEADLINE_EXCEEDED, to be retried
  int64_t infra_errors = 0;  // failed otherwise, to be retried
  int64_t returned = 0;      // handed back because the scorer was or became unavailable
  // Processed, but the store refused the result (the lease was gone); or abandoned because the
  // lease was lost or the worker stopped.
  int64_t lost = 0;
  int64_t unsent = 0;        // rows with a score that is not yet stored
  int64_t store_errors = 0;  // failed calls to LeaseRows
  // The store refuses the worker's name because it was revoked. Nothing more is leased.
  bool fenced = false;

  int64_t scored() const { return ok + wrong_format; }
  int64_t failed() const { return timeouts + infra_errors; }
};

// Leases rows, scores them and stores the rewards. A row whose scorer fails is handed back with the
// reason (FailRow), never rewarded. While the scorer is unavailable (UNAVAILABLE), no row fails:
// rows are handed back, and one at a time is tried, with backoff. The same applies if the scorer
// becomes unavailable while it has a row (ABORTED), but a row fails every second time this happens
// to it with no other row being scored here. Scores that cannot be stored are kept and retried.
// Leases of rows in hand are renewed, however long scoring takes; a row whose lease is lost anyway
// is abandoned. Any number of workers may share a store and a scorer.
//
// The store, the scorer and the clock must outlive the worker. Only one thread at a time may call
// RunOnce or Run; Run starts `parallel` threads of its own. The other methods are thread-safe.
class RewardWorker {
 public:
  RewardWorker(RowQueue& store, const CompositeScorer& scorer, ResponseDecoder decoder,
               RewardWorkerOptions options, const Clock& clock = SystemClock::Get());

  // Leases up to batch_rows rows and processes them without waiting for more. Returns the number of
  // rows whose score was stored. Store errors are logged and counted.
  int64_t RunOnce();

  // Processes rows until `stop` is requested, then finishes the leased ones, cancelling scorers
  // that wait for a service. May overrun by max_wait; RowQueue::Close() ends the wait at
  // once.
  void Run(std::stop_token stop);

  // Renews the leases of all rows in hand if a third of their duration has passed since the last
  // renewal. Run calls it on its own thread.
  void RenewWhenDue() { leases_.RenewWhenDue(); }

  RewardCounters counters() const;
  // The scorer or store that it waits for, since when and why; "" if both are available.
  std::string WaitsFor() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct HeldRow {
    RowLease row;
    std::stop_token cancel;
    int64_t number = 0;  // of rows whose scoring began, including this one
    bool alone = false;  // no other row was being scored then
  };
  // Stores scores and renews leases while the other threads may be busy for long.
  void RenewLoop() ABSL_LOCKS_EXCLUDED(mu_);
  void ScoreLoop();
  // Returns the next row to score, storing scores and leasing rows as needed; nullopt once the
  // worker stops.
  std::optional<HeldRow> Next() ABSL_LOCKS_EXCLUDED(mu_);
  HeldRow PopQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Process(const HeldRow& held) ABSL_LOCKS_EXCLUDED(mu_);
  // The scorer became unavailable while it had this row. Returns whether the row has failed.
  bool IsSuspect(const HeldRow& held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns nullopt if the row could not be scored; it is then handed back.
  std::optional<Score> ScoreRow(const HeldRow& held, absl::Time start);
  // `away`: an outage, which does not count as a failure of the row.
  void HandBack(const RowLease& row, const absl::Status& error, bool away);

  // Called by the one thread that has set leasing_.
  void LeaseMore() ABSL_LOCKS_EXCLUDED(mu_);
  bool AwaitRows() ABSL_LOCKS_EXCLUDED(mu_);
  int64_t LeaseRows(int64_t max_rows) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t Room() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  bool PutDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PutWhenDue() ABSL_LOCKS_EXCLUDED(mu_);
  // Called by the one thread that has set putting_.
  void PutDone() ABSL_LOCKS_EXCLUDED(mu_);
  // On error, none of the scores are stored yet; they may be put again.
  absl::Status PutScores(const std::vector<RowPut>& scores);
  // Called after all other threads have ended: tries once more to store the remaining scores; those
  // that fail are lost.
  void PutRest() ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  void Count(int64_t RewardCounters::*counter, int64_t rows = 1) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    counters_.*counter += rows;
  }

  RowQueue& store_;
  const CompositeScorer& scorer_;
  const ResponseDecoder decoder_;
  const RewardWorkerOptions options_;
  const Clock& clock_;

  // Used by the leasing thread only.
  uint64_t rows_seen_ = 0;   // change count before the last lease
  int64_t requests_ = 0;     // answered calls to LeaseRows
  bool await_rows_ = false;  // the last lease drained the available rows
  bool store_down_ = false;  // the last LeaseRows failed and was logged
  absl::Time next_lease_ = absl::InfinitePast();
  absl::Time look_again_ = absl::InfinitePast();

  // Of the rows in queue_, being scored, in done_ or being stored. Changed under mu_.
  HeldLeases leases_;
  mutable Mutex mu_;
  CondVar work_;        // for scoring and leasing threads
  CondVar renewal_cv_;  // for the renewal thread
  std::deque<RowLease> queue_ ABSL_GUARDED_BY(mu_);
  int64_t scoring_ ABSL_GUARDED_BY(mu_) = 0;  // rows being scored
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;    // total number of rows whose scoring began
  // Uids of rows during which the scorer became unavailable once while they were scored alone.
  std::set<std::string> suspects_ ABSL_GUARDED_BY(mu_);
  std::vector<RowPut> done_ ABSL_GUARDED_BY(mu_);
  absl::Time put_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // of done_
  bool putting_ ABSL_GUARDED_BY(mu_) = false;
  Outage scorer_away_ ABSL_GUARDED_BY(mu_);
  Outage store_away_ ABSL_GUARDED_BY(mu_);  // for puts
  bool leasing_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool only_failures_ ABSL_GUARDED_BY(mu_) = false;  // the last row failed
  LeaseAhead ahead_ ABSL_GUARDED_BY(mu_);
  RewardCounters counters_ ABSL_GUARDED_BY(mu_);  // without `unsent`
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_WORKER_REWARD_WORKER_H_
