#ifndef FRESHET_SERVICES_SANDBOX_SERVICE_WORKER_POOL_H_
#define FRESHET_SERVICES_SANDBOX_SERVICE_WORKER_POOL_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "freshet/sandbox/v1/sandbox.pb.h"

namespace freshet::sandbox {

// 128 random bits, as text.
std::string RandomNonce();

struct WorkerPoolOptions {
  std::vector<std::string> argv;  // a worker's program and arguments
  v1::WorkerStart start;          // `folder` and `user` are those of the first worker
  int64_t workers = 1;
  int64_t max_queued = 256;
  // Programs that wait longer for a worker are refused.
  absl::Duration max_wait = absl::Minutes(1);
};

struct WorkerPoolCounters {
  int64_t programs = 0;
  int64_t lost_workers = 0;
  int64_t refused = 0;  // because too many waited, or it had waited too long
  // Programs that were ended by a limit, by CommandResult::End.
  std::array<int64_t, v1::CommandResult::End_ARRAYSIZE> limited = {};
};

// Runs programs in worker processes, each in one at a time. A worker that ends, does not answer, or
// says that it has failed is killed with everything that it has started, and replaced. Thread-safe.
class WorkerPool {
 public:
  // Called once. UNAVAILABLE: the worker was lost; DEADLINE_EXCEEDED: the program waited too long;
  // RESOURCE_EXHAUSTED: too many programs wait; CANCELLED: the pool ends, or the caller has left.
  using Done = std::function<void(absl::StatusOr<v1::Outcome>)>;

  // Starts the first worker, and the others when they are needed. FAILED_PRECONDITION or
  // UNAVAILABLE: programs cannot be confined here as they must.
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Start(WorkerPoolOptions options);
  // Answers what waits with CANCELLED, and kills the workers.
  ~WorkerPool();

  // Sets the nonce. `done` is called here or on a thread of the pool; it must not wait. Once
  // `abandoned` is requested, a program that waits is not run, and one that runs is ended.
  void Run(v1::Program program, Done done, std::stop_token abandoned = {}) ABSL_LOCKS_EXCLUDED(mu_);

  // What isolates programs, by name.
  const std::vector<std::string>& layers() const { return layers_; }
  int64_t queued() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t busy() const ABSL_LOCKS_EXCLUDED(mu_);
  WorkerPoolCounters counters() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Worker;
  struct Waiting {
    v1::Program program;
    Done done;
    absl::Time since;
    std::stop_token abandoned;
  };

  explicit WorkerPool(WorkerPoolOptions options);
  absl::StatusOr<std::unique_ptr<Worker>> StartWorker(int64_t number)
      ABSL_LOCKS_EXCLUDED(processes_mu_);
  void EndWorker(std::unique_ptr<Worker> worker) ABSL_LOCKS_EXCLUDED(processes_mu_);
  void Work(int64_t number, std::unique_ptr<Worker> worker) ABSL_LOCKS_EXCLUDED(mu_);
  // If the queue is full, takes out and answers what nobody waits for.
  void DropAbandoned() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs a program. Null `worker` afterwards: it was lost or ended.
  absl::StatusOr<v1::Outcome> RunIn(int64_t number, std::unique_ptr<Worker>& worker,
                                    const Waiting& waiting) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Late() ABSL_LOCKS_EXCLUDED(mu_);
  void CountLimit(const v1::Outcome& outcome) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits after a worker that did not start, and answers programs that have waited too long. False:
  // the pool ends.
  bool PauseBeforeStart() ABSL_LOCKS_EXCLUDED(mu_);
  // The next program; nullopt: the pool ends.
  std::optional<Waiting> Next() ABSL_LOCKS_EXCLUDED(mu_);

  const WorkerPoolOptions options_;
  std::vector<std::string> layers_;
  std::atomic<int64_t> starts_{0};  // of workers
  // Held while a worker is started or what it has left is killed.
  Mutex processes_mu_;
  std::vector<pid_t> processes_ ABSL_GUARDED_BY(processes_mu_);  // of the workers
  bool stopping_ ABSL_GUARDED_BY(processes_mu_) = false;         // no worker is started any more
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mu_);
  bool ends_ ABSL_GUARDED_BY(mu_) = false;
  int64_t busy_ ABSL_GUARDED_BY(mu_) = 0;
  WorkerPoolCounters counters_ ABSL_GUARDED_BY(mu_);
  std::vector<std::jthread> threads_;
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_SERVICE_WORKER_POOL_H_
