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

Json SpansToJson(const std::vector<Span>& spans) {
  Json array = Json::array();
  for (const Span& span : spans) {
    Json entry;
    entry["lineage"] = span.policy.lineage;
    entry["version"] = span.policy.version;
    entry["begin"] = span.begin;
    entry["end"] = span.end;
    array.push_back(std::move(entry));
  }
  return array;
}

void SampleToJson(const LedgerRow& row, Json& json) {
  json["epoch"] = row.epoch;
  json["lineage"] = row.lineage;
  json["step"] = row.step;
  json["train_version"] = row.train_version;
  json["uid"] = row.uid;
  json["prompt"] = row.prompt;
  json["attempt"] = row.attempt;
  json["sample"] = row.sample;
  json["redo"] = row.redo;
  json["loss_tokens"] = row.loss_tokens;
  json["masked_tokens"] = row.masked_tokens;
  json["spans"] = SpansToJson(row.spans);
  json["min_version"] = row.min_version;
  json["max_version"] = row.max_version;
  if (!row.reason.empty()) json["reason"] = row.reason;
}

// Reads typed members of one object and remembers the first error.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  void Read(const char* key, int64_t& out, int64_t low = 0,
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
  void Read(const char* key, int32_t& out) {
    int64_t wide = 0;
    Read(key, wide, 0, std::numeric_limits<int32_t>::max());
    out = static_cast<int32_t>(wide);
  }
  void Read(const char* key, std::string& out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return AddError(key, "must be a string");
    out = value->get<std::string>();
  }
  void Read(const char* key, bool& out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return AddError(key, "must be true or false");
    out = value->get<bool>();
  }
  void Read(const char* key, std::vector<Span>& out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > kMaxSpans) {
      return AddError(key, StrCat("must be an array of at most ", kMaxSpans, " spans"));
    }
    for (const Json& entry : *value) {
      if (!entry.is_object()) return AddError(key, "must hold objects");
      Span span;
      Reader reader(entry);
      reader.Read("lineage", span.policy.lineage);
      reader.Read("version", span.policy.version);
      reader.Read("begin", span.begin);
      reader.Read("end", span.end);
      if (!reader.status().ok()) return AddError(key, Message(reader.status()));
      if (span.end <= span.begin) return AddError(key, "must have begin < end");
      out.push_back(span);
    }
  }
  bool Has(const char* key) const { return json_.contains(key); }
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

void ReadSample(Reader& reader, LedgerRow& row) {
  reader.Read("epoch", row.epoch);
  reader.Read("lineage", row.lineage);
  reader.Read("step", row.step);
  reader.Read("train_version", row.train_version);
  reader.Read("uid", row.uid);
  reader.Read("prompt", row.prompt);
  reader.Read("attempt", row.attempt);
  reader.Read("sample", row.sample);
  reader.Read("redo", row.redo);
  reader.Read("loss_tokens", row.loss_tokens);
  reader.Read("masked_tokens", row.masked_tokens);
  reader.Read("spans", row.spans);
  reader.Read("min_version", row.min_version);
  reader.Read("max_version", row.max_version);
  if (reader.Has("reason")) reader.Read("reason", row.reason);
}

absl::StatusOr<LedgerRow> RowFromJson(const Json& json) {
  if (!json.is_object()) return InvalidArgument("ledger line: not a JSON object");
  Reader reader(json);
  LedgerRow row;
  std::string event;
  reader.Read("seq", row.seq);
  reader.Read("event", event);
  FRESHET_RETURN_IF_ERROR(reader.status());
  bool known = false;
  for (const auto& [value, name] : kEvents) {
    if (event != name) continue;
    row.event = value;
    known = true;
  }
  if (!known) {
    return InvalidArgument("ledger line: event '", event.substr(0, 40), "' is unknown");
  }
  switch (row.event) {
    case LedgerEvent::kOpen:
      reader.Read("job", row.job);
      reader.Read("bound", row.bound);
      reader.Read("disposition", row.disposition);
      reader.Read("B", row.groups_per_step, 1);
      reader.Read("G", row.group_size, 1);
      break;
    case LedgerEvent::kResumed:
      reader.Read("epoch", row.epoch);
      reader.Read("lineage", row.lineage);
      reader.Read("parent_lineage", row.parent_lineage);
      row.fork_version = -1;
      if (reader.Has("fork_version")) reader.Read("fork_version", row.fork_version);
      reader.Read("checkpoint_sha256", row.checkpoint_sha256);
      reader.Read("digest", row.digest);
      break;
    case LedgerEvent::kDurable:
      reader.Read("lineage", row.lineage);
      reader.Read("version", row.version);
      reader.Read("checkpoint_sha256", row.checkpoint_sha256);
      reader.Read("digest", row.digest);
      break;
    default:
      ReadSample(reader, row);
      break;
  }
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

std::string LedgerRowToJson(const LedgerRow& row) {
  Json json;
  json["seq"] = row.seq;
  json["event"] = Name(row.event);
  switch (row.event) {
    case LedgerEvent::kOpen:
      json["job"] = row.job;
      json["bound"] = row.bound;
      json["disposition"] = row.disposition;
      json["B"] = row.groups_per_step;
      json["G"] = row.group_size;
      break;
    case LedgerEvent::kResumed:
      json["epoch"] = row.epoch;
      json["lineage"] = row.lineage;
      json["parent_lineage"] = row.parent_lineage;
      if (row.fork_version >= 0) json["fork_version"] = row.fork_version;
      json["checkpoint_sha256"] = row.checkpoint_sha256;
      json["digest"] = row.digest;
      break;
    case LedgerEvent::kDurable:
      json["lineage"] = row.lineage;
      json["version"] = row.version;
      json["checkpoint_sha256"] = row.checkpoint_sha256;
      json["digest"] = row.digest;
      break;
    default:
      SampleToJson(row, json);
      break;
  }
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
