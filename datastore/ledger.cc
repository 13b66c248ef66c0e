#include "datastore/ledger.h"

#include <array>
#include <limits>
#include <utility>

#include "base/digest.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

// A sample row with 3 spans takes about 400 bytes.
constexpr size_t kMaxLineBytes = 1 << 20;
constexpr int kMaxDepth = 8;
constexpr size_t kMaxSpans = 4096;

constexpr std::array<std::pair<LedgerEvent, const char*>, 8> kEvents = {{
    {LedgerEvent::kOpen, "open"},
    {LedgerEvent::kResumed, "resumed"},
    {LedgerEvent::kDurable, "durable"},
    {LedgerEvent::kTrained, "trained"},
    {LedgerEvent::kFiltered, "filtered"},
    {LedgerEvent::kDropped, "dropped"},
    {LedgerEvent::kRequeued, "requeued"},
    {LedgerEvent::kDead, "dead"},
}};

// Calls field(key, member) for each key of a span, in the order of the line.
template <typename AnySpan, typename Field>
void VisitSpan(AnySpan& span, Field& field) {
  field("lineage", span.policy.lineage);
  field("version", span.policy.version);
  field("begin", span.begin);
  field("end", span.end);
}

// The same for a row with this event. `field.Optional` if the key may be absent.
template <typename Row, typename Field>
void VisitRow(Row& row, Field& field) {
  switch (row.event) {
    case LedgerEvent::kOpen:
      field("job", row.job);
      field("bound", row.bound);
      field("disposition", row.disposition);
      field("B", row.groups_per_step, 1);
      field("G", row.group_size, 1);
      field.Optional("min_G", row.min_group_size, row.min_group_size > 0);
      field.Optional("replay_max_age", row.replay_max_age, row.replay_max_age > 0);
      break;
    case LedgerEvent::kResumed:
      field("epoch", row.epoch);
      field("lineage", row.lineage);
      field("parent_lineage", row.parent_lineage);
      field.Optional("fork_version", row.fork_version, row.fork_version >= 0);
      field("checkpoint_sha256", row.checkpoint_sha256);
      field("digest", row.digest);
      break;
    case LedgerEvent::kDurable:
      field("lineage", row.lineage);
      field("version", row.version);
      field("checkpoint_sha256", row.checkpoint_sha256);
      field("digest", row.digest);
      break;
    default:
      field("epoch", row.epoch);
      field("lineage", row.lineage);
      field("step", row.step);
      field("train_version", row.train_version);
      field("uid", row.uid);
      field("prompt", row.prompt);
      field("attempt", row.attempt);
      field("sample", row.sample);
      field.Optional("samples", row.samples, row.samples > 0);
      field.Optional("replay_of", row.replay_of, !row.replay_of.empty());
      field("redo", row.redo);
      field("loss_tokens", row.loss_tokens);
      field("masked_tokens", row.masked_tokens);
      field("spans", row.spans);
      field.Optional("segments", row.segments, !row.segments.empty());
      field("min_version", row.min_version);
      field("max_version", row.max_version);
      field.Optional("reason", row.reason, !row.reason.empty());
      break;
  }
}

// Writes members of one object.
class Writer {
 public:
  explicit Writer(Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* key, const T& value, int64_t /*low*/ = 0) {
    json_[key] = value;
  }
  void operator()(const char* key, const std::vector<Span>& spans) {
    Json& array = json_[key] = Json::array();
    for (const Span& span : spans) {
      Writer writer(array.emplace_back());
      VisitSpan(span, writer);
    }
  }
  template <typename T>
  void Optional(const char* key, const T& value, bool present) {
    if (present) (*this)(key, value);
  }

 private:
  Json& json_;
};

