#include "services/sandbox/service/worker_pool.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/message_socket.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/subprocess.h"
#include "services/sandbox/worker/process_tree.h"
#include "services/sandbox/worker/program_folder.h"

namespace freshet::sandbox {
namespace {

constexpr absl::Duration kStartTimeout = absl::Minutes(2);
// Of a worker, beyond the time limits of the program: to begin, to end it, and to tidy up.
constexpr absl::Duration kExtraTime = absl::Seconds(60);
constexpr absl::Duration kRestartPause = absl::Seconds(1);
constexpr absl::Duration kSendTimeout = absl::Seconds(30);

absl::Duration TimeOf(const v1::Program& program) {
  return absl::Milliseconds(program.compile_ms()) +
         program.inputs_size() * absl::Milliseconds(program.run_ms()) + kExtraTime;
}

absl::Status Unavailable(const std::string& why) { return absl::UnavailableError(why); }

absl::Status CallerHasLeft() { return absl::CancelledError("the caller has left"); }

// A folder of a worker's own, empty.
absl::Status MakeFolder(const std::string& path, unsigned user) {
  FRESHET_RETURN_IF_ERROR(RemoveFolder(path));
  if (::mkdir(path.c_str(), 0700) != 0 || (user > 0 && ::chown(path.c_str(), user, user) != 0)) {
    return Unavailable(StrCat(path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string RandomNonce() {
  std::random_device random;
  return StrCat(random(), "-", random(), "-", random(), "-", random());
}

class WorkerPool::Worker {
 public:
  Worker(std::string folder, std::unique_ptr<Subprocess> process, UniqueFd socket)
      : folder_(std::move(folder)), process_(std::move(process)), socket_(std::move(socket)) {}

  const std::string& folder() const { return folder_; }

  absl::StatusOr<std::vector<std::string>> Begin(const v1::WorkerStart& start) {
    v1::WorkerReady ready;
    FRESHET_RETURN_IF_ERROR(socket_.Send(start, kSendTimeout));
    FRESHET_RETURN_IF_ERROR(socket_.Receive(ready, kStartTimeout));
    if (!ready.error().empty()) {
      return FailedPrecondition("programs cannot be confined here: ", ready.error());
    }
    return std::vector<std::string>(ready.layers().begin(), ready.layers().end());
  }

  // The worker is of no use after `abandoned` is requested.
  absl::StatusOr<v1::Outcome> Run(const v1::Program& program, const std::stop_token& abandoned) {
    const std::stop_callback on_abandoned(abandoned, [this] { socket_.Shutdown(); });
    v1::Outcome outcome;
    FRESHET_RETURN_IF_ERROR(socket_.Send(program, kSendTimeout));
    FRESHET_RETURN_IF_ERROR(socket_.Receive(outcome, TimeOf(program)));
    if (outcome.nonce() != program.nonce()) return DataLoss("an outcome of another program");
    if (!outcome.error().empty()) return Unavailable(outcome.error());
    return outcome;
  }

  Subprocess& process() { return *process_; }

 private:
  const std::string folder_;
  const std::unique_ptr<Subprocess> process_;
  MessageSocket socket_;
};

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Start(WorkerPoolOptions options) {
  // What a lost worker leaves becomes this process's child.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return Internal("PR_SET_CHILD_SUBREAPER");
  std::unique_ptr<WorkerPool> pool(new WorkerPool(std::move(options)));
  FRESHET_ASSIGN_OR_RETURN(auto first, pool->StartWorker(0));
  for (int64_t number = 0; number < pool->options_.workers; ++number) {
    pool->threads_.emplace_back(
        [raw = pool.get(), number, worker = std::exchange(first, nullptr)]() mutable {
          raw->Work(number, std::move(worker));
        });
  }
  return pool;
}

WorkerPool::WorkerPool(WorkerPoolOptions options) : options_(std::move(options)) {}

WorkerPool::~WorkerPool() {
  std::deque<Waiting> left;
  {
    const MutexLock lock(mu_);
    ends_ = true;
    left.swap(queue_);
    changed_.NotifyAll();
  }
  for (Waiting& waiting : left) waiting.done(absl::CancelledError("the sandbox ends"));
  {
    const MutexLock lock(processes_mu_);
    stopping_ = true;
    for (const pid_t process : processes_) ::kill(process, SIGKILL);
  }
  threads_.clear();
}

absl::StatusOr<std::unique_ptr<WorkerPool::Worker>> WorkerPool::StartWorker(int64_t number) {
  v1::WorkerStart start = options_.start;
  if (start.user() > 0) start.set_user(start.user() + static_cast<int32_t>(number));
  // A name of its own, in case the last worker's folder cannot be removed.
  start.set_folder(StrCat(options_.start.folder(), "/worker-", number, "-", starts_.fetch_add(1)));
  std::unique_ptr<Worker> worker;
  {
    const MutexLock lock(processes_mu_);
    if (stopping_) return absl::CancelledError("the sandbox ends");
    FRESHET_RETURN_IF_ERROR(MakeFolder(start.folder(), static_cast<unsigned>(start.user())));
    FRESHET_ASSIGN_OR_RETURN(auto ends, SocketPair());
    SubprocessOptions process;
    process.argv = options_.argv;
    process.standard_input = ends.second.get();
    process.output_to_stderr = true;
    FRESHET_ASSIGN_OR_RETURN(auto started, Subprocess::Start(process));
    processes_.push_back(started->pid());
    worker = std::make_unique<Worker>(start.folder(), std::move(started), std::move(ends.first));
  }
  absl::StatusOr<std::vector<std::string>> layers = worker->Begin(start);
  if (!layers.ok()) {
    EndWorker(std::move(worker));
    return layers.status();
  }
  if (number == 0 && layers_.empty()) layers_ = *std::move(layers);
  FRESHET_LOG(Info) << "event=sandbox_worker_started worker=" << number;
  return worker;
}

void WorkerPool::EndWorker(std::unique_ptr<Worker> worker) {
  const MutexLock lock(processes_mu_);
  const pid_t process = worker->process().pid();
  const std::string folder = worker->folder();
  worker->process().Kill();
  (void)worker->process().Ending();
  worker = nullptr;
  std::erase(processes_, process);
  double ignored = 0;
  const absl::Status killed = KillAll({{::getpid()}, processes_}, kExtraTime, ignored);
  if (!killed.ok()) FRESHET_LOG(Error) << "event=strays error=" << LogQuoted(Message(killed));
  const absl::Status removed = RemoveFolder(folder);
  if (!removed.ok())
    FRESHET_LOG(Error) << "event=folder_left error=" << LogQuoted(Message(removed));
}

void WorkerPool::DropAbandoned() {
  std::deque<Waiting> left;
  {
    const MutexLock lock(mu_);
    if (std::ssize(queue_) < options_.max_queued) return;
    const auto first = std::stable_partition(
        queue_.begin(), queue_.end(),
        [](const Waiting& waiting) { return !waiting.abandoned.stop_requested(); });
    std::move(first, queue_.end(), std::back_inserter(left));
    queue_.erase(first, queue_.end());
  }
  for (Waiting& waiting : left) waiting.done(CallerHasLeft());
}

void WorkerPool::Run(v1::Program program, Done done, std::stop_token abandoned) {
  program.set_nonce(RandomNonce());
  DropAbandoned();
  absl::Status refused;
  {
    const MutexLock lock(mu_);
    if (ends_) {
      refused = absl::CancelledError("the sandbox ends");
    } else if (std::ssize(queue_) >= options_.max_queued) {
      ++counters_.refused;
      refused = ResourceExhausted(queue_.size(), " programs wait already");
    } else {
      queue_.push_back({std::move(program), std::move(done), absl::Now(), std::move(abandoned)});
      changed_.NotifyAll();
      return;
    }
  }
  done(std::move(refused));
}

std::optional<WorkerPool::Waiting> WorkerPool::Next() {
  const MutexLock lock(mu_);
  while (queue_.empty() && !ends_) changed_.WaitFor(mu_, absl::Seconds(10));
  if (ends_) return std::nullopt;
  Waiting next = std::move(queue_.front());
  queue_.pop_front();
  ++busy_;
  ++counters_.programs;
  return next;
}

absl::StatusOr<v1::Outcome> WorkerPool::RunIn(int64_t number, std::unique_ptr<Worker>& worker,
                                              const Waiting& waiting) {
  if (waiting.abandoned.stop_requested()) return CallerHasLeft();
  if (absl::Now() - waiting.since > options_.max_wait) return Late();
  // It may have ended since its last program.
  if (worker->process().WaitFor(absl::ZeroDuration())) {
    EndWorker(std::move(worker));
    FRESHET_ASSIGN_OR_RETURN(worker, StartWorker(number));
  }
  absl::StatusOr<v1::Outcome> outcome = worker->Run(waiting.program, waiting.abandoned);
  if (waiting.abandoned.stop_requested()) {
    EndWorker(std::move(worker));
    return CallerHasLeft();
  }
  if (outcome.ok()) {
    CountLimit(*outcome);
    return outcome;
  }
  FRESHET_LOG(Warning) << "event=sandbox_worker_lost worker=" << number
                       << " reason=" << LogQuoted(Message(outcome.status()));
  EndWorker(std::move(worker));
  const MutexLock lock(mu_);
  ++counters_.lost_workers;
  return Unavailable(StrCat("the worker was lost: ", Message(outcome.status())));
}

absl::Status WorkerPool::Late() {
  {
    const MutexLock lock(mu_);
    ++counters_.refused;
  }
  return StatusOf(absl::StatusCode::kDeadlineExceeded, "no worker was free within ",
                  absl::FormatDuration(options_.max_wait));
}

void WorkerPool::CountLimit(const v1::Outcome& outcome) {
  const auto limited = [](const v1::CommandResult& result) {
    return result.end() > v1::CommandResult::END_EXITED &&
           v1::CommandResult::End_IsValid(result.end());
  };
  const v1::CommandResult* found =
      limited(outcome.compilation()) ? &outcome.compilation() : nullptr;
  for (const v1::CommandResult& run : outcome.runs()) {
    if (found == nullptr && limited(run)) found = &run;
  }
  if (found == nullptr) return;
  const MutexLock lock(mu_);
  ++counters_.limited.at(static_cast<size_t>(found->end()));
}

bool WorkerPool::PauseBeforeStart() {
  std::deque<Waiting> late;
  {
    const MutexLock lock(mu_);
    const absl::Time deadline = absl::Now() + kRestartPause;
    while (!ends_ && absl::Now() < deadline) changed_.WaitFor(mu_, deadline - absl::Now());
    if (ends_) return false;
    // If no worker can be started, nobody else answers them.
    while (!queue_.empty() && absl::Now() - queue_.front().since > options_.max_wait) {
      late.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
  }
  for (Waiting& waiting : late) waiting.done(Late());
  return true;
}

void WorkerPool::Work(int64_t number, std::unique_ptr<Worker> worker) {
  while (true) {
    if (worker == nullptr) {
      auto started = StartWorker(number);
      if (absl::IsCancelled(started.status())) return;
      if (!started.ok()) {
        FRESHET_LOG(Error) << "event=sandbox_worker_not_started worker=" << number
                           << " reason=" << LogQuoted(Message(started.status()));
        if (!PauseBeforeStart()) return;
        continue;
      }
      worker = *std::move(started);
    }
    std::optional<Waiting> next = Next();
    if (!next.has_value()) break;
    absl::StatusOr<v1::Outcome> outcome = RunIn(number, worker, *next);
    {
      const MutexLock lock(mu_);
      --busy_;
    }
    next->done(std::move(outcome));
  }
  if (worker != nullptr) EndWorker(std::move(worker));
}

int64_t WorkerPool::queued() const {
  const MutexLock lock(mu_);
  return std::ssize(queue_);
}

int64_t WorkerPool::busy() const {
  const MutexLock lock(mu_);
  return busy_;
}

WorkerPoolCounters WorkerPool::counters() const {
  const MutexLock lock(mu_);
  return counters_;
}

}  // namespace freshet::sandbox
