#ifndef FRESHET_ROLLOUT_OPENAI_GENERATION_LOOP_H_
#define FRESHET_ROLLOUT_OPENAI_GENERATION_LOOP_H_

#include <memory>
#include <stop_token>
#include <thread>

#include "base/clock.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/generation/generation_queue.h"

namespace freshet::openai {

// A queue with an engine and a thread of its own. Thread-safe.
class GenerationLoop final : public GenerationQueue {
 public:
  // The engine has weights in the rollout lane; `clock` must outlive the loop.
  GenerationLoop(std::unique_ptr<InferenceEngine> engine, const GenerationQueueOptions& options,
                 const Clock& clock);
  // Calls Stop.
  ~GenerationLoop();

  // Ends all requests with UNAVAILABLE, then the thread. From now on Submit refuses. Idempotent.
  // Must not run on the loop's thread.
  void Stop();

 private:
  void Run(const std::stop_token& stop);

  const std::unique_ptr<InferenceEngine> engine_;  // used on the thread only
  std::jthread thread_;
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_GENERATION_LOOP_H_
