#include "datastore/redis/redis_ledger.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/ledger_segment.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

// Entries per page: each is a group with a few hundred bytes per sample.
constexpr int64_t kPageEntries = 512;
constexpr int kMaxPackedSegments = 16;  // per Pack

using Fields = std::map<std::string_view, std::string_view>;

std::string_view Value(const Fields& fields, std::string_view name) {
  const auto it = fields.find(name);
  return it == fields.end() ? std::string_view() : it->second;
}

absl::StatusOr<int64_t> Number(const Fields& fields, std::string_view name) {
  return ParseNumber(Value(fields, name));
}

// Computes a sample's loss window from its spans, like ComputeLossWindow does from the response.
absl::Status FillSpans(std::string_view spans, const StalenessOptions& staleness, LedgerRow& row) {
  bool any = false;
  row.min_version = row.max_version = row.train_version;
  while (!spans.empty()) {
    std::string_view part = TakePart(spans, ';');
    Span span;
    int64_t loss = 0;
    FRESHET_RETURN_IF_ERROR(TakeNumbers(part, ':', span.policy.lineage, span.policy.version,
                                        span.begin, span.end, loss));
    const int64_t version = span.policy.version;
    row.spans.push_back(span);
    if (part == "1") row.segments.push_back(span.begin);
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
  FRESHET_RETURN_IF_ERROR(TakeNumbers(head, ' ', row.epoch, row.step, row.train_version, row.prompt,
                                      row.attempt, row.lineage));
  row.redo = Value(fields, "redo") == "1";
  row.reason = std::string(Value(fields, "reason"));
  if (!Value(fields, "samples").empty()) {
    FRESHET_ASSIGN_OR_RETURN(const int64_t samples, Number(fields, "samples"));
    row.samples = static_cast<int32_t>(samples);
  }
  std::vector<LedgerRow> rows;
  std::string_view lines = Value(fields, "rows");
  do {
    std::string_view line = TakePart(lines, '\n');
    LedgerRow sample = row;
    sample.seq = row.seq + static_cast<int64_t>(rows.size());
    if (!line.empty()) {
      FRESHET_RETURN_IF_ERROR(TakeNumbers(line, ' ', sample.sample));
      FRESHET_ASSIGN_OR_RETURN(const SampleRecord record, ParseSampleRecord(line));
      sample.replay_of = ReplayOf(record, config.options.job);
      FRESHET_RETURN_IF_ERROR(
          FillSpans(record.spans, config.options.BoundOf(!sample.replay_of.empty()), sample));
    } else {
      sample.min_version = sample.max_version = sample.train_version;
    }
    sample.uid = SampleUid(config.options.job, {sample.prompt, sample.attempt, sample.sample});
    rows.push_back(std::move(sample));
  } while (!lines.empty());
  return rows;
}

// Number of the first row of a stream entry.
absl::StatusOr<int64_t> FirstRowOf(const RedisReply& entry) {
  if (entry.items.empty()) return DataLoss("ledger entry: not an entry of a stream");
  std::string_view id = entry.items[0].text;
  return TakeNumber(id, '-');
}

absl::StatusOr<std::vector<LedgerRow>> ExpandLedgerEntry(const RedisReply& entry,
                                                         const RedisStoreConfig& config) {
  if (entry.items.size() != 2) return DataLoss("ledger entry: not an entry of a stream");
  Fields fields;
  const std::vector<RedisReply>& pairs = entry.items[1].items;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) fields[pairs[i].text] = pairs[i + 1].text;
  LedgerRow row;
  FRESHET_ASSIGN_OR_RETURN(row.seq, FirstRowOf(entry));
  const std::string_view name = Value(fields, "event");
  const std::optional<LedgerEvent> event = ParseLedgerEvent(name);
  if (!event) return DataLoss("ledger entry: event '", name.substr(0, 40), "' is unknown");
  row.event = *event;
  const StoreOptions& options = config.options;
  switch (row.event) {
    case LedgerEvent::kOpen:
      row.job = options.job;
      row.bound = options.staleness.max;
      row.disposition = Name(options.staleness.disposition);
      row.groups_per_step = options.staleness.groups_per_step;
      row.group_size = options.group_size;
      if (options.replay.has_value()) row.replay_max_age = options.replay->max_age;
      if (options.adaptive.has_value()) row.min_group_size = options.adaptive->min_group_size;
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

}  // namespace

absl::StatusOr<std::vector<LedgerRow>> RedisLedger::Read(int64_t after_seq, int64_t max_rows) {
  if (after_seq < 0 || max_rows < 0) {
    return InvalidArgument("ledger read after ", after_seq, " of ", max_rows,
                           " rows: neither may be negative");
  }
  std::vector<LedgerRow> rows;
  while (static_cast<int64_t>(rows.size()) < max_rows) {
    const size_t left = static_cast<size_t>(max_rows) - rows.size();
    FRESHET_ASSIGN_OR_RETURN(
        const Page page, ReadPage(after_seq, std::min(kPageEntries, static_cast<int64_t>(left))));
    const size_t before = rows.size();
    for (size_t i = 0; i < page.entries.size() && rows.size() - before < left; ++i) {
      if (i + 1 < page.entries.size()) {
        FRESHET_ASSIGN_OR_RETURN(const int64_t next, FirstRowOf(page.entries[i + 1]));
        if (next <= page.after + 1) continue;
      }
      FRESHET_ASSIGN_OR_RETURN(std::vector<LedgerRow> expanded,
                               ExpandLedgerEntry(page.entries[i], config_));
      for (LedgerRow& row : expanded) {
        if (row.seq > page.after) rows.push_back(std::move(row));
      }
    }
    if (rows.size() == before) {
      if (page.packed) return DataLoss("ledger: the segment of row ", page.after + 1, " is gone");
      break;
    }
    rows.resize(std::min(rows.size(), before + left));
    after_seq = rows.back().seq;
  }
  return rows;
}

absl::StatusOr<RedisLedger::Page> RedisLedger::ReadPage(int64_t after_seq, int64_t max_entries) {
  FRESHET_ASSIGN_OR_RETURN(
      ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kReadLedger, {StrCat(after_seq), StrCat(max_entries)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(3));
  FRESHET_ASSIGN_OR_RETURN(const int64_t after, ParseNumber(answer.values[0].text));
  const std::string& segment = answer.values[1].text;
  if (segment.empty()) return Page{after, false, std::move(answer.values[2].items)};
  FRESHET_ASSIGN_OR_RETURN(std::vector<RedisReply> entries, UnpackLedgerSegment(segment));
  return Page{after, true, std::move(entries)};
}

absl::Status RedisLedger::Pack(int64_t after, int64_t newest) {
  for (int i = 0; i < kMaxPackedSegments && newest - after >= segment_rows_; ++i) {
    std::vector<RedisReply> entries;
    int64_t last = after;
    while (last - after < segment_rows_) {
      const int64_t left = segment_rows_ - (last - after);
      const int64_t groups = (left + config_.options.group_size - 1) / config_.options.group_size;
      FRESHET_ASSIGN_OR_RETURN(Page page, ReadPage(last, std::min(groups, kPageEntries)));
      // Another caller has packed or trimmed them.
      if (page.packed || page.entries.empty()) return absl::OkStatus();
      // Do not pack a damaged entry: in a segment it would hide the entries after it.
      for (const RedisReply& entry : page.entries) {
        FRESHET_ASSIGN_OR_RETURN(const std::vector<LedgerRow> rows,
                                 ExpandLedgerEntry(entry, config_));
        const bool first = last == after;
        if (first ? rows.front().seq > last + 1 : rows.front().seq != last + 1) {
          return DataLoss("ledger: row ", last + 1, " is missing");
        }
        last = std::max(last, rows.back().seq);
      }
      std::move(page.entries.begin(), page.entries.end(), std::back_inserter(entries));
    }
    FRESHET_ASSIGN_OR_RETURN(const std::string segment, PackLedgerSegment(entries));
    FRESHET_RETURN_IF_ERROR(
        runner_.Run(trajectory_scripts::kPackLedger, {StrCat(after), StrCat(last), segment})
            .status());
    after = last;
  }
  return absl::OkStatus();
}

absl::Status RedisLedger::Trim(int64_t upto_seq) {
  return runner_.Run(trajectory_scripts::kTrimLedger, {StrCat(upto_seq)}).status();
}

}  // namespace freshet
