#include "runlog/token_checks.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace freshet {

void CheckSpans(int64_t line_number, const LedgerLine& line, const LineageTree& lineages,
                Violations& violations) {
  const auto report = [&](const auto&... args) {
    violations.Add("line ", line_number, ": ", args...);
  };
  int64_t end = 0;
  const LedgerLine::Span* previous = nullptr;  // of the same segment
  for (const LedgerLine::Span& span : line.spans) {
    if (std::find(line.segments.begin(), line.segments.end(), span.begin) != line.segments.end()) {
      previous = nullptr;
    }
    if (span.begin != end || span.end <= span.begin) {
      report("spans of uid ", line.uid, " are not contiguous: [", span.begin, ", ", span.end,
             ") follows token ", end);
      return;
    }
    if (previous != nullptr &&
        std::pair(span.lineage, span.version) < std::pair(previous->lineage, previous->version)) {
      report("spans of uid ", line.uid, " go back from version ", previous->version, " to ",
             span.version);
    }
    if (span.version > line.train_version) {
      report("uid ", line.uid, " has tokens of version ", span.version, ", newer than the version ",
             line.train_version, " that trains on it");
    }
    const std::optional<int64_t> limit = lineages.VisibleVersion(line.lineage, span.lineage);
    if (!limit || span.version > *limit) {
      report("uid ", line.uid, " has tokens of the orphaned version ", span.version, " of lineage ",
             span.lineage);
    }
    end = span.end;
    previous = &span;
  }
  if (line.spans.empty()) report("uid ", line.uid, " has no spans");
  if (line.loss_tokens + line.masked_tokens > end) {
    report("uid ", line.uid, " has ", line.loss_tokens, " loss and ", line.masked_tokens,
           " masked tokens, but spans of only ", end);
  }
}

void CheckAge(int64_t line_number, const LedgerLine& line, int64_t bound, Violations& violations) {
  if (line.spans.empty() || line.loss_tokens == 0) return;
  const auto report = [&](const auto&... args) {
    violations.Add("line ", line_number, ": ", args...);
  };
  // The ledger does not say which tokens bear no loss (masked or observed). The loss-bearing ones
  // must fit in the spans from min_version to max_version, and in those within the bound.
  int64_t oldest = std::numeric_limits<int64_t>::max();
  int64_t newest = 0;
  int64_t window_tokens = 0;
  int64_t young_tokens = 0;
  bool min_is_a_span = false;
  bool max_is_a_span = false;
  for (const LedgerLine::Span& span : line.spans) {
    const int64_t tokens = span.end - span.begin;
    oldest = std::min(oldest, span.version);
    newest = std::max(newest, span.version);
    min_is_a_span = min_is_a_span || span.version == line.min_version;
    max_is_a_span = max_is_a_span || span.version == line.max_version;
    if (line.min_version <= span.version && span.version <= line.max_version) {
      window_tokens += tokens;
    }
    if (line.train_version - span.version <= bound) young_tokens += tokens;
  }
  if (!min_is_a_span || !max_is_a_span || line.loss_tokens > window_tokens) {
    report("min_version ", line.min_version, " and max_version ", line.max_version, " of uid ",
           line.uid, " do not agree with its spans, from ", oldest, " to ", newest);
  }
  if (line.train_version - line.min_version > bound || line.loss_tokens > young_tokens) {
    report("uid ", line.uid, " trained at version ", line.train_version, " on tokens of version ",
           line.loss_tokens > young_tokens ? oldest : line.min_version,
           ": staleness above the bound ", bound);
  }
}

}  // namespace freshet
