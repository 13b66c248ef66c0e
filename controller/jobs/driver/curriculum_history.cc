#include "controller/jobs/driver/curriculum_history.h"

#include <algorithm>
#include <variant>

#include "base/status_macros.h"
#include "freshet/job/v1/job_service.pb.h"
#include "runlog/step_metrics.h"

namespace freshet {

absl::Status ObserveHistory(EventLog& events, const std::string& stream,
                            TaskCurriculum& curriculum) {
  FRESHET_ASSIGN_OR_RETURN(const int64_t newest, events.Newest(stream));
  int64_t cursor = std::max<int64_t>(0, newest - kCurriculumEvents);
  while (cursor < newest) {
    FRESHET_ASSIGN_OR_RETURN(const EventPage page,
                             events.Read(stream, cursor, kCurriculumEvents, absl::ZeroDuration()));
    if (page.events.empty()) break;
    for (const StoredEvent& stored : page.events) {
      job::v1::Event event;
      if (!event.ParseFromString(stored.value) || !event.has_metrics_json()) continue;
      const absl::StatusOr<MetricsRow> row = ParseMetricsRow(event.metrics_json());
      if (!row.ok()) continue;
      const auto* const step = std::get_if<StepMetrics>(&*row);
      if (step != nullptr) curriculum.Observe(step->lineage, step->step, step->task_rewards);
    }
    cursor = page.events.back().cursor;
  }
  return absl::OkStatus();
}

}  // namespace freshet
