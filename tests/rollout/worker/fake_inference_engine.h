#ifndef FRESHET_TESTS_ROLLOUT_WORKER_FAKE_INFERENCE_ENGINE_H_
#define FRESHET_TESTS_ROLLOUT_WORKER_FAKE_INFERENCE_ENGINE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <set>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/engine/inference_engine.h"

namespace freshet {

// An engine that adds one token, stamped with the lane's version, to each sample per Poll, and
// records its calls. Hooks run on the worker's thread. Confined to that thread.
class FakeInferenceEngine final : public InferenceEngine {
 public:
  int64_t capacity = 100;  // samples
  // Length at which a sample of a request finishes.
  std::function<size_t(int64_t request, int32_t sample)> length = [](int64_t, int32_t) {
    return 4U;
  };
  std::function<void()> on_turn;  // called by Idle()
  std::function<void()> on_poll;  // called at the end of each Poll
  std::function<void()> on_load;  // called by LoadWeights
  absl::Status poll_status;       // returned by every Poll
  // Called by Poll with the requests in the engine; Poll returns its error, if any.
  std::function<absl::Status(const std::set<int64_t>& requests)> fail_poll;
  // Called by Poll for each request in the engine, which drops those with an error.
  std::function<absl::Status(int64_t request)> fail_request;
  std::function<absl::Status(const GenerationRequest&)> fail_submit;
  absl::Status load_status[kNumLanes];  // returned by LoadWeights
  int refuse_submits = 0;               // number of submits that return RESOURCE_EXHAUSTED
  std::function<absl::Status(const GenerationRequest&)>
      refusal;  // reason to refuse a submit; may be empty

  std::vector<GenerationRequest> submitted;
  std::vector<int64_t> cancelled;
  std::vector<PolicyVersion> loaded[kNumLanes];
  int polls = 0;

  int64_t Admissible(int64_t, int64_t num_samples, const SamplingParams&,
                     int64_t most) const override {
    return std::clamp<int64_t>((capacity - Running()) / num_samples, 0, most);
  }

  absl::Status Submit(GenerationRequest request) override {
    if (refuse_submits > 0) {
      --refuse_submits;
      return ResourceExhausted("told to refuse");
    }
    if (const absl::Status refused = refusal ? refusal(request) : absl::OkStatus(); !refused.ok()) {
      return refused;
    }
    if (version(request.lane).version < 0) return FailedPrecondition("no weights");
    if (fail_submit) FRESHET_RETURN_IF_ERROR(fail_submit(request));
    submitted.push_back(request);
    for (size_t i = 0; i < request.sample_indices.size(); ++i) {
      Sample& sample = samples_.emplace_back();
      sample.request = request.id;
      sample.lane = request.lane;
      sample.index = request.sample_indices[i];
      sample.truncates = request.sampling.ChangesDistribution();
      if (!request.partials.empty()) sample.response = request.partials[i];
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<GenerationOutput>> Poll() override {
    ++polls;
    if (!poll_status.ok()) return poll_status;
    if (fail_poll) {
      std::set<int64_t> requests;
      for (const Sample& sample : samples_) requests.insert(sample.request);
      FRESHET_RETURN_IF_ERROR(fail_poll(requests));
    }
    std::vector<GenerationOutput> finished;
    std::erase_if(samples_, [&](Sample& sample) {
      if (!fail_request) return false;
      absl::Status error = fail_request(sample.request);
      if (error.ok()) return false;
      const bool told = !finished.empty() && finished.back().request_id == sample.request;
      if (!told) finished.push_back({sample.request, sample.lane, 0, {}, std::move(error)});
      return true;
    });
    std::erase_if(samples_, [&](Sample& sample) {
      AddToken(sample);
      if (sample.response.response_ids.size() < length(sample.request, sample.index)) return false;
      sample.response.finish = FinishReason::kStop;
      finished.push_back({sample.request, sample.lane, sample.index, sample.response});
      return true;
    });
    if (on_poll) on_poll();
    return finished;
  }

  bool Idle() const override {
    if (on_turn) on_turn();
    return samples_.empty();
  }

  std::vector<GenerationOutput> Cancel(int64_t request_id) override {
    cancelled.push_back(request_id);
    std::vector<GenerationOutput> partials;
    std::erase_if(samples_, [&](Sample& sample) {
      if (sample.request != request_id) return false;
      partials.push_back({request_id, sample.lane, sample.index, std::move(sample.response)});
      return true;
    });
    return partials;
  }

  void Pause(bool) override {}

  absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) override {
    const auto i = static_cast<size_t>(lane);
    if (!load_status[i].ok()) return load_status[i];
    loaded[i].push_back(snapshot.manifest.policy);
    if (on_load) on_load();
    return absl::OkStatus();
  }

  PolicyVersion version(Lane lane) const override {
    const std::vector<PolicyVersion>& versions = loaded[static_cast<size_t>(lane)];
    return versions.empty() ? PolicyVersion{-1, -1} : versions.back();
  }
  EngineStats stats() const override {
    EngineStats stats;
    stats.running_sequences = Running();
    stats.capacity_sequences = capacity;
    stats.tokens_generated = tokens_;
    return stats;
  }

  int64_t Running() const { return static_cast<int64_t>(samples_.size()); }

 private:
  struct Sample {
    int64_t request = 0;
    Lane lane = Lane::kRollout;
    int32_t index = 0;
    bool truncates = false;
    Response response;
  };

  void AddToken(Sample& sample) {
    Response& response = sample.response;
    const auto size = static_cast<int32_t>(response.response_ids.size());
    if (sample.truncates) {
      response.sampling_logprobs.resize(static_cast<size_t>(size), 0.0F);
      response.sampling_logprobs.push_back(-0.25F);
    }
    response.response_ids.push_back(10 + size);
    response.behavior_logprobs.push_back(-0.5F);
    response.loss_mask.push_back(1);
    const PolicyVersion policy = version(sample.lane);
    if (response.spans.empty() || response.spans.back().policy != policy) {
      response.spans.push_back({policy, size, size + 1});
    } else {
      response.spans.back().end = size + 1;
    }
    if (sample.lane == Lane::kRollout) ++tokens_;
  }

  std::list<Sample> samples_;
  int64_t tokens_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_WORKER_FAKE_INFERENCE_ENGINE_H_
