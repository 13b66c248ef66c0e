#ifndef FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_HOOK_H_
#define FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_HOOK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/policy_version.h"

namespace freshet {

struct CheckpointHookOptions {
  std::string program;                         // path
  absl::Duration time_limit = absl::Hours(1);  // of each try
  int tries = 3;
  absl::Duration first_pause = absl::Seconds(10);  // before the second try; it doubles
};

struct HookedCheckpoint {
  std::string job;
  PolicyVersion policy;
  std::string path;
};

// Runs the operator's program for durable checkpoints, such as one that uploads them, on a thread
// of its own and one at a time (a killed trainer may leave one behind):
//   PROGRAM DIRECTORY
// with FRESHET_JOB, FRESHET_LINEAGE and FRESHET_VERSION in its environment. It may be run again for
// the same checkpoint. Its output goes to this process's standard error. Thread-safe.
class CheckpointHook {
 public:
  // OK: exit code 0. ABORTED: a newer checkpoint came before it was run, or the hook was stopped
  // before it had ended.
  // UNAVAILABLE: all tries failed. Called on the hook's thread, or in Offer.
  using OnEnd = std::function<void(const HookedCheckpoint&, const absl::Status&)>;

  CheckpointHook(CheckpointHookOptions options, OnEnd on_end);
  // Kills the program. Checkpoints that it has not finished end ABORTED.
  ~CheckpointHook();

  // The next checkpoint to run it for. Replaces one that waits.
  void Offer(HookedCheckpoint checkpoint);
  // Versions whose directories are in use.
  std::set<int64_t> InUse() const;
  // What it does, such as "the checkpoint hook: version 20"; "" if nothing.
  std::string Doing() const;
  // Waits until it does nothing, or `timeout` has passed. Returns whether it does nothing.
  bool AwaitIdle(absl::Duration timeout);

 private:
  void Serve(std::stop_token stop);
  std::optional<HookedCheckpoint> Take(std::stop_token stop);
  absl::Status Run(const HookedCheckpoint& checkpoint, std::stop_token stop) const;

  const CheckpointHookOptions options_;
  const OnEnd on_end_;
  mutable Mutex mu_;
  CondVar changed_;
  std::optional<HookedCheckpoint> waiting_ ABSL_GUARDED_BY(mu_);
  std::optional<HookedCheckpoint> running_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_CHECKPOINT_CHECKPOINT_HOOK_H_
