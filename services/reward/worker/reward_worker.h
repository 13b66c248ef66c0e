#ifndef FRESHET_SERVICES_REWARD_WORKER_REWARD_WORKER_H_
#define FRESHET_SERVICES_REWARD_WORKER_REWARD_WORKER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
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

namespace freshet {

// Text of response tokens, special tokens skipped. Called from all of the worker's threads.
using ResponseDecoder = std::function<std::string(const std::vector<int32_t>&)>;

struct RewardWorkerOptions {
  std::string worker = "reward-0";
  std::string request_prefix;  // of request ids; unique among workers of the same name
  int64_t parallel = 1;        // rows that Run scores at the same time, >= 1
  // Rows leased at once, >= 1. Run leases as many as its idle threads where that is more, and fewer
  // as long as it does not know how long rows take.
  int64_t batch_rows = 256;
  absl::Duration score_timeout = absl::Seconds(1);  // per row, shared by its components
  // Work that Run leases ahead for each of its threads, by the time that rows took so far: rows
  // that a slow one would hold up are better off with other workers.
  absl::Duration batch_time = absl::Seconds(1);
  // Scores are put together, but none of them waits longer than this.
  absl::Duration put_period = absl::Milliseconds(20);
  absl::Duration max_wait = absl::Milliseconds(100);  // bound of one wait for rows
  absl::Duration look_again = absl::Seconds(1);  // for rows, though the store tells of no change
  // Least time from one lease of rows to the next, unless the first one brought all that it asked
  // for: rows that come one by one are leased and put together.
  absl::Duration lease_period = absl::ZeroDuration();
  absl::Duration renewal_check = absl::Milliseconds(250);  // looks so often whether one is due
  // Most rows in hand, including those with a score that the store has not taken.
  int64_t max_in_hand = 4096;
  // Back-off while the scorer or the store is unavailable: the first pause, which doubles, and the
  // longest one.
  absl::Duration first_retry = absl::Milliseconds(200);
  absl::Duration longest_retry = absl::Seconds(5);
  double trace_ratio = 0;  // share of the samples whose lives are logged
};

// What happened to the rows that a worker leased; each row counts in one of the first six.
struct RewardCounters {
  int64_t ok = 0;            // scored, outcome kOk
  int64_t wrong_format = 0;  // scored, outcome kWrongFormat
  int64_t timeouts = 0;      // failed with DEADLINE_EXCEEDED, to be tried again
  int64_t infra_errors = 0;  // failed otherwise, to be tried again
  int64_t returned = 0;      // handed back, because the scorer was or became unavailable
  // Processed, but the store refused the result (lease gone); or given up, when the lease was lost
  // or the worker stopped.
  int64_t lost = 0;
  int64_t unsent = 0;        // rows with a score that the store has not taken yet
  int64_t store_errors = 0;  // calls to LeaseRows that failed
  // The store refuses the worker's name: somebody revoked it. Nothing is leased under it again.
  bool fenced = false;

  int64_t scored() const { return ok + wrong_format; }
  int64_t failed() const { return timeouts + infra_errors; }
};

// Leases rows of Task::kScore, scores them and puts the rewards. A row whose scorer fails is handed
// back with the reason (FailRow) and never rewarded. While the scorer is unavailable (UNAVAILABLE)
// no row fails: rows are handed back, and one at a time is tried, with back-off. The same holds
// when the scorer becomes unavailable while it has a row (ABORTED); but every second time that this
// happens to the same row with no other row being scored here, the row has failed. Scores that the
// store does not take are kept and put again. The leases of rows in hand are renewed, however long
// their scoring takes; a row whose lease is lost all the same is given up. Any number of workers
// may share a store and a scorer.
//
// The store, the scorer and the clock must outlive the worker. RunOnce and Run are confined to one
// thread at a time, the one that calls them, beside which Run has `parallel` of its own; the others
// are thread-safe.
class RewardWorker {
 public:
  RewardWorker(TrajectoryStore& store, const CompositeScorer& scorer, ResponseDecoder decoder,
               RewardWorkerOptions options, const Clock& clock = SystemClock::Get());

  // Leases up to batch_rows rows and processes them without waiting for more. Returns the number of
  // rows whose score the store accepted. Errors of the store are logged and counted.
  int64_t RunOnce();

  // Processes rows as they come until `stop` is requested; then what is leased is finished, but
  // scorers that wait for somebody are told to give up. Returns at most max_wait and that later;
  // TrajectoryStore::Close() ends the wait at once.
  void Run(std::stop_token stop);

  // Extends the leases of all rows in hand, if a third of their time has passed since that was done
  // last. Run calls it on a thread of its own.
  void RenewWhenDue() ABSL_LOCKS_EXCLUDED(mu_);

