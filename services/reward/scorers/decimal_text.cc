#include "services/reward/scorers/decimal_text.h"

#include <cstddef>

namespace freshet {
namespace {

constexpr std::string_view kUnicodeMinus = "\xE2\x88\x92";  // U+2212

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool DigitAt(std::string_view text, size_t at) { return at < text.size() && IsDigit(text[at]); }

// Size in bytes of the thousands separator at `at` that is followed by exactly three digits; 0 if
// none.
size_t ThousandsSeparator(std::string_view text, size_t at) {
  for (const std::string_view mark :
       {std::string_view(","), std::string_view("{,}"), std::string_view("\\,")}) {
    if (text.substr(at, mark.size()) != mark) continue;
    const size_t digits = at + mark.size();
    const bool three =
        DigitAt(text, digits) && DigitAt(text, digits + 1) && DigitAt(text, digits + 2);
    return three && !DigitAt(text, digits + 3) ? mark.size() : 0;
  }
  return 0;
}

// Whether digits are negated by the `text` before them, which may end in '$' or "\$".
bool IsNegative(std::string_view text) {
  if (text.ends_with('$')) text.remove_suffix(text.ends_with("\\$") ? 2 : 1);
  if (text.ends_with('-')) {
    text.remove_suffix(1);
  } else if (text.ends_with(kUnicodeMinus)) {
    text.remove_suffix(kUnicodeMinus.size());
  } else {
    return false;
  }
  if (text.empty()) return true;
  const char before = text.back();
  return !(IsDigit(before) || IsLetter(before) || before == ')' || before == ']' || before == '}' ||
           before == '%');
}

std::string Canonical(bool negative, std::string_view whole, std::string_view fraction) {
  const size_t first = whole.find_first_not_of('0');
  whole = first == std::string_view::npos ? std::string_view() : whole.substr(first);
  const size_t last = fraction.find_last_not_of('0');
  fraction = last == std::string_view::npos ? std::string_view() : fraction.substr(0, last + 1);
  if (whole.empty() && fraction.empty()) return "0";
  std::string result(negative ? "-" : "");
  result += whole.empty() ? std::string_view("0") : whole;
  if (!fraction.empty()) {
    result += '.';
    result += fraction;
  }
  return result;
}

}  // namespace

std::vector<std::string> FindDecimals(std::string_view text) {
  std::vector<std::string> result;
  size_t at = 0;
  while (at < text.size()) {
    // ".5" counts as 0.5, but not the second point of "1.2.5".
    const bool leading_point =
        text[at] == '.' && DigitAt(text, at + 1) && (at == 0 || !IsDigit(text[at - 1]));
    if (!IsDigit(text[at]) && !leading_point) {
      ++at;
      continue;
    }
    const size_t begin = at;
    std::string whole;
    while (DigitAt(text, at)) whole += text[at++];
    if (!whole.empty() && whole.size() <= 3) {
      for (size_t mark = ThousandsSeparator(text, at); mark > 0;
           mark = ThousandsSeparator(text, at)) {
        whole += text.substr(at + mark, 3);
        at += mark + 3;
      }
    }
    std::string fraction;
    if (at < text.size() && text[at] == '.' && DigitAt(text, at + 1)) {
      ++at;
      while (DigitAt(text, at)) fraction += text[at++];
    }
    result.push_back(Canonical(IsNegative(text.substr(0, begin)), whole, fraction));
  }
  return result;
}

}  // namespace freshet
