#ifndef FRESHET_ENV_WORKERS_INTEGER_EXPRESSION_H_
#define FRESHET_ENV_WORKERS_INTEGER_EXPRESSION_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace freshet {

inline constexpr size_t kMaxExpressionBytes = 256;

// Evaluates NUMBER (('+' | '-' | '*') NUMBER)*, where '*' binds more tightly. NUMBER is decimal
// digits; only the first may have a '-'. No spaces, no parentheses. One pass, no recursion.
// INVALID_ARGUMENT: anything else, or more than kMaxExpressionBytes. OUT_OF_RANGE: a number or an
// intermediate value beyond 64 bits.
absl::StatusOr<int64_t> EvaluateExpression(std::string_view text);

// Parses a text of decimal digits with an optional leading '-'; nullopt for anything else or beyond
// 64 bits. Leading zeros are allowed, within kMaxExpressionBytes.
std::optional<int64_t> ParseInteger(std::string_view text);

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_INTEGER_EXPRESSION_H_