  RewardCounters counters() const;
  // The scorer or the store that it waits for, since when and why; "" when both answer.
  std::string WaitsFor() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct HeldRow {
    RowLease row;
    std::stop_token cancel;
    int64_t number = 0;  // of rows whose scoring began, this one included
    bool alone = false;  // no other was being scored then
  };
  // An outage of the scorer or the store: from the first failed call to the next success.
  struct Outage {
    std::string reason;  // empty: none
    absl::Time since;
    int64_t failures = 0;  // in a row
    absl::Time retry_at;
  };
  struct Turn {
    std::stop_token stop;
    Notification stopped;
  };

  void Keep(Turn& turn) ABSL_LOCKS_EXCLUDED(mu_);
  // One of Run's threads that score.
  void Loop(Turn& turn);
  // Waits for a row to score, puts what is to be put, and leases rows when none is left; nothing
  // once `turn` is stopped.
  std::optional<HeldRow> Next(Turn& turn) ABSL_LOCKS_EXCLUDED(mu_);
  HeldRow PopQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Process(const HeldRow& held) ABSL_LOCKS_EXCLUDED(mu_);
  // Its scorer went away in the middle of it. Whether that is a failure of the row.
  bool IsSuspect(const HeldRow& held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nothing for a row that could not be scored, which is handed back.
  std::optional<Score> ScoreRow(const HeldRow& held, absl::Time start);
  // `away`: no fault of the row.
  void HandBack(const RowLease& row, const absl::Status& error, bool away);
  // Records a failed call that began at `start`. Calls that overlap count as one try.
  void Note(Outage& outage, const std::string& what, const absl::Status& error, absl::Time start)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // By the one thread that has set leasing_.
  void LeaseMore(Turn& turn) ABSL_LOCKS_EXCLUDED(mu_);
  bool AwaitRows(Turn& turn) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t LeaseRows(int64_t max_rows) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t Room() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  bool PutDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // By the one thread that has set putting_.
  void PutDone() ABSL_LOCKS_EXCLUDED(mu_);
  // On error the store has taken none and may take them later.
  absl::Status PutScores(const std::vector<RowPut>& scores);
  // When all other threads have ended: a last try to put the scores left; those that fail are lost.
  void PutRest() ABSL_LOCKS_EXCLUDED(mu_);
  void GiveUpAll() ABSL_LOCKS_EXCLUDED(mu_);

  TrajectoryStore& store_;
  const CompositeScorer& scorer_;
  const ResponseDecoder decoder_;
  const RewardWorkerOptions options_;
  const Clock& clock_;

  // Of the thread that leases.
  uint64_t rows_seen_ = 0;   // change count before the last lease
  int64_t requests_ = 0;     // calls to LeaseRows that were answered
  bool await_rows_ = false;  // there were no more rows than it brought
  absl::Time next_lease_ = absl::InfinitePast();
  absl::Time look_again_ = absl::InfinitePast();

  mutable Mutex mu_;
  CondVar work_;        // for threads that score
  CondVar renewal_cv_;  // for the one that keeps
  // Rows whose leases are ours: waiting in queue_, being scored, in done_ or on their way. By
  // token.
  std::map<int64_t, std::stop_source> in_hand_ ABSL_GUARDED_BY(mu_);
  std::deque<RowLease> queue_ ABSL_GUARDED_BY(mu_);
  int64_t scoring_ ABSL_GUARDED_BY(mu_) = 0;  // rows that threads are scoring
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;    // rows whose scoring began, ever
  // Uids of rows in whose middle the scorer went away once, while they were alone.
  std::set<std::string> suspects_ ABSL_GUARDED_BY(mu_);
  std::vector<RowPut> done_ ABSL_GUARDED_BY(mu_);
  absl::Time put_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // of done_
  bool putting_ ABSL_GUARDED_BY(mu_) = false;
  Outage scorer_away_ ABSL_GUARDED_BY(mu_);
  Outage store_away_ ABSL_GUARDED_BY(mu_);  // for puts
  bool leasing_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool only_failures_ ABSL_GUARDED_BY(mu_) = false;  // recently
  absl::Time next_renewal_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  // Pace: rows leased ahead per thread, which doubles when rows have been measured since.
  int64_t ahead_ ABSL_GUARDED_BY(mu_) = 1;
  bool measured_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration row_time_ ABSL_GUARDED_BY(mu_);

  std::atomic<int64_t> ok_{0};
  std::atomic<int64_t> wrong_format_{0};
  std::atomic<int64_t> timeouts_{0};
  std::atomic<int64_t> infra_errors_{0};
  std::atomic<int64_t> returned_{0};
  std::atomic<int64_t> lost_{0};
  std::atomic<int64_t> store_errors_{0};
  std::atomic<bool> fenced_{false};
  bool store_down_ =
      false;  // the last LeaseRows failed, and the log says so; of the leasing thread
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_WORKER_REWARD_WORKER_H_
