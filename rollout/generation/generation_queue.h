#ifndef FRESHET_ROLLOUT_GENERATION_GENERATION_QUEUE_H_
#define FRESHET_ROLLOUT_GENERATION_GENERATION_QUEUE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "rollout/engine/inference_engine.h"

namespace freshet {

struct GenerationQueueOptions {
  // What waits for room in the engine. At either bound Submit refuses.
  int64_t max_waiting = 1024;                          // requests
  int64_t max_waiting_tokens = int64_t{16} << 20;      // of their prompts and kept responses
  absl::Duration request_timeout = absl::Minutes(10);  // from Submit to the last token
};

// A request and who is told of its progress. The functions are called on the engine's thread, one
// at a time, so they delay everyone: they must not block. They may call the queue.
struct QueuedRequest {
  // id, and on_token of it, are ignored.
  GenerationRequest generation;
  std::function<void(const GeneratedToken&)> on_token;
  // The last call. OK: every sample finished. CANCELLED: by Cancel. DEADLINE_EXCEEDED: the timeout
  // passed. UNAVAILABLE: the engine's thread stopped. Otherwise the engine's error.
  std::function<void(const absl::Status&)> on_end;
};

struct QueueStats {
  int64_t waiting = 0;         // requests
  int64_t waiting_tokens = 0;  // of their prompts and kept responses
  int64_t running = 0;         // requests in the engine
  int64_t refused = 0;         // by Submit, since the start
  EngineStats engine;          // after the last turn
};

// Brings requests of any thread to an engine: they wait in order of arrival until the engine has
// room. A request that does not fit blocks those behind it, however small they are. So that it gets
// its room, the owner of the engine starts no new work of its own while stats().waiting is above 0.
// However a request ends, its cache blocks are released before on_end is called. The thread
// that drives the engine calls BeforePoll, Poll of the engine, and AfterPoll or EngineFailed in
// turns. It may submit other requests to the engine itself, with ids below kFirstQueuedRequest.
// Thread-safe, except for the functions of the engine's thread.
class GenerationQueue {
 public:
  // Engine and clock must outlive the queue.
  GenerationQueue(InferenceEngine& engine, const GenerationQueueOptions& options,
                  const Clock& clock);
  // No request is left: the engine's thread has called Close.
  ~GenerationQueue();
  GenerationQueue(const GenerationQueue&) = delete;
  GenerationQueue& operator=(const GenerationQueue&) = delete;

  // Queues a request and returns its id. Its functions may be called before this returns.
  // RESOURCE_EXHAUSTED: too much waits; retry later. UNAVAILABLE: draining or closed.
  // The functions are not called after an error.
  absl::StatusOr<int64_t> Submit(QueuedRequest request) ABSL_LOCKS_EXCLUDED(mu_);
  // Queues all of the requests or, after an error, none. INVALID_ARGUMENT: more than may ever wait.
  // Other errors as for Submit.
  absl::StatusOr<std::vector<int64_t>> SubmitAll(std::vector<QueuedRequest> requests)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ends a request soon, unless it has ended.
  void Cancel(int64_t id) ABSL_LOCKS_EXCLUDED(mu_);

  // From now on Submit refuses. Until `finish_by`, what has been submitted may end: see
  // InDrainGrace.
  void StartDrain(absl::Time finish_by = absl::InfinitePast()) ABSL_LOCKS_EXCLUDED(mu_);
  // StartDrain, then waits up to `grace` for all requests to end. Returns whether they did.
  bool Drain(absl::Duration grace) ABSL_LOCKS_EXCLUDED(mu_);

  bool draining() const ABSL_LOCKS_EXCLUDED(mu_);
  QueueStats stats() const ABSL_LOCKS_EXCLUDED(mu_);

  // The following functions are for the engine's thread.

  // Whether a drain still gives requests time to end. The thread then goes on until it does not,
  // before it calls Close.
  bool InDrainGrace() const ABSL_LOCKS_EXCLUDED(mu_);
  // See InferenceEngine.
  PolicyVersion version(Lane lane) const { return engine_.version(lane); }
  // Accepts requests again after Close.
  void Open() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends requests that were cancelled or are late, and moves waiting ones to the engine as long as
  // it has room.
  void BeforePoll() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the queue's own outputs out of those of a Poll, and ends the requests that they complete
  // or that failed.
  void AfterPoll(std::vector<GenerationOutput>& outputs) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the requests in the engine, which has failed.
  void EngineFailed(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all requests with UNAVAILABLE and `reason`, with which Submit refuses from now on.
  void Close(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits up to `timeout` until BeforePoll has something to do, or for Wake.
  void Await(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends an Await. Any thread may call it.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry;
  struct Ending;

  std::shared_ptr<Entry> MakeEntry(QueuedRequest request) const;
  absl::Status Refusal() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes out the requests that were cancelled or are late.
  std::vector<Ending> TakeEnded() ABSL_LOCKS_EXCLUDED(mu_);
  void EndAll(std::vector<Ending> endings) ABSL_LOCKS_EXCLUDED(mu_);
  // Null if nothing waits.
  std::shared_ptr<Entry> FirstWaiting() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends `entry` with `status`.
  void Finish(const std::shared_ptr<Entry>& entry, absl::Status status) ABSL_LOCKS_EXCLUDED(mu_);
  void Erase(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeStats() ABSL_LOCKS_EXCLUDED(mu_);

  InferenceEngine& engine_;  // used on its thread only
  const GenerationQueueOptions options_;
  const Clock& clock_;

  mutable Mutex mu_;
  CondVar cv_;
  // Every request that has not ended, in order of arrival.
  std::map<int64_t, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
  size_t ending_ ABSL_GUARDED_BY(mu_) = 0;  // erased, before the end of their on_end
  std::vector<int64_t> cancelled_ ABSL_GUARDED_BY(mu_);
  int64_t next_id_ ABSL_GUARDED_BY(mu_);
  int64_t first_waiting_ ABSL_GUARDED_BY(mu_);  // requests before it do not wait
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time finish_by_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // while it drains
  std::string closed_ ABSL_GUARDED_BY(mu_);                           // why; "": open
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  QueueStats stats_ ABSL_GUARDED_BY(mu_);
};

// Ids of the queue's requests begin here.
constexpr int64_t kFirstQueuedRequest = int64_t{1} << 62;

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_GENERATION_GENERATION_QUEUE_H_
