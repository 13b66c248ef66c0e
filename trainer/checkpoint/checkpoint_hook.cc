#include "trainer/checkpoint/checkpoint_hook.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/subprocess.h"

namespace freshet {
namespace {

// A stop that comes just before a wait is noticed after it.
constexpr absl::Duration kSlice = absl::Seconds(1);
constexpr absl::Duration kMostPause = absl::Minutes(5);
constexpr char kStopped[] = "the work on the job has ended";

absl::Status Aborted(const char* why) { return StatusOf(absl::StatusCode::kAborted, why); }

}  // namespace

CheckpointHook::CheckpointHook(CheckpointHookOptions options, OnEnd on_end)
    : options_(std::move(options)), on_end_(std::move(on_end)) {
  thread_ = std::jthread([this](std::stop_token stop) { Serve(stop); });
}

CheckpointHook::~CheckpointHook() {
  thread_.request_stop();
  {
    const MutexLock lock(mu_);
    changed_.NotifyAll();
  }
  thread_.join();
}

void CheckpointHook::Offer(HookedCheckpoint checkpoint) {
  std::optional<HookedCheckpoint> replaced;
  {
    const MutexLock lock(mu_);
    replaced = std::exchange(waiting_, std::move(checkpoint));
    changed_.NotifyAll();
  }
  if (replaced.has_value()) on_end_(*replaced, Aborted("a newer checkpoint came first"));
}

std::set<int64_t> CheckpointHook::InUse() const {
  const MutexLock lock(mu_);
  std::set<int64_t> versions;
  for (const auto& checkpoint : {waiting_, running_}) {
    if (checkpoint.has_value()) versions.insert(checkpoint->policy.version);
  }
  return versions;
}

std::string CheckpointHook::Doing() const {
  const MutexLock lock(mu_);
  const std::optional<HookedCheckpoint>& now = running_.has_value() ? running_ : waiting_;
  return now.has_value() ? StrCat("the checkpoint hook: version ", now->policy.version) : "";
}

bool CheckpointHook::AwaitIdle(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const MutexLock lock(mu_);
  while (waiting_.has_value() || running_.has_value()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mu_, left);
  }
  return true;
}

std::optional<HookedCheckpoint> CheckpointHook::Take(std::stop_token stop) {
  const MutexLock lock(mu_);
  running_.reset();
  changed_.NotifyAll();
  while (!waiting_.has_value() && !stop.stop_requested()) changed_.WaitFor(mu_, kSlice);
  if (!stop.stop_requested()) running_ = std::exchange(waiting_, std::nullopt);
  return running_;
}

void CheckpointHook::Serve(std::stop_token stop) {
  while (const std::optional<HookedCheckpoint> checkpoint = Take(stop)) {
    const LogScope scope(checkpoint->job);
    absl::Status status;
    for (int tried = 1; tried <= options_.tries; ++tried) {
      status = Run(*checkpoint, stop);
      if (status.ok() || stop.stop_requested()) break;
      FRESHET_LOG(Warning) << "event=checkpoint_hook_failed version=" << checkpoint->policy.version
                           << " try=" << tried << " error=" << LogQuoted(Message(status));
      if (tried == options_.tries) break;
      const absl::Time next = absl::Now() + BackoffDelay(tried, options_.first_pause, kMostPause);
      const MutexLock lock(mu_);
      while (absl::Now() < next && !stop.stop_requested()) {
        changed_.WaitFor(mu_, std::min(kSlice, next - absl::Now()));
      }
    }
    if (stop.stop_requested() && !status.ok()) status = Aborted(kStopped);
    on_end_(*checkpoint, status);
  }
  std::optional<HookedCheckpoint> dropped;
  {
    const MutexLock lock(mu_);
    dropped = std::exchange(waiting_, std::nullopt);
  }
  if (dropped.has_value()) on_end_(*dropped, Aborted(kStopped));
}

absl::Status CheckpointHook::Run(const HookedCheckpoint& checkpoint, std::stop_token stop) const {
  SubprocessOptions options;
  options.argv = {options_.program, checkpoint.path};
  options.environment = {StrCat("FRESHET_JOB=", checkpoint.job),
                         StrCat("FRESHET_LINEAGE=", checkpoint.policy.lineage),
                         StrCat("FRESHET_VERSION=", checkpoint.policy.version)};
  options.output_to_stderr = true;
  FRESHET_ASSIGN_OR_RETURN(const std::unique_ptr<Subprocess> process, Subprocess::Start(options));
  const std::stop_callback kill(stop, [&process] { process->Kill(); });
  if (!process->WaitFor(options_.time_limit)) {
    process->Kill();
    return StatusOf(absl::StatusCode::kUnavailable, options_.program, " did not end within ",
                    absl::FormatDuration(options_.time_limit));
  }
  const absl::Status ending = process->Ending();
  return ending.ok()
             ? ending
             : StatusOf(absl::StatusCode::kUnavailable, options_.program, " ", Message(ending));
}

}  // namespace freshet
