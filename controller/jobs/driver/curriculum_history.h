#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_CURRICULUM_HISTORY_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_CURRICULUM_HISTORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "dataset/task_curriculum.h"
#include "datastore/event_log.h"

namespace freshet {

// Shows a curriculum the steps that were trained before it was created, without those that a resume
// from an earlier checkpoint has superseded: those among the newest `most` events (1 to
// kMaxEventPage) of the job's stream. Older ones hardly count in the running means. Returns the
// errors of the log, and then shows nothing.
absl::Status ObserveHistory(EventLog& events, const std::string& stream, int64_t most,
                            TaskCurriculum& curriculum);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_CURRICULUM_HISTORY_H_
