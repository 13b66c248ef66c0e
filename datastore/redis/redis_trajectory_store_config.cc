#include "datastore/redis/redis_trajectory_store_config.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <type_traits>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/job_records.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = size_t{64} << 20;
constexpr size_t kMaxJobBytes = 200;

int64_t TtlMicros(const StoreOptions& options) {
  return std::max<int64_t>(1, absl::ToInt64Microseconds(options.lease_ttl));
}

// How long bytes of an ended attempt stay for readers that were just given their location.
int64_t GraceMicros(const StoreOptions& options) {
  return std::max(TtlMicros(options), absl::ToInt64Microseconds(absl::Minutes(1)));
}

// Calls visit(key, value) for each value, in the order of the text.
template <typename Config, typename Visit>
void VisitValues(Config& config, const Visit& visit) {
  auto& [options, origin] = config;
  visit("generation", options.generation);  // redis_client_job_keys.cc matches this in the text
  visit("job", options.job);
  visit("staleness.max", options.staleness.max);
  visit("staleness.disposition", options.staleness.disposition);
  visit("groups_per_step", options.staleness.groups_per_step);
  visit("max_in_flight", options.staleness.max_in_flight);
  visit("group_size", options.group_size);
  visit("last_step", options.last_step);
  visit("capacity_groups", options.capacity_groups);
  visit("max_queued_prompts", options.max_queued_prompts);
  visit("lease_ttl_us", options.lease_ttl);
  visit("max_row_failures", options.max_row_failures);
  visit("max_lease_failures", options.max_lease_failures);
  visit("max_hand_backs", options.max_hand_backs);
  visit("max_requeues", options.max_requeues);
  visit("filter_zero_variance", options.filter.zero_variance);
  visit("max_filtered_in_a_row", options.max_filtered_in_a_row);
  visit("max_ledger_rows", options.max_ledger_rows);
  visit("origin.lineage", origin.policy.lineage);
  visit("origin.version", origin.policy.version);
  visit("origin.epoch", origin.epoch);
  visit("origin.ledger_seq", origin.ledger_seq);
  visit("origin.digest", origin.digest);
  visit("origin.resumed", origin.resumed);
  visit("origin.low_water", origin.cursor.low_water);
  visit("origin.above", origin.cursor.above);
}

constexpr char kWholeGroups[] = "score_whole_groups";

// Calls visit(key, value) for each value that may be absent, also in stores of older versions.
template <typename Options, typename Visit>
void VisitOptional(Options& options, const Visit& visit) {
  visit("filter_min_mean", options.filter.min_mean);
  visit("filter_max_mean", options.filter.max_mean);
}
template <typename Replay, typename Visit>
void VisitReplay(Replay& replay, const Visit& visit) {
  visit("replay.max_age", replay.max_age);
  visit("replay.min_reward", replay.min_reward);
  visit("replay.capacity", replay.capacity);
  visit("replay.max_successes", replay.max_successes);
}
template <typename Adaptive, typename Visit>
void VisitAdaptive(Adaptive& adaptive, const Visit& visit) {
  visit("adaptive.min_group_size", adaptive.min_group_size);
  visit("adaptive.min_reward", adaptive.min_reward);
  visit("adaptive.max_tokens_factor", adaptive.max_tokens_factor);
}

Json ToJson(const RedisStoreConfig& config) {
  Json json;
  json["format"] = config.options.adaptive.has_value() ? kRedisAdaptiveFormat
                   : config.options.replay.has_value() ? kRedisReplayFormat
                                                       : kRedisStoreFormat;
  VisitValues(config, [&]<typename T>(const char* key, const T& value) {
    if constexpr (std::is_same_v<T, Disposition>) {
      json[key] = Name(value);
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      json[key] = TtlMicros(config.options);
    } else {
      json[key] = value;
    }
  });
  // Absent in stores of older versions.
  if (config.options.score_whole_groups) json[kWholeGroups] = true;
  VisitOptional(config.options, [&](const char* key, const std::optional<double>& value) {
    if (value.has_value()) json[key] = *value;
  });
  if (config.options.replay.has_value()) {
    VisitReplay(*config.options.replay,
                [&](const char* key, const auto& value) { json[key] = value; });
  }
  if (config.options.adaptive.has_value()) {
    VisitAdaptive(*config.options.adaptive,
                  [&](const char* key, const auto& value) { json[key] = value; });
  }
  return json;
}

