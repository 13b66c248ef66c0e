#ifndef FRESHET_SERVICES_REWARD_REWARD_WORKER_H_
#define FRESHET_SERVICES_REWARD_REWARD_WORKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "datastore/trajectory_store.h"
#include "services/reward/composite_scorer.h"

namespace freshet {

// Text of response tokens, special tokens skipped. Called from all of the worker's threads.
using ResponseDecoder = std::function<std::string(const std::vector<int32_t>&)>;

struct RewardWorkerOptions {
  std::string worker = "reward-0";
  int64_t batch_rows = 256;                         // rows leased at once, >= 1
  int64_t parallel = 1;                             // rows that Run scores at the same time, >= 1
  absl::Duration score_timeout = absl::Seconds(1);  // per row, shared by its components
  // Work that one of Run's threads leases at once, by the time that rows took so far: what it holds
  // must be scored long before its leases end.
  absl::Duration batch_time = absl::Seconds(1);
  // Scores are put together, but none of them waits longer than this and one row's scoring.
  absl::Duration put_period = absl::Milliseconds(20);
  absl::Duration max_wait = absl::Milliseconds(100);  // bound of one wait for rows
  // Least time from one lease of rows to the next, unless the first one brought all that it asked
  // for: rows that come one by one are leased and put together.
  absl::Duration lease_period = absl::ZeroDuration();
};

// What happened to the rows that a worker leased; each row counts in one of the first five.
struct RewardCounters {
  int64_t ok = 0;            // scored, outcome kOk
  int64_t wrong_format = 0;  // scored, outcome kWrongFormat
  int64_t timeouts = 0;      // failed with DEADLINE_EXCEEDED, to be tried again
  int64_t infra_errors = 0;  // failed otherwise, to be tried again
  int64_t lost = 0;          // processed, but the store refused the result (lease gone, store down)
  int64_t store_errors = 0;  // calls to LeaseRows that failed

  int64_t scored() const { return ok + wrong_format; }
  int64_t failed() const { return timeouts + infra_errors; }
};

// Leases rows of Task::kScore, scores them and puts the rewards. A row whose scorer fails is handed
// back with the reason (FailRow) and never rewarded. Any number of workers may share a store and a
// scorer.
//
// The store and the scorer must outlive the worker. RunOnce and Run are confined to one thread at a
// time, the one that calls them, beside which Run has `parallel` - 1 of its own; counters() is
// thread-safe.
class RewardWorker {
 public:
  RewardWorker(TrajectoryStore& store, const CompositeScorer& scorer, ResponseDecoder decoder,
               RewardWorkerOptions options);

  // Leases up to batch_rows rows and processes them without waiting for more. Returns the number of
  // rows whose score the store accepted. Errors of the store are logged and counted.
  int64_t RunOnce();

  // Calls RunOnce until `stop` is requested; waits in between while there are no rows. Returns at
  // most max_wait and one batch after the request; TrajectoryStore::Close() ends the wait at once.
  void Run(std::stop_token stop);

  RewardCounters counters() const;

 private:
  struct Batch {
    int64_t leased = 0;
    int64_t scored = 0;
  };
  Batch ProcessBatch(int64_t max_rows);
  // One of Run's threads.
  void Loop(std::stop_token stop);
  int64_t NextBatchRows(int64_t max_rows, int64_t rows, absl::Duration took) const;
  // Nothing for a row that could not be scored, which is handed back.
  std::optional<Score> ScoreRow(const RowLease& row);
  // Returns the number of scores that the store accepted.
  int64_t PutScores(const std::vector<RowPut>& scores);

  TrajectoryStore& store_;
  const CompositeScorer& scorer_;
  const ResponseDecoder decoder_;
  const RewardWorkerOptions options_;

  std::atomic<int64_t> ok_{0};
  std::atomic<int64_t> wrong_format_{0};
  std::atomic<int64_t> timeouts_{0};
  std::atomic<int64_t> infra_errors_{0};
  std::atomic<int64_t> lost_{0};
  std::atomic<int64_t> store_errors_{0};
  std::atomic<bool> store_down_{false};  // the last LeaseRows failed, and the log says so
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_REWARD_WORKER_H_
