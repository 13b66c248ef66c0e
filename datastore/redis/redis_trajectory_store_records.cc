#include "datastore/redis/redis_trajectory_store_records.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_reading.h"

namespace freshet {
namespace {

// The numbers of a lease reason, after its kind.
struct ReasonNumbers {
  AdmissionState state;
  int64_t trained = 0;
  int64_t backlog = 0;
  // Requested groups, filtered groups of a paused job, or percent of the memory limit.
  int64_t count = 0;
  std::optional<AdmissionState> kept;  // when the first group with kept tokens was refused
};

absl::StatusOr<ReasonNumbers> ParseReason(std::string_view text, const RedisStoreConfig& config) {
  ReasonNumbers numbers;
  AdmissionState& state = numbers.state;
  FRESHET_RETURN_IF_ERROR(TakeNumbers(text, ' ', state.committed.lineage, state.committed.version,
                                      state.engine.lineage, state.engine.version, state.outstanding,
                                      state.running, numbers.trained, numbers.backlog,
                                      numbers.count));
  state.last_step = config.options.last_step;
  if (text.empty()) return numbers;
  AdmissionState& kept = numbers.kept.emplace(state);
  FRESHET_RETURN_IF_ERROR(
      TakeNumbers(text, ' ', kept.kept_version, kept.outstanding, kept.running));
  return numbers;
}

std::string StopText(std::string_view kind, const ReasonNumbers& numbers,
                     const RedisStoreConfig& config) {
  if (kind == "admission") return DecideAdmission(config.options.staleness, numbers.state).reason;
  if (kind == "full") {
    return StrCat("store full: ", numbers.state.outstanding, " groups outstanding and ",
                  numbers.trained, " trained but not durable, of ", config.options.capacity_groups,
                  ": a checkpoint must become durable");
  }
  if (kind == "memory") {
    return StrCat(PressureText(numbers.count), ": from ", kPressurePercent,
                  " % on a job gets only the ", config.options.staleness.groups_per_step,
                  " groups of its next step, and ", numbers.state.outstanding, " are outstanding");
  }
  if (kind == "backlog") {
    return StrCat("store full: ", numbers.backlog, " ledger rows are not drained");
  }
  if (kind == "empty") return "prompt queue empty";
  if (kind == "paused") return PausedText(numbers.count);
  return StrCat("request served: ", numbers.count, " groups asked for");
}

// Pairs of a reason and a number, sorted.
absl::StatusOr<std::vector<std::pair<std::string, int64_t>>> ParseReasonCounts(
    const RedisReply& reply) {
  std::vector<std::pair<std::string, int64_t>> reasons;
  reasons.reserve(reply.items.size() / 2);
  for (size_t i = 0; i + 1 < reply.items.size(); i += 2) {
    FRESHET_ASSIGN_OR_RETURN(const int64_t number, ParseNumber(reply.items[i + 1].text));
    reasons.emplace_back(reply.items[i].text, number);
  }
  std::sort(reasons.begin(), reasons.end());
  return reasons;
}

}  // namespace

std::string PausedText(int64_t filtered) { return StrCat("job paused: ", FilteredText(filtered)); }

std::string_view TakePart(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

absl::StatusOr<int64_t> TakeNumber(std::string_view& text, char separator) {
  const std::string_view part = TakePart(text, separator);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size()) {
    return DataLoss("store record: '", part.substr(0, 80), "' is not a number");
  }
  return value;
}

absl::StatusOr<int64_t> ParseNumber(std::string_view text) { return TakeNumber(text, ' '); }

absl::StatusOr<std::string> TakeSized(std::string_view& text) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t size, TakeNumber(text, ':'));
  if (size < 0 || static_cast<size_t>(size) > text.size()) {
    return DataLoss("store record: ", size, " bytes announced, ", text.size(), " present");
  }
  std::string value(text.substr(0, static_cast<size_t>(size)));
  text.remove_prefix(static_cast<size_t>(size));
  return value;
}

