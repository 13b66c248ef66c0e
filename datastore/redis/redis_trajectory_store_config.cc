#include "datastore/redis/redis_trajectory_store_config.h"

#include <algorithm>
#include <cctype>

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

Json ToJson(const RedisStoreConfig& config) {
  const StoreOptions& options = config.options;
  const StoreOrigin& origin = config.origin;
  Json json;
  json["format"] = kRedisStoreFormat;
  json["generation"] = options.generation;  // redis_client_job_keys.cc matches this in the text
  json["job"] = options.job;
  json["staleness.max"] = options.staleness.max;
  json["staleness.disposition"] = Name(options.staleness.disposition);
  json["groups_per_step"] = options.staleness.groups_per_step;
  json["max_in_flight"] = options.staleness.max_in_flight;
  json["group_size"] = options.group_size;
  json["last_step"] = options.last_step;
  json["capacity_groups"] = options.capacity_groups;
  json["max_queued_prompts"] = options.max_queued_prompts;
  json["lease_ttl_us"] = TtlMicros(options);
  json["max_row_failures"] = options.max_row_failures;
  json["max_lease_failures"] = options.max_lease_failures;
  json["max_hand_backs"] = options.max_hand_backs;
  json["max_requeues"] = options.max_requeues;
  json["needs_ref_logprob"] = options.needs_ref_logprob;
  json["filter_zero_variance"] = options.filter_zero_variance;
  json["max_filtered_in_a_row"] = options.max_filtered_in_a_row;
  json["max_ledger_rows"] = options.max_ledger_rows;
  json["origin.lineage"] = origin.policy.lineage;
  json["origin.version"] = origin.policy.version;
  json["origin.epoch"] = origin.epoch;
  json["origin.ledger_seq"] = origin.ledger_seq;
  json["origin.digest"] = origin.digest;
  json["origin.resumed"] = origin.resumed;
  json["origin.low_water"] = origin.cursor.low_water;
  json["origin.above"] = origin.cursor.above;
  return json;
}

RedisStoreConfig FromJson(const Json& json) {
  RedisStoreConfig config;
  StoreOptions& options = config.options;
  StoreOrigin& origin = config.origin;
  options.generation = json.value("generation", int64_t{0});
  options.job = json.at("job").get<std::string>();
  options.staleness.max = json.at("staleness.max").get<int64_t>();
  const auto disposition =
      ParseDisposition(json.at("staleness.disposition").get_ref<const std::string&>());
  if (disposition.ok()) options.staleness.disposition = *disposition;
  options.staleness.groups_per_step = json.at("groups_per_step").get<int64_t>();
  options.staleness.max_in_flight = json.at("max_in_flight").get<int64_t>();
  options.group_size = json.at("group_size").get<int32_t>();
  options.last_step = json.at("last_step").get<int64_t>();
  options.capacity_groups = json.at("capacity_groups").get<int64_t>();
  options.max_queued_prompts = json.at("max_queued_prompts").get<int64_t>();
  options.lease_ttl = absl::Microseconds(json.at("lease_ttl_us").get<int64_t>());
  options.max_row_failures = json.at("max_row_failures").get<int32_t>();
  options.max_lease_failures = json.at("max_lease_failures").get<int32_t>();
  // Absent in stores of older versions, which use the default.
  options.max_hand_backs = json.value("max_hand_backs", options.max_hand_backs);
  options.max_requeues = json.at("max_requeues").get<int32_t>();
  options.needs_ref_logprob = json.at("needs_ref_logprob").get<bool>();
  options.filter_zero_variance = json.at("filter_zero_variance").get<bool>();
  options.max_filtered_in_a_row = json.at("max_filtered_in_a_row").get<int64_t>();
  options.max_ledger_rows = json.at("max_ledger_rows").get<int64_t>();
  origin.policy.lineage = json.at("origin.lineage").get<int64_t>();
  origin.policy.version = json.at("origin.version").get<int64_t>();
  origin.epoch = json.at("origin.epoch").get<int64_t>();
  origin.ledger_seq = json.at("origin.ledger_seq").get<int64_t>();
  origin.digest = json.at("origin.digest").get<std::string>();
  origin.resumed = json.at("origin.resumed").get<bool>();
  origin.cursor.low_water = json.at("origin.low_water").get<int64_t>();
  origin.cursor.above = json.at("origin.above").get<std::vector<int64_t>>();
  return config;
}

absl::Status CheckFormat(const Json& json) {
  const int64_t format = json.value("format", int64_t{1});
  if (format == kRedisStoreFormat) return absl::OkStatus();
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

std::string RedisStoreConfig::ScriptToken(int64_t token) const {
  return StrCat(token - origin.TokenBase());
}

std::vector<std::pair<std::string, std::string>> RedisStoreConfig::ScriptOptions() const {
  const StalenessOptions& staleness = options.staleness;
  const int64_t max_filtered = options.max_filtered_in_a_row > 0 ? options.max_filtered_in_a_row
                                                                 : 20 * staleness.groups_per_step;
  return {{"eta", StrCat(staleness.max)},
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
          {"needs_ref", options.needs_ref_logprob ? "1" : "0"},
          {"filter", options.filter_zero_variance ? "1" : "0"},
          {"max_filtered", StrCat(max_filtered)},
          {"max_ledger_rows", StrCat(options.max_ledger_rows)},
          {"root_lineage", StrCat(origin.policy.lineage)},
          {"resumed", origin.resumed ? "1" : "0"},
          {"origin_seq", StrCat(origin.ledger_seq)},
          {"grace", StrCat(GraceMicros(options))}};
}

std::vector<std::pair<std::string, std::string>> RedisStoreConfig::FirstState() const {
  const int64_t version = origin.policy.version;
  return {{"lineage", StrCat(origin.policy.lineage)},
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
          {"forgotten", StrCat(version)},
          {"claimed", "0"},
          {"claimed_at", "0"},
          {"outstanding", "0"},
          {"running", "0"},
          {"trained", "0"},
          {"leases_expired", "0"},
          {"samples_put", "0"},
          {"duplicate_puts", "0"},
          {"fenced_puts", "0"},
          {"trained_samples", "0"},
          {"trained_tokens", "0"},
          {"discarded_samples", "0"},
          {"discarded_tokens", "0"}};
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
  for (const auto& [key, value] : old_values.items()) {
    if (value == new_values.at(key)) continue;
    return StrCat(key, ": ", Dump(value).substr(0, 80), " stored, ",
                  Dump(new_values.at(key)).substr(0, 80), " asked");
  }
  return "";
}

}  // namespace freshet