// Reads typed members of one object and remembers the first error.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  void operator()(const char* key, int64_t& out, int64_t low = 0,
                  int64_t high = std::numeric_limits<int64_t>::max()) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    const bool too_big = value->is_number_unsigned() &&
                         value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (!value->is_number_integer() || too_big || value->get<int64_t>() < low ||
        value->get<int64_t>() > high) {
      AddError(key, StrCat("must be an integer from ", low, " to ", high));
      return;
    }
    out = value->get<int64_t>();
  }
  void operator()(const char* key, int32_t& out) {
    int64_t wide = 0;
    (*this)(key, wide, 0, std::numeric_limits<int32_t>::max());
    out = static_cast<int32_t>(wide);
  }
  void operator()(const char* key, std::string& out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return AddError(key, "must be a string");
    out = value->get<std::string>();
  }
  void operator()(const char* key, bool& out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return AddError(key, "must be true or false");
    out = value->get<bool>();
  }
  void operator()(const char* key, std::vector<Span>& out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > kMaxSpans) {
      return AddError(key, StrCat("must be an array of at most ", kMaxSpans, " spans"));
    }
    for (const Json& entry : *value) {
      if (!entry.is_object()) return AddError(key, "must hold objects");
      Span span;
      Reader reader(entry);
      VisitSpan(span, reader);
      if (!reader.status().ok()) return AddError(key, Message(reader.status()));
      if (span.end <= span.begin) return AddError(key, "must have begin < end");
      out.push_back(span);
    }
  }
  void operator()(const char* key, std::vector<int32_t>& out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > kMaxSegments) {
      return AddError(key, StrCat("must be an array of at most ", kMaxSegments, " numbers"));
    }
    for (const Json& entry : *value) {
      if (!entry.is_number_unsigned() ||
          entry.get<uint64_t>() > uint64_t{std::numeric_limits<int32_t>::max()}) {
        return AddError(key, "must hold token indexes");
      }
      out.push_back(entry.get<int32_t>());
    }
  }
  template <typename T>
  void Optional(const char* key, T& out, bool /*present*/) {
    if (json_.contains(key)) (*this)(key, out);
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json* Find(const char* key) {
    const auto it = json_.find(key);
    if (it != json_.end()) return &*it;
    AddError(key, "is missing");
    return nullptr;
  }
  void AddError(const char* key, const std::string& what) {
    if (status_.ok()) status_ = InvalidArgument("ledger line: ", key, " ", what);
  }

  const Json& json_;
  absl::Status status_;
};

absl::StatusOr<LedgerRow> RowFromJson(const Json& json) {
  if (!json.is_object()) return InvalidArgument("ledger line: not a JSON object");
  Reader reader(json);
  LedgerRow row;
  std::string event;
  reader("seq", row.seq);
  reader("event", event);
  FRESHET_RETURN_IF_ERROR(reader.status());
  const std::optional<LedgerEvent> known = ParseLedgerEvent(event);
  if (!known) {
    return InvalidArgument("ledger line: event '", event.substr(0, 40), "' is unknown");
  }
  row.event = *known;
  if (row.event == LedgerEvent::kResumed) row.fork_version = -1;
  VisitRow(row, reader);
  FRESHET_RETURN_IF_ERROR(reader.status());
  return row;
}

}  // namespace

const char* Name(LedgerEvent event) {
  for (const auto& [value, name] : kEvents) {
    if (value == event) return name;
  }
  return "unknown";
}

std::optional<LedgerEvent> ParseLedgerEvent(std::string_view name) {
  for (const auto& [value, known] : kEvents) {
    if (name == known) return value;
  }
  return std::nullopt;
}

std::string LedgerRowToJson(const LedgerRow& row) {
  Json json;
  json["seq"] = row.seq;
  json["event"] = Name(row.event);
  Writer writer(json);
  VisitRow(row, writer);
  // Replaces invalid UTF-8 (in a job name or reason), so that the row can always be written.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<LedgerRow> ParseLedgerRow(std::string_view line) {
  if (line.size() > kMaxLineBytes) {
    return InvalidArgument("ledger line: ", line.size(), " bytes: at most ", kMaxLineBytes);
  }
  if (NestsDeeper(line, kMaxDepth)) {
    return InvalidArgument("ledger line: nested more than ", kMaxDepth, " levels deep");
  }
  try {
    const Json json = Json::parse(line.begin(), line.end(), nullptr, false);
    if (json.is_discarded()) return InvalidArgument("ledger line: not valid JSON");
    return RowFromJson(json);
  } catch (const std::exception& error) {
    return InvalidArgument("ledger line: ", error.what());
  }
}

std::string InitialDigest() { return Sha256Hex(""); }

std::string ExtendDigest(const std::string& digest, std::string_view uid) {
  return Sha256Hex(StrCat(digest, uid));
}

}  // namespace freshet