ResponseSummary Summarize(const Response& response, bool needs_loss) {
  ResponseSummary summary;
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const ResponseBounds any{kMin, kMin, {kMax, kMax}, needs_loss};
  if (!CheckResponse(response, any).ok()) return summary;
  summary.well_formed = true;
  const PolicyVersion first = response.spans.front().policy;
  summary.first_lineage = summary.last_lineage = first.lineage;
  summary.oldest = summary.newest = first.version;
  summary.num_tokens = static_cast<int64_t>(response.response_ids.size());
  bool any_loss = false;
  for (const Span& span : response.spans) {
    const auto& [lineage, version] = span.policy;
    summary.first_lineage = std::min(summary.first_lineage, lineage);
    summary.last_lineage = std::max(summary.last_lineage, lineage);
    summary.oldest = std::min(summary.oldest, version);
    summary.newest = std::max(summary.newest, version);
    const int64_t loss = CountLossTokens(response.loss_mask, span.begin, span.end);
    if (loss > 0) {
      summary.loss_oldest = any_loss ? std::min(summary.loss_oldest, version) : version;
      summary.loss_newest = any_loss ? std::max(summary.loss_newest, version) : version;
      any_loss = true;
    }
    const bool begins_segment =
        std::binary_search(response.segments.begin(), response.segments.end(), span.begin);
    summary.spans += StrCat(summary.spans.empty() ? "" : ";", lineage, ":", version, ":",
                            span.begin, ":", span.end, ":", loss, begins_segment ? ":1" : "");
  }
  if (!any_loss) {
    summary.loss_oldest = summary.oldest;
    summary.loss_newest = summary.newest;
  }
  return summary;
}

absl::Status Malformed(const Response& response, const ResponseBounds& bounds) {
  const absl::Status status = CheckResponse(response, bounds);
  return status.ok() ? Internal("redis script refused a well-formed response") : status;
}

absl::Status RowNotLive(int64_t token) {
  return FailedPrecondition("row lease ", token, " is not live");
}

absl::StatusOr<SampleRecord> ParseSampleRecord(std::string_view text) {
  SampleRecord record;
  const std::string_view token = TakePart(text, ' ');
  record.checksum = std::string(TakePart(text, ' '));
  FRESHET_ASSIGN_OR_RETURN(record.num_tokens, TakeNumber(text, ' '));
  std::string_view place = TakePart(text, ' ');
  const std::string_view first = TakePart(place, ':');
  const std::string_view sum = TakePart(place, ':');
  record.blob = StrCat(token, ":", first, ":", sum);
  FRESHET_RETURN_IF_ERROR(TakeNumbers(place, ':', record.offset, record.size));
  if (record.offset < 0 || record.size < 0) {
    return DataLoss("store record: ", record.size, " bytes at ", record.offset);
  }
  record.spans = std::string(TakePart(text, ' '));
  record.replay_of = std::string(text);
  return record;
}

std::string ReplayOf(const SampleRecord& record, std::string_view job) {
  return record.replay_of.empty() ? "" : StrCat(job, "/", record.replay_of);
}

std::string SampleRecordText(std::string_view token, std::string_view checksum,
                             const ResponseSummary& summary, std::string_view place) {
  return StrCat(token, " ", checksum, " ", summary.num_tokens, " ", place, " ", summary.spans);
}

absl::StatusOr<LeaseReason> ParseLeaseReason(std::string_view reason,
                                             const RedisStoreConfig& config) {
  const std::string_view kind = TakePart(reason, ' ');
  FRESHET_ASSIGN_OR_RETURN(const ReasonNumbers numbers, ParseReason(reason, config));
  std::string text = StopText(kind, numbers, config);
  if (numbers.kept.has_value()) {
    text += StrCat("; ", DecideAdmission(config.options.staleness, *numbers.kept).reason);
  }
  return LeaseReason{std::move(text), numbers.state.committed, numbers.state.engine};
}

