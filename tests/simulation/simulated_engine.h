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

// How long generation takes: with b sequences running, every one of them gets a token each
// (base_ms + per_sequence_ms * b) * time_scale milliseconds. Response lengths are log-normal.
struct SimulatedEngineOptions {
  int64_t slots = 32;  // sequences at a time
  double base_ms = 10.0;
  double per_sequence_ms = 0.15;
  double time_scale = 1.0;
  double median_tokens = 64;
  double sigma = 0.9;                                   // of the logarithm
  double longest_over_median = 8;                       // cap
  absl::Duration longest_poll = absl::Milliseconds(2);  // of one wait in Poll
  // Log-prob of every token. Engines of other hardware give others: bytes then tell whose they are.
  float logprob = -1;
  // File that holds the CPU seconds of the simulation itself, as a line of 20 characters, some
  // tenths of a second old at most; "": none. What else the worker's thread takes is the worker's.
  std::string usage_file = "";
};

// An engine that generates nothing but takes the time for it: for tests and benchmarks of what is
// around the engines. A response depends on (seed, ordinal, sample) alone; its tokens are stamped
// with the version that was loaded when their time came. A request is taken when one of its samples
// finds a slot; the others wait for theirs. Weights of any shape are taken.
// Confined to one thread.
class SimulatedEngine final : public InferenceEngine {
 public:
  SimulatedEngine(SimulatedEngineOptions options, const Clock& clock);

  // Called with every version that is loaded into the rollout lane.
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
    uint64_t key = 0;    // of its tokens
    int64_t length = 0;  // tokens in all
    double done = 0;     // tokens whose time has passed
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
