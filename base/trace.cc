#include "base/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kTraceDigits = 32;
constexpr size_t kSpanDigits = 16;
// "00-" TRACE "-" SPAN "-01"
constexpr size_t kHeaderSize = 3 + kTraceDigits + 1 + kSpanDigits + 3;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

// Hex digits of a hash, never all 0.
std::string IdOf(std::string_view text, size_t digits) {
  std::string id = Sha256Hex(text).substr(0, digits);
  if (!IsId(id)) id.back() = '1';
  return id;
}

// Whether the trace is in the share `ratio`.
bool IsDrawn(std::string_view trace_id, double ratio) {
  uint64_t drawn = 0;
  const char* const end = trace_id.data() + trace_id.size();
  std::from_chars(end - 16, end, drawn, 16);
  return static_cast<double>(drawn) < std::ldexp(ratio, 64);
}

}  // namespace

std::string TraceIdOf(std::string_view uid) { return IdOf(uid, kTraceDigits); }

bool IsTraced(std::string_view uid, double ratio) {
  if (!(ratio > 0)) return false;
  return ratio >= 1 || IsDrawn(TraceIdOf(uid), ratio);
}

std::string TraceWords(std::string_view uid) {
  return StrCat("trace=", TraceIdOf(uid), " sample=", uid);
}

TraceContext MakeTraceContext(std::string_view uid, std::string_view span, double ratio) {
  TraceContext context;
  context.trace_id = TraceIdOf(uid);
  context.span_id = IdOf(StrCat(uid, " ", span), kSpanDigits);
  context.sampled = ratio > 0 && IsDrawn(context.trace_id, ratio);
  return context;
}

std::string Traceparent(const TraceContext& context) {
  return StrCat("00-", context.trace_id, "-", context.span_id, context.sampled ? "-01" : "-00");
}

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kHeaderSize) return std::nullopt;
  const std::string_view version = header.substr(0, 2);
  const std::string_view trace = header.substr(3, kTraceDigits);
  const std::string_view span = header.substr(3 + kTraceDigits + 1, kSpanDigits);
  const std::string_view flags = header.substr(kHeaderSize - 2, 2);
  const bool dashes =
      header[2] == '-' && header[3 + kTraceDigits] == '-' && header[kHeaderSize - 3] == '-';
  if (!dashes || !IsHex(version) || version == "ff" || !IsId(trace) || !IsId(span) ||
      !IsHex(flags)) {
    return std::nullopt;
  }
  if (header.size() > kHeaderSize && (version == "00" || header[kHeaderSize] != '-')) {
    return std::nullopt;
  }
  const char low = flags[1];
  const int bits = low <= '9' ? low - '0' : low - 'a' + 10;
  return TraceContext{std::string(trace), std::string(span), (bits & 1) != 0};
}

}  // namespace freshet
