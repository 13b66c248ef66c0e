#ifndef FRESHET_TESTS_JOB_JOB_TEXT_H_
#define FRESHET_TESTS_JOB_JOB_TEXT_H_

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "job/job_parser.h"

namespace freshet {

// The shortest valid job, one block per line: name 1, model 2, tokenizer 3, dataset 4, rollout 5,
// reward 6, trainer 7, optimizer 8.
inline std::string MinimalJob() {
  return "name: tiny\n"
         "model: {init: random, config: {hidden_size: 8, num_hidden_layers: 1, "
         "num_attention_heads: 2, intermediate_size: 16, max_position_embeddings: 16}}\n"
         "tokenizer: {type: char, alphabet: \"0123456789+=\"}\n"
         "dataset: {type: arithmetic}\n"
         "rollout: {max_new_tokens: 4}\n"
         "reward: {components: {exact: {type: exact_match}}}\n"
         "trainer: {steps: 10}\n"
         "optimizer: {learning_rate: 1.0e-3}\n";
}

// MinimalJob() with `line` (1-based) replaced by `text`.
inline std::string MinimalJobWith(int line, const std::string& text) {
  std::string job = MinimalJob();
  size_t begin = 0;
  for (int i = 1; i < line; ++i) begin = job.find('\n', begin) + 1;
  return job.replace(begin, job.find('\n', begin) - begin, text);
}

// The errors of parsing `yaml` as job.yaml, one per line.
inline std::vector<std::string> ErrorLines(const std::string& yaml,
                                           const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> lines;
  for (const ConfigError& error : ParseJob(yaml, "job.yaml", overrides).errors) {
    lines.push_back(FormatConfigError(error));
  }
  return lines;
}

}  // namespace freshet

#endif  // FRESHET_TESTS_JOB_JOB_TEXT_H_
