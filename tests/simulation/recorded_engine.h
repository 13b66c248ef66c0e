#ifndef FRESHET_TESTS_SIMULATION_RECORDED_ENGINE_H_
#define FRESHET_TESTS_SIMULATION_RECORDED_ENGINE_H_

#include <memory>
#include <utility>

#include "tests/simulation/forwarding_engine.h"
#include "tests/simulation/history.h"

namespace freshet {

// An engine that records its loads. `history` must outlive it.
class RecordedEngine final : public ForwardingEngine {
 public:
  RecordedEngine(std::unique_ptr<InferenceEngine> engine, History& history)
      : ForwardingEngine(std::move(engine)), history_(history) {}

  absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) override {
    const absl::Status status = ForwardingEngine::LoadWeights(lane, snapshot);
    if (status.ok() && lane == Lane::kRollout) history_.AddLoad(snapshot.manifest);
    return status;
  }

 private:
  History& history_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_RECORDED_ENGINE_H_
