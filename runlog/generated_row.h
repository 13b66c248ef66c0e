#ifndef FRESHET_RUNLOG_GENERATED_ROW_H_
#define FRESHET_RUNLOG_GENERATED_ROW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace freshet {

// Consecutive tokens of a completion that the policy sampled, or that the environment added.
struct GeneratedTurn {
  bool of_policy = true;
  std::string text;
  int64_t tokens = 0;
};

// Token ids of a sample, and log-probs in nats under the policy, one for each completion token; 0
// for tokens of the environment.
struct GeneratedIds {
  std::vector<int32_t> prompt;
  std::vector<int32_t> completion;
  std::vector<float> logprobs;
};

// A sample of a job of kind generate. A line of the files in generated/ (docs/run-folder.md).
struct GeneratedRow {
  int64_t step = 0;
  std::string uid;
  int64_t policy_version = 0;  // the oldest that sampled a token
  std::string prompt;
  std::string completion;
  std::vector<GeneratedTurn> turns;  // empty if the policy sampled the whole completion
  double reward = 0;
  std::map<std::string, double> components;  // without weights
  std::string outcome;                       // of scoring: ok, wrong_format, timeout, infra_error
  std::optional<double> environment_reward;
  std::string finish;                             // stop, length, none
  int64_t tokens = 0;                             // of the completion
  std::vector<int32_t> segments;                  // where its conversations begin; empty: one
  std::map<std::string, std::string> attributes;  // fields of the dataset's row
  std::optional<GeneratedIds> ids;
};

constexpr size_t kMaxGeneratedLine = size_t{16} << 20;  // bytes

// One line of JSON with its newline, of at most kMaxGeneratedLine bytes. Bytes that are not UTF-8
// become U+FFFD, numbers that are not finite null. A row that would be longer keeps its numbers and
// the beginnings of prompt and completion, and has `"truncated": true`. Pure.
std::string ToLine(const GeneratedRow& row);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_GENERATED_ROW_H_