RedisStoreConfig FromJson(const Json& json) {
  RedisStoreConfig config;
  VisitValues(config, [&]<typename T>(const std::string& key, T& value) {
    if constexpr (std::is_same_v<T, Disposition>) {
      const auto parsed = ParseDisposition(json.at(key).get_ref<const std::string&>());
      if (parsed.ok()) value = *parsed;
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      value = absl::Microseconds(json.at(key).get<int64_t>());
    } else {
      value = json.at(key).get<T>();
    }
  });
  config.options.score_whole_groups = json.value(kWholeGroups, false);
  VisitOptional(config.options, [&](const char* key, std::optional<double>& value) {
    if (json.contains(key)) value = json.at(key).get<double>();
  });
  const auto read = [&]<typename T>(const char* key, T& value) { value = json.at(key).get<T>(); };
  if (json.contains("replay.max_age")) VisitReplay(config.options.replay.emplace(), read);
  if (json.contains("adaptive.min_group_size")) {
    VisitAdaptive(config.options.adaptive.emplace(), read);
  }
  return config;
}

absl::Status CheckFormat(const Json& json) {
  const int64_t format = json.value("format", int64_t{1});
  if (format >= kRedisStoreFormat && format <= kRedisAdaptiveFormat) return absl::OkStatus();
  const std::string job = json.value("job", std::string()).substr(0, kMaxJobBytes);
  return FailedPrecondition(
      "store of job ", job, ": format ", format, " found, this program needs ", kRedisStoreFormat,
      ": finish the job with the ", format < kRedisStoreFormat ? "older" : "newer",
      " program, or delete it and submit it again");
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

absl::Status ValidateJobName(const std::string& job) {
  const bool plain = !job.empty() && job.size() <= kMaxJobBytes &&
                     std::all_of(job.begin(), job.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
                     });
  if (job == kClusterTag) {
    return InvalidArgument("job: '", job, "' is reserved for the cluster's own keys");
  }
  if (plain) return absl::OkStatus();
  return InvalidArgument("job: '", job.substr(0, 80), "' must be 1 to ", kMaxJobBytes,
                         " characters of [A-Za-z0-9._-]");
}

absl::Status RedisStoreConfig::Validate() const {
  FRESHET_RETURN_IF_ERROR(ValidateJobName(options.job));
  FRESHET_RETURN_IF_ERROR(options.Validate());
  FRESHET_RETURN_IF_ERROR(origin.Validate());
  int64_t largest =
      std::max({options.capacity_groups, options.max_queued_prompts, options.max_filtered_in_a_row,
                options.max_ledger_rows, origin.policy.lineage, origin.policy.version,
                origin.ledger_seq, origin.cursor.low_water});
  for (const int64_t ordinal : origin.cursor.above) largest = std::max(largest, ordinal);
  if (largest > kMaxScriptInteger) {
    return InvalidArgument("store of job ", options.job, ": ", largest,
                           " is too large: use at most ", kMaxScriptInteger);
  }
  return absl::OkStatus();
}

std::string RedisStoreConfig::Prefix() const { return StrCat("{", options.job, "}:"); }

