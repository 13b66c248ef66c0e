#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_CURRICULUM_HISTORY_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_CURRICULUM_HISTORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "dataset/task_curriculum.h"
#include "datastore/event_log.h"

namespace freshet {

// Shows a curriculum the steps that were trained before it was created: those among the newest
// events of the job's stream. Older ones hardly count in the running means. Returns the errors of
// the log.
absl::Status ObserveHistory(EventLog& events, const std::string& stream,
                            TaskCurriculum& curriculum);

constexpr int64_t kCurriculumEvents = kMaxEventPage;  // read by ObserveHistory

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_CURRICULUM_HISTORY_H_
