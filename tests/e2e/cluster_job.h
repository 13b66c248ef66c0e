#ifndef FRESHET_TESTS_E2E_CLUSTER_JOB_H_
#define FRESHET_TESTS_E2E_CLUSTER_JOB_H_

#include <string>

namespace freshet {

// A job for simulated engines and models that is also quick with real ones: `steps` steps of 4
// groups of 2 samples. `more` is appended YAML; it must not repeat a key.
inline std::string QuickJob(int steps, const std::string& more = "") {
  return "name: quick\n"
         "seed: 1\n"
         "model: {init: random, config: {hidden_size: 16, num_hidden_layers: 1, "
         "num_attention_heads: 2, intermediate_size: 32, max_position_embeddings: 64}}\n"
         "tokenizer: {type: char, alphabet: \"0123456789+=<>!?\"}\n"
         "dataset: {type: arithmetic, operands: 2, digits: 2, train_rows: 4000}\n"
         "group_size: 2\n"
         "prompts_per_step: 4\n"
         "rollout: {max_new_tokens: 40}\n"
         "staleness: {max: 2}\n"
         "loss: {preset: grpo}\n"
         "trainer: {steps: " +
         std::to_string(steps) +
         "}\n"
         "optimizer: {learning_rate: 1.0e-4}\n"
         "checkpoint: {every_steps: 4}\n" +
         more;
}

constexpr char kLengthReward[] =
    "reward: {components: {length: {type: length, max_tokens: 40, margin_tokens: 20}}}\n";

}  // namespace freshet

#endif  // FRESHET_TESTS_E2E_CLUSTER_JOB_H_
