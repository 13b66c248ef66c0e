#include "rollout/openai/generation_loop.h"

#include <utility>
#include <vector>

#include "rollout/engine/engine_call.h"

namespace freshet::openai {
namespace {

constexpr absl::Duration kLongestWait = absl::Seconds(1);  // when nothing can happen before

}  // namespace

GenerationLoop::GenerationLoop(std::unique_ptr<InferenceEngine> engine,
                               const GenerationQueueOptions& options, const Clock& clock)
    : GenerationQueue(*engine, options, clock), engine_(std::move(engine)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

GenerationLoop::~GenerationLoop() { Stop(); }

void GenerationLoop::Stop() {
  StartDrain();
  thread_.request_stop();
  Wake();
  if (thread_.joinable()) thread_.join();
}

void GenerationLoop::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    BeforePoll();
    if (engine_->Idle()) {
      Await(kLongestWait);
      continue;
    }
    absl::StatusOr<std::vector<GenerationOutput>> outputs =
        CallEngine([this] { return engine_->Poll(); });
    if (outputs.ok()) {
      AfterPoll(*outputs);
    } else {
      EngineFailed(outputs.status());
    }
  }
  Close("the server stops");
}

}  // namespace freshet::openai
