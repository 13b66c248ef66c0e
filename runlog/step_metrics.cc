#include "runlog/step_metrics.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using Json = nlohmann::ordered_json;

template <typename Row>
struct Field {
  const char* key;
  std::variant<int64_t Row::*, double Row::*, std::string Row::*, std::optional<double> Row::*,
               std::map<std::string, double> Row::*, std::map<int64_t, int64_t> Row::*,
               std::map<int64_t, double> Row::*>
      member;
};

// Fields in output order.
constexpr Field<StepMetrics> kStepFields[] = {
    {"step", &StepMetrics::step},
    {"policy_version", &StepMetrics::policy_version},
    {"lineage", &StepMetrics::lineage},
    {"reward_mean", &StepMetrics::reward_mean},
    {"reward_std", &StepMetrics::reward_std},
    {"reward_components", &StepMetrics::reward_components},
    {"task_rewards", &StepMetrics::task_rewards},
    {"task_samples", &StepMetrics::task_samples},
    {"loss", &StepMetrics::loss},
    {"grad_norm", &StepMetrics::grad_norm},
    {"learning_rate", &StepMetrics::learning_rate},
    {"entropy", &StepMetrics::entropy},
    {"kl_behavior", &StepMetrics::kl_behavior},
    {"kl_ref", &StepMetrics::kl_ref},
    {"ratio_clip_fraction", &StepMetrics::ratio_clip_fraction},
    {"importance_weight_mean", &StepMetrics::importance_weight_mean},
    {"logprob_diff", &StepMetrics::logprob_diff},
    {"sampled_entropy", &StepMetrics::sampled_entropy},
    {"loss_masked_turns", &StepMetrics::loss_masked_turns},
    {"loss_masked_samples", &StepMetrics::loss_masked_samples},
    {"loss_masked_tokens", &StepMetrics::loss_masked_tokens},
    {"loss_weighted_tokens", &StepMetrics::loss_weighted_tokens},
    {"samples_not_asked", &StepMetrics::samples_not_asked},
    {"samples_duplicated", &StepMetrics::samples_duplicated},
    {"staleness_mean", &StepMetrics::staleness_mean},
    {"staleness_p50", &StepMetrics::staleness_p50},
    {"staleness_max", &StepMetrics::staleness_max},
    {"staleness_tokens", &StepMetrics::staleness_tokens},
    {"samples_replayed", &StepMetrics::samples_replayed},
    {"replay_age_max", &StepMetrics::replay_age_max},
    {"completion_length_mean", &StepMetrics::completion_length_mean},
    {"completion_length_p95", &StepMetrics::completion_length_p95},
    {"completion_length_max", &StepMetrics::completion_length_max},
    {"tokens_generated", &StepMetrics::tokens_generated},
    {"tokens_trained", &StepMetrics::tokens_trained},
    {"groups_dropped", &StepMetrics::groups_dropped},
    {"groups_filtered", &StepMetrics::groups_filtered},
    {"groups_requeued", &StepMetrics::groups_requeued},
    {"groups_dead", &StepMetrics::groups_dead},
    {"samples_skipped", &StepMetrics::samples_skipped},
    {"groups_limited", &StepMetrics::groups_limited},
    {"trainer_wait_seconds", &StepMetrics::trainer_wait_seconds},
    {"rollout_idle_seconds", &StepMetrics::rollout_idle_seconds},
    {"weight_swap_seconds", &StepMetrics::weight_swap_seconds},
    {"train_seconds", &StepMetrics::train_seconds},
    {"optimizer_seconds", &StepMetrics::optimizer_seconds},
    {"model_flops", &StepMetrics::model_flops},
    {"checkpoint_seconds", &StepMetrics::checkpoint_seconds},
    {"step_seconds", &StepMetrics::step_seconds},
    {"wall_seconds", &StepMetrics::wall_seconds},
};

