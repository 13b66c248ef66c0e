#ifndef FRESHET_ROLLOUT_OPENAI_GENERATION_LOOP_H_
#define FRESHET_ROLLOUT_OPENAI_GENERATION_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "rollout/engine/inference_engine.h"

namespace freshet::openai {

struct GenerationLoopOptions {
  // What waits for room in the engine. At either bound Submit refuses.
  int64_t max_waiting = 1024;                          // requests
  int64_t max_waiting_tokens = int64_t{16} << 20;      // of their prompts
  absl::Duration request_timeout = absl::Minutes(10);  // from Submit to the last token
};

// A request and who is told of its progress. The functions are called on the loop's thread, one at
// a time, so they delay everyone: they must not block. They may call the loop.
struct LoopRequest {
  // id, and on_token of it, are ignored.
  GenerationRequest generation;
  std::function<void(const GeneratedToken&)> on_token;
  // The last call. OK: every sample finished. CANCELLED: by Cancel. DEADLINE_EXCEEDED: the timeout
  // passed. UNAVAILABLE: the loop stopped. Otherwise the engine's error.
  std::function<void(const absl::Status&)> on_end;
};

struct LoopStats {
  int64_t waiting = 0;         // requests
  int64_t waiting_tokens = 0;  // of their prompts
  int64_t running = 0;         // requests in the engine
  int64_t refused = 0;         // by Submit, since the start
  EngineStats engine;          // after the last turn
};

// Runs an engine on a thread of its own for callers on any thread: requests wait in order of
// arrival until the engine has room. However a request ends, its cache blocks are released before
// on_end is called. Thread-safe.
class GenerationLoop {
 public:
  // The engine has weights in the rollout lane; `clock` must outlive the loop.
  GenerationLoop(std::unique_ptr<InferenceEngine> engine, const GenerationLoopOptions& options,
                 const Clock& clock);
  // Ends all requests with UNAVAILABLE. Must not run on the loop's thread.
  ~GenerationLoop();

  // Queues a request and returns its id. Its functions may be called before this returns.
  // RESOURCE_EXHAUSTED: too much waits; retry later. UNAVAILABLE: draining.
  // The functions are not called after an error.
  absl::StatusOr<int64_t> Submit(LoopRequest request) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends a request soon, unless it has ended.
  void Cancel(int64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  // From now on Submit refuses.
  void StartDrain() ABSL_LOCKS_EXCLUDED(mu_);
  // StartDrain, then waits up to `grace` for all requests to end. Returns whether they did.
  bool Drain(absl::Duration grace) ABSL_LOCKS_EXCLUDED(mu_);

  bool draining() const ABSL_LOCKS_EXCLUDED(mu_);
  LoopStats stats() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry;
  struct Ending;

  void Run(const std::stop_token& stop) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes out the requests that were cancelled or are late; all of them if the loop stops.
  std::vector<Ending> TakeEnded(bool stopping) ABSL_LOCKS_EXCLUDED(mu_);
  void EndAll(std::vector<Ending> endings) ABSL_LOCKS_EXCLUDED(mu_);
  // Moves waiting requests to the engine, as long as it has room.
  void Admit() ABSL_LOCKS_EXCLUDED(mu_);
  // Null if nothing waits.
  std::shared_ptr<Entry> FirstWaiting() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends `entry` with `status`.
  void Finish(const std::shared_ptr<Entry>& entry, absl::Status status) ABSL_LOCKS_EXCLUDED(mu_);
  void RunEngine() ABSL_LOCKS_EXCLUDED(mu_);
  void Erase(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeStats() ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<InferenceEngine> engine_;  // used on the thread only
  const GenerationLoopOptions options_;
  const Clock& clock_;

  mutable Mutex mu_;
  CondVar cv_;
  // Every request that has not ended, in order of arrival.
  std::map<int64_t, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
  size_t ending_ ABSL_GUARDED_BY(mu_) = 0;  // erased, before the end of their on_end
  std::vector<int64_t> cancelled_ ABSL_GUARDED_BY(mu_);
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  int64_t first_waiting_ ABSL_GUARDED_BY(mu_) = 1;  // requests before it do not wait
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  LoopStats stats_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_GENERATION_LOOP_H_
