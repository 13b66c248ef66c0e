#ifndef FRESHET_TESTS_SIMULATION_SIMULATED_ENGINE_H_
#define FRESHET_TESTS_SIMULATION_SIMULATED_ENGINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "rollout/engine/inference_engine.h"

namespace freshet {

// Timing of generation. With b running sequences, each gets one token per (base_ms +
// per_sequence_ms * b) * time_scale milliseconds. Response lengths are log-normal.
struct SimulatedEngineOptions {
  int64_t slots = 32;  // concurrent sequences
  double base_ms = 10.0;
  double per_sequence_ms = 0.15;
  double time_scale = 1.0;
  double median_tokens = 64;
  double sigma = 0.9;                                   // of the log-normal length distribution
  double longest_over_median = 8;                       // cap on the length
  absl::Duration longest_poll = absl::Milliseconds(2);  // longest wait in one Poll
  // Log-prob of every token. Different values identify the engine that produced a token.
  float logprob = -1;
  // If not empty: file that holds the CPU seconds used by the simulation itself, as one line of 20
  // characters, updated every few tenths of a second.
  std::string usage_file = "";
};

// An engine that simulates the duration of generation, for tests and benchmarks of the code around
// engines. A response depends only on (seed, ordinal, sample). Each token carries the version
// loaded when it is due. A request starts when one of its samples gets a slot; its other samples
// wait for slots. Accepts weights of any shape. Confined to one thread.
class SimulatedEngine final : public InferenceEngine {
 public:
  SimulatedEngine(SimulatedEngineOptions options, const Clock& clock);

  // `listener` is called for each version loaded into the rollout lane.
  void OnLoad(std::function<void(const WeightManifest&)> listener) {
    on_load_ = std::move(listener);
  }

  int64_t Admissible(int64_t prompt_tokens, int64_t num_samples, const SamplingParams& sampling,
                     int64_t most) const override;
  absl::Status Submit(GenerationRequest request) override;
  absl::StatusOr<std::vector<GenerationOutput>> Poll() override;
  bool Idle() const override { return running_.empty() && waiting_.empty(); }
  std::vector<GenerationOutput> Cancel(int64_t request_id) override;
  void Pause(bool paused) override { paused_ = paused; }
  absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) override;
  PolicyVersion version(Lane lane) const override { return versions_[static_cast<size_t>(lane)]; }
  EngineStats stats() const override;

 private:
  struct Sequence {
    int64_t request_id = 0;
    Lane lane = Lane::kRollout;
    int32_t sample_index = 0;
    uint64_t key = 0;    // seeds the tokens
    int64_t length = 0;  // total tokens
    double done = 0;     // tokens generated so far, fractional
    Response response;
  };

  absl::StatusOr<std::vector<GenerationOutput>> Generate();
  void ReportUsage();
  int64_t FreeSlots() const;
  double SecondsPerToken() const;
  void FillSlots();
  void TakeBack(int64_t request_id, std::deque<Sequence>& from,
                std::vector<GenerationOutput>& partials);
  void Advance(absl::Time now);
  void Stamp(Sequence& sequence);
  GenerationOutput Output(Sequence sequence) const;
  int64_t Length(uint64_t key, const SamplingParams& sampling) const;

  const SimulatedEngineOptions options_;
  const Clock& clock_;
  std::function<void(const WeightManifest&)> on_load_;
  std::deque<Sequence> running_;
  std::deque<Sequence> waiting_;
  std::vector<PolicyVersion> versions_;
  std::vector<bool> loaded_;
  bool paused_ = false;
  absl::Time now_;
  int64_t tokens_ = 0;
  int64_t swaps_ = 0;
  UniqueFd usage_;
  double cpu_seconds_ = 0;
  absl::Time reported_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_SIMULATED_ENGINE_H_
