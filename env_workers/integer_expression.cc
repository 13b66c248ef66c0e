#include "env_workers/integer_expression.h"

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

absl::Status Overflow() {
  return StatusOf(absl::StatusCode::kOutOfRange, "the value does not fit into 64 bits");
}

// Reads one number at `at` and advances `at` past it.
absl::StatusOr<int64_t> ReadNumber(std::string_view text, size_t& at) {
  const bool negative = at < text.size() && text[at] == '-';
  if (negative) ++at;
  const size_t begin = at;
  int64_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    const int64_t digit = text[at] - '0';
    // Accumulates negatively, because the negative range is larger by one.
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, digit, &value)) {
      return Overflow();
    }
  }
  if (at == begin) return InvalidArgument("a digit is missing at byte ", at);
  if (!negative && __builtin_sub_overflow(0, value, &value)) return Overflow();
  return value;
}

}  // namespace

absl::StatusOr<int64_t> EvaluateExpression(std::string_view text) {
  if (text.size() > kMaxExpressionBytes) {
    return InvalidArgument("an expression of ", text.size(), " bytes is above ",
                           kMaxExpressionBytes);
  }
  size_t at = 0;
  int64_t sum = 0;
  FRESHET_ASSIGN_OR_RETURN(int64_t term, ReadNumber(text, at));
  while (at < text.size()) {
    const char op = text[at++];
    if (op != '+' && op != '-' && op != '*') {
      return InvalidArgument("no operator at byte ", at - 1, "; use + - or *");
    }
    if (at < text.size() && text[at] == '-') {
      return InvalidArgument("a digit is missing at byte ", at);
    }
    FRESHET_ASSIGN_OR_RETURN(const int64_t number, ReadNumber(text, at));
    if (op == '*') {
      if (__builtin_mul_overflow(term, number, &term)) return Overflow();
      continue;
    }
    if (__builtin_add_overflow(sum, term, &sum)) return Overflow();
    term = op == '+' ? number : -number;  // number >= 0, so -number does not overflow
  }
  if (__builtin_add_overflow(sum, term, &sum)) return Overflow();
  return sum;
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  if (text.size() > kMaxExpressionBytes) return std::nullopt;
  size_t at = 0;
  const absl::StatusOr<int64_t> value = ReadNumber(text, at);
  if (!value.ok() || at != text.size()) return std::nullopt;
  return *value;
}

}  // namespace freshet
