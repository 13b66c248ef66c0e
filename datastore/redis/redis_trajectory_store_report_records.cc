// Records for reports: ledger entries, counters, the cursor.
#include <algorithm>
#include <map>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store_records.h"

namespace freshet {
namespace {

using Fields = std::map<std::string_view, std::string_view>;

std::string_view Value(const Fields& fields, std::string_view name) {
  const auto it = fields.find(name);
  return it == fields.end() ? std::string_view() : it->second;
}

absl::StatusOr<int64_t> Number(const Fields& fields, std::string_view name) {
  std::string_view text = Value(fields, name);
  return TakeNumber(text, ' ');
}

absl::StatusOr<LedgerEvent> ParseEvent(std::string_view name) {
  for (const LedgerEvent event :
       {LedgerEvent::kOpen, LedgerEvent::kResumed, LedgerEvent::kDurable, LedgerEvent::kTrained,
        LedgerEvent::kFiltered, LedgerEvent::kDropped, LedgerEvent::kRequeued,
        LedgerEvent::kDead}) {
    if (name == Name(event)) return event;
  }
  return DataLoss("ledger entry: event '", name.substr(0, 40), "' is unknown");
}

// Computes a sample's loss window from its spans, like ComputeLossWindow does from the response.
absl::Status FillSpans(std::string_view spans, const StalenessOptions& staleness, LedgerRow& row) {
  bool any = false;
  row.min_version = row.max_version = row.train_version;
  while (!spans.empty()) {
    std::string_view part = TakePart(spans, ';');
    Span span;
    FRESHET_ASSIGN_OR_RETURN(span.policy.lineage, TakeNumber(part, ':'));
    FRESHET_ASSIGN_OR_RETURN(span.policy.version, TakeNumber(part, ':'));
    FRESHET_ASSIGN_OR_RETURN(const int64_t begin, TakeNumber(part, ':'));
    FRESHET_ASSIGN_OR_RETURN(const int64_t end, TakeNumber(part, ':'));
    FRESHET_ASSIGN_OR_RETURN(const int64_t loss, TakeNumber(part, ':'));
    span.begin = static_cast<int32_t>(begin);
    span.end = static_cast<int32_t>(end);
    const int64_t version = span.policy.version;
    row.spans.push_back(span);
    if (loss == 0) continue;
    if (staleness.disposition == Disposition::kMask &&
        row.train_version - version > staleness.max) {
      row.masked_tokens += loss;
      continue;
    }
    row.loss_tokens += loss;
    row.min_version = any ? std::min(row.min_version, version) : version;
    row.max_version = any ? std::max(row.max_version, version) : version;
    any = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LedgerRow>> SampleRows(LedgerRow row, const Fields& fields,
                                                  const RedisStoreConfig& config) {
  std::string_view head = Value(fields, "head");
  FRESHET_ASSIGN_OR_RETURN(row.epoch, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(row.step, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(row.train_version, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(row.prompt, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t attempt, TakeNumber(head, ' '));
  row.attempt = static_cast<int32_t>(attempt);
  FRESHET_ASSIGN_OR_RETURN(row.lineage, TakeNumber(head, ' '));
  row.redo = Value(fields, "redo") == "1";
  row.reason = std::string(Value(fields, "reason"));
  std::vector<LedgerRow> rows;
  std::string_view lines = Value(fields, "rows");
  do {
    std::string_view line = TakePart(lines, '\n');
    LedgerRow sample = row;
    sample.seq = row.seq + static_cast<int64_t>(rows.size());
    if (!line.empty()) {
      FRESHET_ASSIGN_OR_RETURN(const int64_t index, TakeNumber(line, ' '));
      FRESHET_ASSIGN_OR_RETURN(const SampleRecord record, ParseSampleRecord(line));
      sample.sample = static_cast<int32_t>(index);
      FRESHET_RETURN_IF_ERROR(FillSpans(record.spans, config.options.staleness, sample));
    } else {
      sample.min_version = sample.max_version = sample.train_version;
    }
    sample.uid = SampleUid(config.options.job, {sample.prompt, sample.attempt, sample.sample});
    rows.push_back(std::move(sample));
  } while (!lines.empty());
  return rows;
}

}  // namespace

absl::StatusOr<std::vector<LedgerRow>> ExpandLedgerEntry(const RedisReply& entry,
                                                         const RedisStoreConfig& config) {
  if (entry.items.size() != 2) return DataLoss("ledger entry: not an entry of a stream");
  Fields fields;
  const std::vector<RedisReply>& pairs = entry.items[1].items;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) fields[pairs[i].text] = pairs[i + 1].text;
  LedgerRow row;
  std::string_view id = entry.items[0].text;
  FRESHET_ASSIGN_OR_RETURN(row.seq, TakeNumber(id, '-'));
  FRESHET_ASSIGN_OR_RETURN(row.event, ParseEvent(Value(fields, "event")));
  const StoreOptions& options = config.options;
  switch (row.event) {
    case LedgerEvent::kOpen:
      row.job = options.job;
      row.bound = options.staleness.max;
      row.disposition = Name(options.staleness.disposition);
      row.groups_per_step = options.staleness.groups_per_step;
      row.group_size = options.group_size;
      return std::vector<LedgerRow>{row};
    case LedgerEvent::kResumed:
    case LedgerEvent::kDurable:
      row.checkpoint_sha256 = std::string(Value(fields, "sha256"));
      row.digest = std::string(Value(fields, "digest"));
      if (row.event == LedgerEvent::kDurable) {
        FRESHET_ASSIGN_OR_RETURN(row.lineage, Number(fields, "lineage"));
        FRESHET_ASSIGN_OR_RETURN(row.version, Number(fields, "version"));
      } else {
        row.lineage = config.origin.policy.lineage;
        FRESHET_ASSIGN_OR_RETURN(row.epoch, Number(fields, "epoch"));
        FRESHET_ASSIGN_OR_RETURN(row.parent_lineage, Number(fields, "parent"));
        FRESHET_ASSIGN_OR_RETURN(row.fork_version, Number(fields, "fork"));
      }
      return std::vector<LedgerRow>{row};
    default:
      return SampleRows(std::move(row), fields, config);
  }
}

absl::StatusOr<StoreStats> ParseStats(const RedisReply& counters, const RedisReply& reasons) {
  std::map<std::string, int64_t> numbers;
  for (size_t i = 0; i + 1 < counters.items.size(); i += 2) {
    std::string_view text = counters.items[i + 1].text;
    FRESHET_ASSIGN_OR_RETURN(numbers[counters.items[i].text], TakeNumber(text, ' '));
  }
  StoreStats stats;
  for (int state = 0; state < kNumGroupStates; ++state) {
    stats.groups[state] = numbers[StrCat("n", state)];
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
  for (size_t i = 0; i + 1 < reasons.items.size(); i += 2) {
    std::string_view text = reasons.items[i + 1].text;
    FRESHET_ASSIGN_OR_RETURN(const int64_t groups, TakeNumber(text, ' '));
    stats.ended_by_reason.emplace_back(reasons.items[i].text, groups);
  }
  std::sort(stats.ended_by_reason.begin(), stats.ended_by_reason.end());
  return stats;
}

PromptCursor CursorOf(int64_t high_water, std::vector<int64_t> live, const PromptCursor& origin) {
  std::sort(live.begin(), live.end());
  PromptCursor cursor;
  cursor.low_water = live.empty() ? high_water + 1 : live.front();
  // Every ordinal up to the high-water mark that is not live has ended or can never occur.
  auto next = live.begin();
  for (int64_t ordinal = cursor.low_water; ordinal <= high_water; ++ordinal) {
    if (next != live.end() && *next == ordinal) {
      ++next;
    } else {
      cursor.above.push_back(ordinal);
    }
  }
  std::vector<int64_t> later;  // ended before a resume
  for (const int64_t ordinal : origin.above) {
    if (ordinal > high_water) later.push_back(ordinal);
  }
  std::sort(later.begin(), later.end());
  cursor.above.insert(cursor.above.end(), later.begin(), later.end());
  // Ended ordinals adjacent to the low-water mark raise it.
  size_t reached = 0;
  if (live.empty()) {
    while (reached < cursor.above.size() && cursor.above[reached] == cursor.low_water) {
      ++cursor.low_water;
      ++reached;
    }
  }
  cursor.above.erase(cursor.above.begin(),
                     cursor.above.begin() + static_cast<std::ptrdiff_t>(reached));
  return cursor;
}

}  // namespace freshet
