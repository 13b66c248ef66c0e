#include "datastore/redis/ledger_segment.h"

#include <zlib.h>

#include <cstdint>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store_records.h"

namespace freshet {
namespace {

// A seventh of the time of the best level, for 6 % more bytes.
constexpr int kCompressionLevel = 5;
constexpr size_t kMaxEntries = size_t{1} << 15;
constexpr int64_t kMaxFields = 32;  // names and values per entry

// Reduces the record in each line "INDEX RECORD" to its spans and the success that it copies.
absl::StatusOr<std::string> WithoutPlaces(std::string_view lines) {
  std::string kept;
  for (bool first = true; !lines.empty(); first = false) {
    std::string_view line = TakePart(lines, '\n');
    if (!first) kept += '\n';
    if (line.empty()) continue;
    const std::string_view index = TakePart(line, ' ');
    FRESHET_ASSIGN_OR_RETURN(const SampleRecord record, ParseSampleRecord(line));
    kept += StrCat(index, " 0 0 0 0:0:0:0 ", record.spans);
    if (!record.replay_of.empty()) kept += StrCat(" ", record.replay_of);
  }
  return kept;
}

absl::Status AppendEntry(const RedisReply& entry, std::string& text) {
  if (entry.items.size() != 2) return DataLoss("ledger entry: not an entry of a stream");
  const std::vector<RedisReply>& pairs = entry.items[1].items;
  text += StrCat(entry.items[0].text, " ", pairs.size(), " ");
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::string value = pairs[i].text;
    if (i % 2 == 1 && pairs[i - 1].text == "rows") {
      FRESHET_ASSIGN_OR_RETURN(value, WithoutPlaces(value));
    }
    text += StrCat(value.size(), ":", value);
  }
  return absl::OkStatus();
}

RedisReply StringReply(std::string text) {
  RedisReply reply;
  reply.kind = RedisReply::Kind::kString;
  reply.text = std::move(text);
  return reply;
}

RedisReply ArrayReply(std::vector<RedisReply> items) {
  RedisReply reply;
  reply.kind = RedisReply::Kind::kArray;
  reply.items = std::move(items);
  return reply;
}

}  // namespace

absl::StatusOr<std::string> PackLedgerSegment(const std::vector<RedisReply>& entries) {
  if (entries.size() > kMaxEntries) {
    return ResourceExhausted("ledger segment: ", entries.size(), " entries, at most ", kMaxEntries);
  }
  std::string text;
  for (const RedisReply& entry : entries) {
    FRESHET_RETURN_IF_ERROR(AppendEntry(entry, text));
    if (text.size() > kMaxSegmentBytes) {
      return ResourceExhausted("ledger segment: its entries take more than ", kMaxSegmentBytes,
                               " bytes");
    }
  }
  std::string segment = StrCat(text.size(), " ");
  const size_t head = segment.size();
  uLongf size = compressBound(text.size());
  segment.resize(head + size);
  const int result =
      compress2(reinterpret_cast<Bytef*>(segment.data() + head), &size,
                reinterpret_cast<const Bytef*>(text.data()), text.size(), kCompressionLevel);
  if (result != Z_OK) return ResourceExhausted("ledger segment: zlib error ", result);
  segment.resize(head + size);
  return segment;
}

absl::StatusOr<std::vector<RedisReply>> UnpackLedgerSegment(std::string_view segment) {
  const absl::StatusOr<int64_t> size = TakeNumber(segment, ' ');
  if (!size.ok() || *size < 0 || *size > static_cast<int64_t>(kMaxSegmentBytes)) {
    return DataLoss("ledger segment: it does not begin with a size of at most ", kMaxSegmentBytes);
  }
  std::string text(static_cast<size_t>(*size), '\0');
  uLongf length = text.size();
  const int result = uncompress(reinterpret_cast<Bytef*>(text.data()), &length,
                                reinterpret_cast<const Bytef*>(segment.data()), segment.size());
  if (result != Z_OK || length != text.size()) {
    return DataLoss("ledger segment: its ", segment.size(), " bytes are not ", *size,
                    " compressed by zlib");
  }
  std::vector<RedisReply> entries;
  for (std::string_view rest = text; !rest.empty();) {
    const RedisReply id = StringReply(std::string(TakePart(rest, ' ')));
    FRESHET_ASSIGN_OR_RETURN(const int64_t num_fields, TakeNumber(rest, ' '));
    if (num_fields < 0 || num_fields > kMaxFields || num_fields % 2 != 0) {
      return DataLoss("ledger segment: entry ", entries.size(), " has ", num_fields, " fields");
    }
    if (entries.size() == kMaxEntries) {
      return DataLoss("ledger segment: more than ", kMaxEntries, " entries");
    }
    std::vector<RedisReply> fields;
    for (int64_t i = 0; i < num_fields; ++i) {
      FRESHET_ASSIGN_OR_RETURN(std::string field, TakeSized(rest));
      fields.push_back(StringReply(std::move(field)));
    }
    entries.push_back(ArrayReply({id, ArrayReply(std::move(fields))}));
  }
  return entries;
}

}  // namespace freshet
