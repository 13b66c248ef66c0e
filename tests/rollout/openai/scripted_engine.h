#ifndef FRESHET_TESTS_ROLLOUT_OPENAI_SCRIPTED_ENGINE_H_
#define FRESHET_TESTS_ROLLOUT_OPENAI_SCRIPTED_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "rollout/engine/engine_scheduler.h"
#include "rollout/engine/kv_cache.h"

namespace freshet {

// An engine with the real scheduler and cache accounting whose model counts: after id i comes
// i + 1, after the last id comes 0. With a scalar head, a prompt's score is its last id minus a
// half. Confined to one thread.
class ScriptedEngine final : public InferenceEngine {
 public:
  static constexpr int64_t kVocabulary = 32;
  static constexpr int64_t kContext = 256;

  // Called at the start of each Poll; Poll returns its error, if any.
  std::function<absl::Status()> on_poll;
  std::function<bool()> frozen;  // if it returns true, Poll generates nothing
  PolicyVersion policy{0, 7};
  int64_t max_tokens = 0;  // of its stats

  explicit ScriptedEngine(int64_t max_sequences = 8, int64_t cache_blocks = 64,
                          bool scalar_head = false)
      : scalar_head_(scalar_head),
        cache_({1, 1, 4}, cache_blocks),
        scheduler_(Config(scalar_head), {.max_sequences = max_sequences}, cache_) {}

  int64_t Admissible(int64_t prompt_tokens, int64_t num_samples, const SamplingParams& sampling,
                     int64_t most) const override {
    return scheduler_.Admissible(prompt_tokens, num_samples, sampling, most);
  }
  absl::Status Submit(GenerationRequest request) override {
    return scheduler_.Submit(std::move(request));
  }
  absl::StatusOr<std::vector<GenerationOutput>> Poll() override {
    if (on_poll) {
      if (absl::Status status = on_poll(); !status.ok()) return status;
    }
    if (frozen && frozen()) return std::vector<GenerationOutput>();
    const EngineBatch batch = scheduler_.Fill(Lane::kRollout);
    std::vector<float> logits(batch.wants.size() * kVocabulary, 0.0F);
    for (size_t i = 0; i < batch.wants.size(); ++i) {
      const int64_t last = batch.token_ids[static_cast<size_t>(batch.wants[i].row)];
      if (scalar_head_) {
        logits[i] = static_cast<float>(last) - 0.5F;
        continue;
      }
      logits[i * kVocabulary + static_cast<size_t>((last + 1) % kVocabulary)] = 20;
    }
    ThreadPool pool(1);
    return scheduler_.Accept(Lane::kRollout, batch, logits.data(), policy, pool);
  }
  bool Idle() const override { return !scheduler_.HasWork(Lane::kRollout); }
  std::vector<GenerationOutput> Cancel(int64_t id) override { return scheduler_.Cancel(id); }
  void Pause(bool) override {}
  absl::Status LoadWeights(Lane, const WeightSnapshot&) override { return absl::OkStatus(); }
  PolicyVersion version(Lane) const override { return policy; }
  EngineStats stats() const override {
    EngineStats stats = scheduler_.stats();
    stats.max_tokens = max_tokens;
    return stats;
  }

 private:
  static ModelConfig Config(bool scalar_head) {
    ModelConfig config;
    config.scalar_head = scalar_head;
    config.vocab_size = kVocabulary;
    config.hidden_size = 8;
    config.num_hidden_layers = 1;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 1;
    config.head_dim = 4;
    config.intermediate_size = 8;
    config.max_position_embeddings = kContext;
    return config;
  }

  const bool scalar_head_;
  KvCache cache_;
  EngineScheduler scheduler_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_OPENAI_SCRIPTED_ENGINE_H_