absl::StatusOr<Explanation> EdgeText(const RedisReply& edge, const RedisStoreConfig& config) {
  if (edge.items.size() != 5) return DataLoss("store record: an edge of ", edge.items.size());
  Explanation explanation{edge.items[0].text, edge.items[1].text};
  if (edge.items[2].integer >= 0) {
    explanation.text += absl::FormatDuration(
        absl::Trunc(absl::Microseconds(edge.items[2].integer), absl::Milliseconds(1)));
  }
  const size_t before = explanation.text.size();
  explanation.text += edge.items[3].text;
  const std::vector<RedisReply>& pairs = edge.items[4].items;
  std::vector<std::pair<std::string, std::string>> notes;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (!pairs[i + 1].text.empty()) notes.emplace_back(pairs[i].text, pairs[i + 1].text);
  }
  std::sort(notes.begin(), notes.end());
  constexpr size_t kMaxNotesBytes = 600;
  for (const auto& [worker, note] : notes) {
    FRESHET_ASSIGN_OR_RETURN(const LeaseReason reason, ParseLeaseReason(note, config));
    explanation.text +=
        StrCat("; ", worker, " at version ", reason.engine.version, " was told: ", reason.text);
    if (explanation.text.size() - before > kMaxNotesBytes) break;
  }
  return explanation;
}

absl::StatusOr<StoreStats> ParseStats(const RedisReply& counters, const RedisReply& reasons,
                                      const RedisReply& skipped_reasons) {
  std::map<std::string, int64_t> numbers;
  for (size_t i = 0; i + 1 < counters.items.size(); i += 2) {
    FRESHET_ASSIGN_OR_RETURN(numbers[counters.items[i].text],
                             ParseNumber(counters.items[i + 1].text));
  }
  StoreStats stats;
  for (int state = 0; state < kNumGroupStates; ++state) {
    stats.groups[state] = numbers[StrCat("n", state)];
    stats.skipped[state] = numbers[StrCat("s", state)];
    stats.transitions[state] = numbers[StrCat("t", state)];
    stats.time_in_state[state] = absl::Microseconds(numbers[StrCat("d", state)]);
  }
  stats.outstanding = numbers["outstanding"];
  stats.queued_prompts = numbers["queued"];
  stats.committed_version = numbers["version"];
  stats.leases_expired = numbers["leases_expired"];
  stats.samples_put = numbers["samples_put"];
  stats.duplicate_puts = numbers["duplicate_puts"];
  stats.fenced_puts = numbers["fenced_puts"];
  stats.running = numbers["running"];
  stats.capacity_used = numbers["capacity_used"];
  stats.ledger_backlog = numbers["backlog"];
  stats.filtered_in_a_row = numbers["filtered_in_a_row"];
  stats.trained_samples = numbers["trained_samples"];
  stats.trained_tokens = numbers["trained_tokens"];
  stats.discarded_samples = numbers["discarded_samples"];
  stats.discarded_tokens = numbers["discarded_tokens"];
  stats.replayed_samples = numbers["replayed_samples"];
  stats.pooled_successes = numbers["pooled_successes"];
  stats.skipped_samples = numbers["skipped_samples"];
  stats.limited_groups = numbers["limited_groups"];
  stats.generation = {numbers["generated_tokens"], absl::Microseconds(numbers["idle_us"]),
                      absl::Microseconds(numbers["swap_us"])};
  FRESHET_ASSIGN_OR_RETURN(stats.ended_by_reason, ParseReasonCounts(reasons));
  FRESHET_ASSIGN_OR_RETURN(stats.skipped_by_reason, ParseReasonCounts(skipped_reasons));
  return stats;
}

PromptCursor CursorOf(int64_t high_water, std::vector<int64_t> live, const PromptCursor& origin) {
  std::sort(live.begin(), live.end());
  PromptCursor cursor;
  cursor.low_water = live.empty() ? high_water + 1 : live.front();
  // Every ordinal up to the high-water mark that is not live has ended or can never occur.
  for (int64_t ordinal = cursor.low_water; ordinal <= high_water; ++ordinal) {
    if (!std::binary_search(live.begin(), live.end(), ordinal)) cursor.above.push_back(ordinal);
  }
  std::vector<int64_t> earlier = origin.above;  // ended before a resume
  std::sort(earlier.begin(), earlier.end());
  for (const int64_t ordinal : earlier) {
    // Ended ordinals adjacent to the low-water mark raise it.
    if (live.empty() && ordinal == cursor.low_water) {
      ++cursor.low_water;
    } else if (ordinal > high_water) {
      cursor.above.push_back(ordinal);
    }
  }
  return cursor;
}

}  // namespace freshet
