#include "services/reward/scorers/regex_scorer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// PCRE2 counts one per attempt to match a part of the pattern; a million take about 50 ms.
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kDepthLimit = 250'000;
constexpr uint32_t kHeapLimitKib = 32 << 10;
// Small, because one step between callouts may scan the whole completion.
constexpr uint32_t kCalloutsPerClockRead = 256;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

struct Watchdog {
  absl::Time deadline;
  uint32_t callouts = 0;
};

// Bounds the time: the match limit bounds the number of attempts, but not the bytes that each one
// scans.
int CheckDeadline(pcre2_callout_block*, void* data) {
  auto* watchdog = static_cast<Watchdog*>(data);
  if (++watchdog->callouts % kCalloutsPerClockRead != 0) return 0;
  return SystemClock::Get().Now() < watchdog->deadline ? 0 : PCRE2_ERROR_CALLOUT;
}

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return StrCat("error ", code);
  return std::string(reinterpret_cast<const char*>(buffer));
}

}  // namespace

struct RegexScorer::Program {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
};

RegexScorer::RegexScorer(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
RegexScorer::~RegexScorer() = default;

absl::StatusOr<std::unique_ptr<RegexScorer>> RegexScorer::Create(const std::string& pattern,
                                                                 Match match, bool ignore_case) {
  if (pattern.empty()) return InvalidArgument("pattern is empty; every completion would match");
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgument("pattern has ", pattern.size(), " bytes, more than ", kMaxPatternBytes);
  }
  uint32_t options =
      PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
  if (match == Match::kWhole) options |= PCRE2_ANCHORED | PCRE2_ENDANCHORED;
  if (ignore_case) options |= PCRE2_CASELESS;
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto program = std::make_unique<Program>();
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                    options, &error, &offset, nullptr));
  if (program->code == nullptr) {
    return InvalidArgument("pattern does not compile: ", ErrorText(error), " at byte ", offset);
  }
  return std::unique_ptr<RegexScorer>(new RegexScorer(std::move(program)));
}

absl::StatusOr<ComponentScore> RegexScorer::Score(const ScoreInput& input) const {
  const std::unique_ptr<pcre2_match_context, MatchContextDeleter> context(
      pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create(1, nullptr));
  if (context == nullptr || data == nullptr) {
    return ResourceExhausted("no memory for a regular expression match");
  }
  Watchdog watchdog{SystemClock::Get().Now() + input.timeout};
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_depth_limit(context.get(), kDepthLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  pcre2_set_callout(context.get(), CheckDeadline, &watchdog);
  const std::string_view text = input.completion.empty() ? std::string_view("") : input.completion;
  const int rc =
      pcre2_match(program_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                  /*startoffset=*/0, /*options=*/0, data.get(), context.get());
  if (rc >= 0) return ComponentScore{1.0};
  switch (rc) {
    case PCRE2_ERROR_NOMATCH:
      return ComponentScore{0.0};
    case PCRE2_ERROR_CALLOUT:
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
      return StatusOf(
          absl::StatusCode::kDeadlineExceeded,
          "regular expression gave up: ", rc == PCRE2_ERROR_CALLOUT ? "time-out" : ErrorText(rc),
          " on a completion of ", text.size(), " bytes; make the pattern backtrack less");
    default:
      return Internal("regular expression failed: ", ErrorText(rc));
  }
}

}  // namespace freshet
