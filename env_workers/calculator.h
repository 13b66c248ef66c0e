#ifndef FRESHET_ENV_WORKERS_CALCULATOR_H_
#define FRESHET_ENV_WORKERS_CALCULATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "env_workers/environment.h"

namespace freshet {

// The task is to evaluate an expression, with a calculator as a tool. An action that ends with
// "[EXPRESSION]" is a tool call: the observation is the value and "=", for instance "408=" after
// "[12*34]", or "!=" for an invalid expression (integer_expression.h), whose action is invalid. Any
// other action is the final answer and ends the episode: reward 1 if the whole action, trimmed of
// spaces, is the value in decimal digits (leading zeros are ignored), else 0.
//
// Options:
//   source      seed (default): the expression is random, and the reset shows it as "12*34=".
//               prompt: it is the row's prompt up to its last '='; the reset shows nothing.
//   prompt      the row's prompt text; a field of every row.
//   digits      decimal digits of each random number, 1 to 9; default 2. No leading zeros.
//   operands    number of random numbers, 2 to 8; default 2.
//   operators   characters of "+-*" to choose operators from; default "+-*".
//   calls       tool calls allowed, 0 to 64; default 3. One more truncates the episode.
class Calculator final : public Environment {
 public:
  static std::vector<std::string> OptionNames();

  absl::StatusOr<EnvironmentReply> Reset(uint64_t seed, const EnvironmentOptions& options) override;
  absl::StatusOr<EnvironmentReply> Step(std::string_view action) override;

 private:
  int64_t value_ = 0;
  int64_t calls_left_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_CALCULATOR_H_