std::vector<std::pair<std::string, std::string>> RedisStoreConfig::ScriptOptions() const {
  const StalenessOptions& staleness = options.staleness;
  const int64_t max_filtered = options.max_filtered_in_a_row > 0 ? options.max_filtered_in_a_row
                                                                 : 20 * staleness.groups_per_step;
  std::vector<std::pair<std::string, std::string>> values = {
      {"eta", StrCat(staleness.max)},
      {"disposition", StrCat(static_cast<int>(staleness.disposition))},
      {"groups_per_step", StrCat(staleness.groups_per_step)},
      {"max_in_flight", StrCat(staleness.max_in_flight)},
      {"group_size", StrCat(options.group_size)},
      {"last_step", StrCat(options.last_step)},
      {"capacity", StrCat(options.capacity_groups)},
      {"max_queued", StrCat(options.max_queued_prompts)},
      {"ttl", StrCat(TtlMicros(options))},
      {"max_row_failures", StrCat(options.max_row_failures)},
      {"max_lease_failures", StrCat(options.max_lease_failures)},
      {"max_hand_backs", StrCat(options.max_hand_backs)},
      {"max_requeues", StrCat(options.max_requeues)},
      {"filter", options.filter.zero_variance ? "1" : "0"},
      {"whole", options.score_whole_groups ? "1" : "0"},
      {"max_filtered", StrCat(max_filtered)},
      {"max_ledger_rows", StrCat(options.max_ledger_rows)},
      {"root_lineage", StrCat(origin.policy.lineage)},
      {"resumed", origin.resumed ? "1" : "0"},
      {"origin_seq", StrCat(origin.ledger_seq)},
      {"grace", StrCat(GraceMicros(options))}};
  bool curate = options.replay.has_value();
  VisitOptional(options, [&](const char* name, const std::optional<double>& value) {
    if (value.has_value()) values.emplace_back(name, ExactText(*value));
    curate = curate || value.has_value();
  });
  if (options.replay.has_value()) {
    values.emplace_back("replay_max_age", StrCat(options.replay->max_age));
    values.emplace_back("replay_min_reward", ExactText(options.replay->min_reward));
    values.emplace_back("replay_capacity", StrCat(options.replay->capacity));
    values.emplace_back("replay_max_successes", StrCat(options.replay->max_successes));
  }
  if (options.adaptive.has_value()) {
    values.emplace_back("min_group_size", StrCat(options.adaptive->min_group_size));
    values.emplace_back("adaptive_min_reward", ExactText(options.adaptive->min_reward));
    values.emplace_back("max_tokens_factor", ExactText(options.adaptive->max_tokens_factor));
    curate = true;
  }
  if (curate) values.emplace_back("curate", "1");
  return values;
}

std::vector<std::pair<std::string, std::string>> RedisStoreConfig::FirstState() const {
  const int64_t version = origin.policy.version;
  std::vector<std::pair<std::string, std::string>> state = {
      {"lineage", StrCat(origin.policy.lineage)},
      {"diverged_in", "0"},
      {"version", StrCat(version)},
      {"epoch", StrCat(origin.epoch)},
      {"epoch_open", "0"},
      {"redo_next", StrCat(version + 1)},
      {"high_water", StrCat(origin.cursor.low_water - 1)},
      {"last_token", "0"},
      {"paused", "0"},
      {"filtered", "0"},
      {"was_full", "0"},
      {"resume_recorded", "0"},
      {"seq", StrCat(origin.ledger_seq)},
      {"trimmed", StrCat(origin.ledger_seq)},
      {"packed", StrCat(origin.ledger_seq)},
      {"next_expiry", "9007199254740991"},  // never: NEVER in the scripts
      {"first_version", StrCat(version)},
      {"newest_durable", StrCat(version)},
      {"forgotten", StrCat(version)}};
  for (const char* counter :
       {"claimed", "claimed_at", "outstanding", "running", "trained", "leases_expired",
        "samples_put", "duplicate_puts", "fenced_puts", "trained_samples", "trained_tokens",
        "discarded_samples", "discarded_tokens"}) {
    state.emplace_back(counter, "0");
  }
  return state;
}

std::string ExactText(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

std::string RedisStoreConfigToJson(const RedisStoreConfig& config) { return Dump(ToJson(config)); }

absl::StatusOr<RedisStoreConfig> ParseRedisStoreConfig(std::string_view json) {
  if (json.size() > kMaxConfigBytes) {
    return DataLoss("store configuration: ", json.size(), " bytes: at most ", kMaxConfigBytes);
  }
  try {
    const Json parsed = Json::parse(json.begin(), json.end(), nullptr, false);
    if (parsed.is_discarded() || !parsed.is_object()) {
      return DataLoss("store configuration: not a JSON object");
    }
    FRESHET_RETURN_IF_ERROR(CheckFormat(parsed));
    RedisStoreConfig config = FromJson(parsed);
    if (const absl::Status status = config.Validate(); !status.ok()) {
      return DataLoss("store configuration: ", Message(status));
    }
    return config;
  } catch (const std::exception& error) {
    return DataLoss("store configuration: ", error.what());
  }
}

std::string FirstDifference(const RedisStoreConfig& stored, const RedisStoreConfig& asked) {
  const Json old_values = ToJson(stored);
  const Json new_values = ToJson(asked);
  for (const Json* values : {&old_values, &new_values}) {
    for (const auto& [key, value] : values->items()) {
      const Json before = old_values.value(key, Json(false));
      const Json now = new_values.value(key, Json(false));
      if (before == now) continue;
      return StrCat(key, ": ", Dump(before).substr(0, 80), " stored, ", Dump(now).substr(0, 80),
                    " asked");
    }
  }
  return "";
}

}  // namespace freshet
