#ifndef FRESHET_TESTS_SIMULATION_FORWARDING_ENGINE_H_
#define FRESHET_TESTS_SIMULATION_FORWARDING_ENGINE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "rollout/engine/inference_engine.h"

namespace freshet {

// Base class for decorators: forwards every call to another engine.
class ForwardingEngine : public InferenceEngine {
 public:
  explicit ForwardingEngine(std::unique_ptr<InferenceEngine> engine) : engine_(std::move(engine)) {}

  int64_t Admissible(int64_t prompt_tokens, int64_t num_samples, const SamplingParams& sampling,
                     int64_t most) const override {
    return engine_->Admissible(prompt_tokens, num_samples, sampling, most);
  }
  absl::Status Submit(GenerationRequest request) override {
    return engine_->Submit(std::move(request));
  }
  absl::StatusOr<std::vector<GenerationOutput>> Poll() override { return engine_->Poll(); }
  bool Idle() const override { return engine_->Idle(); }
  std::vector<GenerationOutput> Cancel(int64_t request_id) override {
    return engine_->Cancel(request_id);
  }
  void Pause(bool paused) override { engine_->Pause(paused); }
  absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) override {
    return engine_->LoadWeights(lane, snapshot);
  }
  PolicyVersion version(Lane lane) const override { return engine_->version(lane); }
  EngineStats stats() const override { return engine_->stats(); }

 private:
  const std::unique_ptr<InferenceEngine> engine_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_FORWARDING_ENGINE_H_
