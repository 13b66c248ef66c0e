#include "runlog/ledger_line.h"

#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::json;
using Event = LedgerLine::Event;

// Maximum of versions, counts and ordinals; sums of two cannot overflow.
constexpr int64_t kMaxCount = int64_t{1} << 60;
// Maximum tokens per sample and groups per step; products of two stay within kMaxCount.
constexpr int64_t kMaxSmallCount = int64_t{1} << 30;

constexpr std::pair<const char*, Event> kEvents[] = {
    {"open", Event::kOpen},         {"resumed", Event::kResumed},   {"durable", Event::kDurable},
    {"trained", Event::kTrained},   {"filtered", Event::kFiltered}, {"dropped", Event::kDropped},
    {"requeued", Event::kRequeued}, {"dead", Event::kDead},
};

// Reads members of one object and keeps the first error.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  int64_t Count(const char* key, int64_t max = kMaxCount) {
    const auto found = object_.find(key);
    if (found == object_.end()) return Fail(key, "is missing");
    if (!found->is_number_integer()) return Fail(key, "is not an integer");
    if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(max)) {
      return Fail(key, "is out of range");
    }
    const auto value = found->get<int64_t>();
    if (value < 0) return Fail(key, "is negative");
    return value;
  }
  std::optional<int64_t> OptionalCount(const char* key) {
    if (!object_.contains(key)) return std::nullopt;
    return Count(key);
  }
  std::string Text(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end()) {
      Fail(key, "is missing");
      return "";
    }
    if (!found->is_string()) {
      Fail(key, "is not a string");
      return "";
    }
    return found->get<std::string>();
  }
  std::string OptionalText(const char* key) { return object_.contains(key) ? Text(key) : ""; }
  bool Flag(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end()) return false;
    if (!found->is_boolean()) return Fail(key, "is not true or false") != 0;
    return found->get<bool>();
  }
  int64_t Fail(const char* key, const char* what) {
    if (status_.ok()) status_ = InvalidArgument("key \"", key, "\" ", what);
    return 0;
  }
  const absl::Status& status() const { return status_; }

 private:
  const Json& object_;
  absl::Status status_;
};

absl::Status ReadSpans(const Json& object, std::vector<LedgerLine::Span>& spans) {
  const auto found = object.find("spans");
  if (found == object.end() || !found->is_array()) {
    return InvalidArgument("key \"spans\" is not an array");
  }
  for (const Json& item : *found) {
    if (!item.is_object()) return InvalidArgument("key \"spans\" holds something not an object");
    Reader reader(item);
    spans.push_back({reader.Count("lineage"), reader.Count("version"),
                     reader.Count("begin", kMaxSmallCount), reader.Count("end", kMaxSmallCount)});
    FRESHET_RETURN_IF_ERROR(reader.status());
  }
  return absl::OkStatus();
}

absl::Status ReadSegments(const Json& object, std::vector<int64_t>& segments) {
  const auto found = object.find("segments");
  if (found == object.end()) return absl::OkStatus();
  if (!found->is_array()) return InvalidArgument("key \"segments\" is not an array");
  for (const Json& item : *found) {
    if (!item.is_number_integer() || item < 0 || item > kMaxSmallCount) {
      return InvalidArgument("key \"segments\" holds something not a token index");
    }
    segments.push_back(item.get<int64_t>());
  }
  return absl::OkStatus();
}

void ReadSampleKeys(Reader& reader, LedgerLine& line) {
  if (!line.seq) reader.Fail("seq", "is missing");
  if (!line.epoch) reader.Fail("epoch", "is missing");
  line.lineage = reader.Count("lineage");
  line.step = reader.Count("step");
  line.train_version = reader.Count("train_version");
  line.uid = reader.Text("uid");
  line.prompt = reader.Count("prompt");
  line.attempt = reader.Count("attempt");
  line.sample = reader.Count("sample");
  line.samples = reader.OptionalCount("samples").value_or(0);
  line.replay_of = reader.OptionalText("replay_of");
  line.redo = reader.Flag("redo");
  line.loss_tokens = reader.Count("loss_tokens", kMaxSmallCount);
  line.masked_tokens = reader.Count("masked_tokens", kMaxSmallCount);
  line.min_version = reader.Count("min_version");
  line.max_version = reader.Count("max_version");
  line.reason = reader.OptionalText("reason");
}

}  // namespace

absl::StatusOr<LedgerLine> ParseLedgerLine(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return InvalidArgument("not a JSON object");
  Reader reader(object);
  LedgerLine line;
  const std::string name = reader.Text("event");
  FRESHET_RETURN_IF_ERROR(reader.status());
  bool known = false;
  for (const auto& [event_name, event] : kEvents) {
    if (name != event_name) continue;
    line.event = event;
    known = true;
  }
  if (!known) return InvalidArgument("key \"event\" is unknown: \"", name.substr(0, 40), "\"");
  line.seq = reader.OptionalCount("seq");
  line.epoch = reader.OptionalCount("epoch");
  if (line.IsSample()) {
    ReadSampleKeys(reader, line);
    FRESHET_RETURN_IF_ERROR(reader.status());
    FRESHET_RETURN_IF_ERROR(ReadSpans(object, line.spans));
    FRESHET_RETURN_IF_ERROR(ReadSegments(object, line.segments));
    return line;
  }
  switch (line.event) {
    case Event::kOpen:
      line.job = reader.Text("job");
      line.bound = reader.Count("bound");
      line.disposition = reader.Text("disposition");
      line.groups_per_step = reader.Count("B", kMaxSmallCount);
      line.group_size = reader.Count("G", kMaxSmallCount);
      line.min_group_size = reader.OptionalCount("min_G").value_or(0);
      line.replay_max_age = reader.OptionalCount("replay_max_age").value_or(0);
      break;
    case Event::kResumed:
      if (!line.epoch) reader.Fail("epoch", "is missing");
      line.lineage = reader.Count("lineage");
      line.parent_lineage = reader.Count("parent_lineage");
      line.fork_version = reader.OptionalCount("fork_version");
      line.checkpoint_sha256 = reader.Text("checkpoint_sha256");
      line.digest = reader.Text("digest");
      break;
    default:
      line.lineage = reader.Count("lineage");
      line.version = reader.Count("version");
      line.checkpoint_sha256 = reader.Text("checkpoint_sha256");
      line.digest = reader.Text("digest");
      break;
  }
  FRESHET_RETURN_IF_ERROR(reader.status());
  return line;
}

}  // namespace freshet
