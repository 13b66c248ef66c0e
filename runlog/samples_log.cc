#include "runlog/samples_log.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

// Far larger than any completion.
constexpr size_t kMaxRowBytes = size_t{16} << 20;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double NumberAt(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return 0;
  if (found->is_null()) return std::numeric_limits<double>::quiet_NaN();
  return found->get<double>();
}

SampleRow Decode(const nlohmann::json& json) {
  SampleRow row;
  row.step = json.value("step", int64_t{0});
  row.policy_version = json.value("policy_version", int64_t{0});
  row.lineage = json.value("lineage", int64_t{0});
  row.uid = json.value("uid", "");
  row.prompt = json.value("prompt", "");
  row.completion = json.value("completion", "");
  row.reward = NumberAt(json, "reward");
  row.advantage = NumberAt(json, "advantage");
  row.tokens = json.value("tokens", int64_t{0});
  row.finish = json.value("finish", "");
  const nlohmann::json components = json.value("components", nlohmann::json::object());
  for (const auto& [name, value] : components.items()) {
    row.components[name] =
        value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }
  row.segments = json.value("segments", std::vector<int32_t>());
  const nlohmann::json spans = json.value("spans", nlohmann::json::array());
  for (const nlohmann::json& span : spans) {
    row.spans.push_back({{span.at("lineage").get<int64_t>(), span.at("version").get<int64_t>()},
                         span.at("begin").get<int32_t>(),
                         span.at("end").get<int32_t>()});
  }
  return row;
}

Json Encode(const SampleRow& row) {
  Json json = Json::object();
  json["step"] = row.step;
  json["policy_version"] = row.policy_version;
  json["lineage"] = row.lineage;
  json["uid"] = row.uid;
  json["prompt"] = row.prompt;
  json["completion"] = row.completion;
  json["reward"] = Number(row.reward);
  json["components"] = Json::object();
  for (const auto& [name, value] : row.components) json["components"][name] = Number(value);
  json["advantage"] = Number(row.advantage);
  json["tokens"] = row.tokens;
  json["spans"] = Json::array();
  for (const Span& span : row.spans) {
    json["spans"].push_back({{"lineage", span.policy.lineage},
                             {"version", span.policy.version},
                             {"begin", span.begin},
                             {"end", span.end}});
  }
  if (!row.segments.empty()) json["segments"] = row.segments;
  json["finish"] = row.finish;
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string ToJson(const SampleRow& row) { return Dump(Encode(row)); }

std::string ToShortJson(SampleRow row) {
  const bool truncated = std::max(row.prompt.size(), row.completion.size()) > kMaxSampleText;
  row.prompt = ValidUtf8(std::move(row.prompt), kMaxSampleText);
  row.completion = ValidUtf8(std::move(row.completion), kMaxSampleText);
  Json json = Encode(row);
  json["truncated"] = truncated;
  return Dump(json);
}

absl::StatusOr<SampleRow> ParseSampleRow(std::string_view line) {
  FRESHET_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(line, "sample", {.max_depth = 8}));
  if (!json.is_object()) return InvalidArgument("not a JSON object");
  try {
    return Decode(json);
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("value of a wrong type: ", error.what());
  }
}

absl::StatusOr<SampleExcerpt> ReadSampleExcerpt(const std::string& path, size_t num_first,
                                                size_t num_last) {
  // Text of the kept rows; only those are parsed.
  std::deque<std::string> first;
  std::deque<std::string> last;
  const auto keep = [&](int64_t, std::string_view line) {
    if (first.size() < num_first) {
      first.emplace_back(line);
    } else if (num_last > 0) {
      if (last.size() == num_last) last.pop_front();
      last.emplace_back(line);
    }
    return absl::OkStatus();
  };
  FRESHET_RETURN_IF_ERROR(ForEachLine(path, kMaxRowBytes, keep).status());
  SampleExcerpt excerpt;
  for (const auto& [lines, rows] :
       {std::pair(&first, &excerpt.first), std::pair(&last, &excerpt.last)}) {
    for (const std::string& line : *lines) {
      absl::StatusOr<SampleRow> row = ParseSampleRow(line);
      if (row.ok()) rows->push_back(*std::move(row));
    }
  }
  return excerpt;
}

}  // namespace freshet