constexpr Field<EvalMetrics> kEvalFields[] = {
    {"eval_name", &EvalMetrics::eval_name},
    {"eval_accuracy", &EvalMetrics::eval_accuracy},
    {"policy_version", &EvalMetrics::policy_version},
    {"lineage", &EvalMetrics::lineage},
    {"rows", &EvalMetrics::rows},
    {"samples_per_prompt", &EvalMetrics::samples_per_prompt},
    {"eval_failed_rows", &EvalMetrics::eval_failed_rows},
    {"eval_failed_samples", &EvalMetrics::eval_failed_samples},
    {"eval_pass_at", &EvalMetrics::eval_pass_at},
    {"reward_components", &EvalMetrics::reward_components},
    {"completion_length_mean", &EvalMetrics::completion_length_mean},
    {"eval_seconds", &EvalMetrics::eval_seconds},
    {"wall_seconds", &EvalMetrics::wall_seconds},
};

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json Encode(int64_t value) { return value; }
Json Encode(double value) { return Number(value); }
Json Encode(const std::string& value) { return value; }
Json Encode(const std::optional<double>& value) { return value ? Number(*value) : Json(); }
Json Encode(const std::map<std::string, double>& value) {
  Json object = Json::object();
  for (const auto& [key, number] : value) object[key] = Number(number);
  return object;
}
template <typename T>
Json Encode(const std::map<int64_t, T>& value) {
  Json object = Json::object();
  for (const auto& [key, number] : value) object[std::to_string(key)] = Encode(number);
  return object;
}

// Decode: false when the JSON value has a wrong type.
bool Decode(const nlohmann::json& json, int64_t& value) {
  if (!json.is_number_integer()) return false;
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return false;
  }
  value = json.get<int64_t>();
  return true;
}
bool Decode(const nlohmann::json& json, double& value) {
  if (json.is_null()) {
    value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (!json.is_number()) return false;
  value = json.get<double>();
  return true;
}
bool Decode(const nlohmann::json& json, std::string& value) {
  if (!json.is_string()) return false;
  value = json.get<std::string>();
  return true;
}
bool Decode(const nlohmann::json& json, std::optional<double>& value) {
  double number = 0;
  if (!Decode(json, number)) return false;
  value = number;
  return true;
}
bool Decode(const nlohmann::json& json, std::map<std::string, double>& value) {
  if (!json.is_object()) return false;
  for (const auto& [key, number] : json.items()) {
    if (!Decode(number, value[key])) return false;
  }
  return true;
}
template <typename T>
bool Decode(const nlohmann::json& json, std::map<int64_t, T>& value) {
  if (!json.is_object()) return false;
  for (const auto& [key, number] : json.items()) {
    int64_t whole = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), whole);
    if (error != std::errc() || end != key.data() + key.size()) return false;
    if (!Decode(number, value[whole])) return false;
  }
  return true;
}

template <typename Row, size_t N>
std::string Write(const Row& row, const Field<Row> (&fields)[N]) {
  Json object = Json::object();
  for (const Field<Row>& field : fields) {
    std::visit(
        [&](auto member) {
          const auto& value = row.*member;
          if constexpr (std::is_same_v<decltype(value), const std::optional<double>&>) {
            if (!value) return;
          }
          object[field.key] = Encode(value);
        },
        field.member);
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Row, size_t N>
absl::StatusOr<MetricsRow> Read(const nlohmann::json& json, const Field<Row> (&fields)[N]) {
  Row row;
  for (const Field<Row>& field : fields) {
    const auto found = json.find(field.key);
    if (found == json.end()) continue;
    const bool good =
        std::visit([&](auto member) { return Decode(*found, row.*member); }, field.member);
    if (!good) return InvalidArgument(field.key, ": value of a wrong type");
  }
  return MetricsRow(std::move(row));
}

}  // namespace

std::string ToJson(const StepMetrics& metrics) { return Write(metrics, kStepFields); }
std::string ToJson(const EvalMetrics& metrics) { return Write(metrics, kEvalFields); }

absl::StatusOr<MetricsRow> ParseMetricsRow(std::string_view line) {
  FRESHET_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(line, "row", {.max_depth = 8}));
  if (!json.is_object()) return InvalidArgument("not a JSON object");
  if (json.contains("step")) return Read(json, kStepFields);
  if (json.contains("eval_name")) return Read(json, kEvalFields);
  return MetricsRow();
}

}  // namespace freshet
