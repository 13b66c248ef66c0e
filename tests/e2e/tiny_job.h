#ifndef FRESHET_TESTS_E2E_TINY_JOB_H_
#define FRESHET_TESTS_E2E_TINY_JOB_H_

#include <map>
#include <string>

namespace freshet {

// A job file as top-level key -> value in YAML flow style. An empty value omits the key.
using TinyJob = std::map<std::string, std::string>;

// Copies three digits ("730=" -> "730"): 6 steps of 8 groups of 4 samples in 0.5 s, with
// checkpoints and evaluations every 2 steps.
inline TinyJob MakeTinyJob() {
  return {
      {"name", "tiny"},
      {"seed", "1"},
      {"model",
       "{init: random, config: {model_type: llama, hidden_size: 32, num_hidden_layers: 1, "
       "num_attention_heads: 2, intermediate_size: 64, max_position_embeddings: 8}}"},
      {"tokenizer", "{type: char, alphabet: \"0123456789=\"}"},
      {"dataset", "{type: copy, symbols: \"0123456789\", length: 3, train_rows: 800}"},
      {"group_size", "4"},
      {"prompts_per_step", "8"},
      {"rollout", "{max_new_tokens: 4}"},
      {"staleness", "{max: 1, policy: wait}"},
      {"reward", "{components: {exact: {type: exact_match}}}"},
      {"loss",
       "{preset: grpo, anchor: proximal, clip: {low: 0.2, high: 0.28}, "
       "correction: {kind: tis, cap: 2.0}}"},
      {"warmup", "{sft: {steps: 30, batch_size: 32, learning_rate: 5.0e-3}}"},
      {"trainer", "{steps: 6}"},
      {"optimizer", "{learning_rate: 1.0e-3}"},
      {"checkpoint", "{every_steps: 2}"},
      {"eval", "{every_steps: 2, rows: 20}"},
  };
}

inline std::string ToYaml(const TinyJob& job) {
  std::string text;
  for (const auto& [key, value] : job) {
    if (!value.empty()) text += key + ": " + value + "\n";
  }
  return text;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_E2E_TINY_JOB_H_
