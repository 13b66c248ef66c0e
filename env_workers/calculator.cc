#include "env_workers/calculator.h"

#include <optional>

#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "env_workers/integer_expression.h"
#include "env_workers/option_reader.h"

namespace freshet {
namespace {

std::string_view StripSpace(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The text in the brackets that end the action; nullopt if there are none.
std::optional<std::string_view> ToolCall(std::string_view action) {
  if (!action.ends_with(']')) return std::nullopt;
  const size_t open = action.rfind('[');
  if (open == std::string_view::npos) return std::nullopt;
  return action.substr(open + 1, action.size() - open - 2);
}

std::string DrawExpression(uint64_t seed, int64_t operands, int64_t digits,
                           const std::string& operators) {
  uint64_t range = 9;  // number of values with `digits` digits
  for (int64_t i = 1; i < digits; ++i) range *= 10;
  std::string text;
  for (int64_t i = 0; i < operands; ++i) {
    const auto n = static_cast<uint64_t>(i);
    if (i > 0) text += operators[RandomBits(seed, 1, n) % operators.size()];
    // One digit: 0 to 9. More digits: no leading zero.
    const uint64_t number =
        digits == 1 ? RandomBits(seed, 0, n) % 10 : range / 9 + RandomBits(seed, 0, n) % range;
    text += StrCat(number);
  }
  return text;
}

absl::Status CheckOperators(const std::string& operators) {
  if (!operators.empty() && operators.size() <= 8 &&
      operators.find_first_not_of("+-*") == std::string::npos) {
    return absl::OkStatus();
  }
  return InvalidArgument("options.operators: '", operators.substr(0, 40),
                         "'; give one to eight characters out of + - *");
}

}  // namespace

std::vector<std::string> Calculator::OptionNames() {
  return {"source", "prompt", "digits", "operands", "operators", "calls"};
}

absl::StatusOr<EnvironmentReply> Calculator::Reset(uint64_t seed,
                                                   const EnvironmentOptions& options) {
  OptionReader reader(options);
  const bool from_prompt = reader.Choice("source", {"seed", "prompt"}) == "prompt";
  const int64_t digits = reader.Int("digits", 2, 1, 9);
  const int64_t operands = reader.Int("operands", 2, 2, 8);
  const std::string operators = reader.Text("operators", "+-*");
  calls_left_ = reader.Int("calls", 3, 0, 64);
  FRESHET_RETURN_IF_ERROR(reader.status());
  FRESHET_RETURN_IF_ERROR(CheckOperators(operators));
  EnvironmentReply reply;
  std::string expression;
  if (from_prompt) {
    const std::string prompt = reader.Text("prompt", "");
    expression = std::string(StripSpace(prompt.substr(0, prompt.rfind('='))));
  } else {
    expression = DrawExpression(seed, operands, digits, operators);
    reply.observation = expression + "=";
  }
  const absl::StatusOr<int64_t> value = EvaluateExpression(expression);
  if (!value.ok()) {
    return InvalidArgument("the expression '", expression.substr(0, 64),
                           "': ", Message(value.status()));
  }
  value_ = *value;
  reply.info["value"] = StrCat(value_);
  return reply;
}

absl::StatusOr<EnvironmentReply> Calculator::Step(std::string_view action) {
  const std::string_view text = StripSpace(action);
  EnvironmentReply reply;
  if (const std::optional<std::string_view> call = ToolCall(text)) {
    if (calls_left_ == 0) {
      reply.truncated = true;
      return reply;
    }
    --calls_left_;
    const absl::StatusOr<int64_t> value = EvaluateExpression(*call);
    reply.observation = value.ok() ? StrCat(*value, "=") : "!=";
    reply.invalid = !value.ok();
    return reply;
  }
  reply.terminated = true;
  reply.reward = ParseInteger(text) == std::optional<int64_t>(value_) ? 1.0 : 0.0;
  return reply;
}

}  // namespace freshet
