#include "cli/tensorboard/event_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "cli/tensorboard/crc32c.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

// Field numbers of tensorflow.Event, Summary and Summary.Value.
constexpr int kEventWallTime = 1;
constexpr int kEventStep = 2;
constexpr int kEventFileVersion = 3;
constexpr int kEventSummary = 5;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueSimple = 2;

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
void AppendLittleEndian(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void AppendKey(int field, WireType type, std::string& out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type), out);
}

void AppendBytes(int field, std::string_view bytes, std::string& out) {
  AppendKey(field, kBytes, out);
  AppendVarint(bytes.size(), out);
  out += bytes;
}

std::string EventHead(double wall_time) {
  std::string event;
  AppendKey(kEventWallTime, kFixed64, event);
  AppendLittleEndian(std::bit_cast<uint64_t>(wall_time), event);
  return event;
}

// length, masked crc of the length, data, masked crc of the data.
std::string Record(const std::string& data) {
  std::string length;
  AppendLittleEndian(static_cast<uint64_t>(data.size()), length);
  std::string record = length;
  AppendLittleEndian(MaskedCrc32c(length), record);
  record += data;
  AppendLittleEndian(MaskedCrc32c(data), record);
  return record;
}

// "train" for plain numbers; an object's entries get the object's short name.
void AddNumbers(const std::string& group, const Json& row, Scalars& scalars) {
  for (const auto& [key, value] : row.items()) {
    if (value.is_number()) {
      const auto number = value.get<float>();
      if (std::isfinite(number)) scalars.emplace_back(group + "/" + key, number);
    } else if (value.is_object()) {
      AddNumbers(key == "reward_components" ? "reward" : key, value, scalars);
    }
  }
}

// A row without the keys that are no curve.
Json Curves(const std::string& text, std::initializer_list<const char*> without) {
  Json row = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const char* key : without) row.erase(key);
  return row;
}

}  // namespace

std::string VersionRecord(double wall_time) {
  std::string event = EventHead(wall_time);
  AppendBytes(kEventFileVersion, "brain.Event:2", event);
  return Record(event);
}

std::string ScalarRecord(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    AppendBytes(kValueTag, tag, value);
    AppendKey(kValueSimple, kFixed32, value);
    AppendLittleEndian(std::bit_cast<uint32_t>(number), value);
    AppendBytes(kSummaryValue, value, summary);
  }
  std::string event = EventHead(wall_time);
  AppendKey(kEventStep, kVarint, event);
  AppendVarint(static_cast<uint64_t>(step), event);
  AppendBytes(kEventSummary, summary, event);
  return Record(event);
}

std::string EventFileOf(const MetricsHistory& history, double start) {
  std::string file = VersionRecord(start);
  for (const StepMetrics& metrics : history.steps) {
    Scalars scalars;
    AddNumbers("train", Curves(ToJson(metrics), {"step", "policy_version"}), scalars);
    file += ScalarRecord(start + metrics.wall_seconds, metrics.step, scalars);
  }
  for (const EvalMetrics& metrics : history.evals) {
    const std::string group = "eval/" + metrics.eval_name;
    Json row = Curves(ToJson(metrics), {"policy_version", "eval_name"});
    Scalars scalars;
    const Json components = row.contains("reward_components") ? row["reward_components"] : Json();
    row.erase("reward_components");
    AddNumbers(group, row, scalars);
    if (components.is_object()) AddNumbers(group + "/reward", components, scalars);
    file += ScalarRecord(start + metrics.wall_seconds, metrics.policy_version, scalars);
  }
  return file;
}

absl::StatusOr<std::string> ExportTensorboard(const std::string& run_dir,
                                              const std::string& folder) {
  const std::string source = run_dir + "/metrics.jsonl";
  FRESHET_ASSIGN_OR_RETURN(const MetricsHistory all, ReadMetrics(source));
  const MetricsHistory history = SurvivingMetrics(all);
  // The last row was written when the file was last changed.
  struct stat info {};
  if (::stat(source.c_str(), &info) != 0) return NotFound(source, ": ", std::strerror(errno));
  double last = 0;
  for (const StepMetrics& row : history.steps) last = std::max(last, row.wall_seconds);
  for (const EvalMetrics& row : history.evals) last = std::max(last, row.wall_seconds);
  return WriteEventFile(history, static_cast<double>(info.st_mtime) - last, folder);
}

absl::StatusOr<std::string> WriteEventFile(const MetricsHistory& history, double start,
                                           const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return WriteError(folder, error.value());
  // Of one run every export has the same name, as far as the last row stays: the newest replaces
  // it.
  const std::string path = folder + "/events.out.tfevents.0000000000.freshet";
  FRESHET_RETURN_IF_ERROR(WriteFileAtomically(path, EventFileOf(history, start)));
  return path;
}

}  // namespace freshet
