#include "controller/jobs/driver/curriculum_history.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "freshet/job/v1/job_service.pb.h"
#include "runlog/step_metrics.h"

namespace freshet {

namespace {

struct ShownStep {
  int64_t lineage = 0;
  std::map<std::string, double> rewards;
};

// Adds a step, which supersedes those of former lineages from its number on.
void AddStep(StepMetrics& step, std::map<int64_t, ShownStep>& steps) {
  if (!steps.empty()) {
    const int64_t last = steps.rbegin()->second.lineage;
    if (step.lineage < last) return;
    if (step.lineage > last) steps.erase(steps.lower_bound(step.step), steps.end());
  }
  steps[step.step] = {step.lineage, std::move(step.task_rewards)};
}

}  // namespace

absl::Status ObserveHistory(EventLog& events, const std::string& stream, int64_t most,
                            TaskCurriculum& curriculum) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t newest, events.Newest(stream));
  int64_t cursor = std::max<int64_t>(0, newest - most);
  std::map<int64_t, ShownStep> steps;
  while (cursor < newest) {
    FRESHET_ASSIGN_OR_RETURN(const EventPage page,
                             events.Read(stream, cursor, most, absl::ZeroDuration()));
    if (page.events.empty()) break;
    for (const StoredEvent& stored : page.events) {
      job::v1::Event event;
      if (!event.ParseFromString(stored.value) || !event.has_metrics_json()) continue;
      absl::StatusOr<MetricsRow> row = ParseMetricsRow(event.metrics_json());
      if (!row.ok()) continue;
      auto* const step = std::get_if<StepMetrics>(&*row);
      if (step != nullptr) AddStep(*step, steps);
    }
    cursor = page.events.back().cursor;
  }
  for (const auto& [number, step] : steps) curriculum.Observe(step.lineage, number, step.rewards);
  return absl::OkStatus();
}

}  // namespace freshet
