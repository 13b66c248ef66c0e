#ifndef FRESHET_JOB_JOB_STATE_H_
#define FRESHET_JOB_JOB_STATE_H_

#include <string>

#include "freshet/job/v1/job_service.pb.h"

namespace freshet {

// "RUNNING" for JOB_STATE_RUNNING; "UNKNOWN" for a value without a name.
std::string StateName(job::v1::JobState state);

// Whether the state is SUCCEEDED, FAILED or CANCELLED.
bool HasEnded(job::v1::JobState state);

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_STATE_H_
