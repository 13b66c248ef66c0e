#include "cli/client/job_events.h"

#include <utility>
#include <variant>

#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace freshet {
namespace {

constexpr absl::Duration kTimeLimit = absl::Seconds(60);
constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadMetricsRows(JobClient& client,
                                                         const std::string& job_id) {
  std::vector<std::string> rows;
  FRESHET_ASSIGN_OR_RETURN(const job::v1::Job job, client.Get(job_id));
  if (job.recent_events().empty()) return rows;
  const std::string last = job.recent_events(job.recent_events_size() - 1).cursor();
  const auto take = [&](const job::v1::Event& event) {
    if (event.has_metrics_json()) rows.push_back(event.metrics_json());
    return event.cursor() != last;
  };
  FRESHET_RETURN_IF_ERROR(FollowEvents(client, job_id, "", absl::Now() + kTimeLimit, kPatience,
                                       take, [](const absl::Status&) {}));
  return rows;
}

MetricsHistory SurvivingHistory(const std::vector<std::string>& rows) {
  MetricsHistory history;
  for (const std::string& text : rows) {
    absl::StatusOr<MetricsRow> row = ParseMetricsRow(text);
    if (!row.ok()) continue;
    if (auto* step = std::get_if<StepMetrics>(&*row)) history.steps.push_back(std::move(*step));
    if (auto* eval = std::get_if<EvalMetrics>(&*row)) history.evals.push_back(std::move(*eval));
  }
  return SurvivingMetrics(history);
}

}  // namespace freshet
