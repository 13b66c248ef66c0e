#include "runlog/metrics_log.h"

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <variant>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kMaxRowBytes = size_t{1} << 20;

}  // namespace

absl::StatusOr<MetricsHistory> ReadMetrics(const std::string& path) {
  MetricsHistory history;
  const auto add = [&](int64_t number, std::string_view line) -> absl::Status {
    absl::StatusOr<MetricsRow> row = ParseMetricsRow(line);
    if (!row.ok()) return InvalidArgument(path, ":", number, ": ", Message(row.status()));
    if (auto* step = std::get_if<StepMetrics>(&*row)) history.steps.push_back(std::move(*step));
    if (auto* eval = std::get_if<EvalMetrics>(&*row)) history.evals.push_back(std::move(*eval));
    return absl::OkStatus();
  };
  FRESHET_ASSIGN_OR_RETURN(const JsonlTail tail, ForEachLine(path, kMaxRowBytes, add));
  history.torn = tail.torn_bytes > 0;
  return history;
}

MetricsHistory SurvivingMetrics(const MetricsHistory& history) {
  std::map<int64_t, int64_t> first_step;  // by lineage
  for (const StepMetrics& row : history.steps) {
    const auto [place, added] = first_step.try_emplace(row.lineage, row.step);
    if (!added && row.step < place->second) place->second = row.step;
  }
  const auto superseded = [&](int64_t lineage, int64_t version) {
    for (auto it = first_step.upper_bound(lineage); it != first_step.end(); ++it) {
      if (version >= it->second) return true;
    }
    return false;
  };
  std::map<int64_t, const StepMetrics*> steps;
  for (const StepMetrics& row : history.steps) {
    if (superseded(row.lineage, row.step)) continue;
    const StepMetrics*& slot = steps[row.step];
    if (slot == nullptr || row.lineage >= slot->lineage) slot = &row;
  }
  std::map<std::tuple<int64_t, std::string>, const EvalMetrics*> evals;
  for (const EvalMetrics& row : history.evals) {
    if (superseded(row.lineage, row.policy_version)) continue;
    const EvalMetrics*& slot = evals[{row.policy_version, row.eval_name}];
    if (slot == nullptr || row.lineage >= slot->lineage) slot = &row;
  }
  MetricsHistory surviving;
  surviving.torn = history.torn;
  for (const auto& [step, row] : steps) surviving.steps.push_back(*row);
  for (const auto& [key, row] : evals) surviving.evals.push_back(*row);
  return surviving;
}

}  // namespace freshet
