#ifndef FRESHET_JOB_JOB_KIND_H_
#define FRESHET_JOB_JOB_KIND_H_

#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// Whether the job writes its samples to files and trains nothing.
inline bool Generates(const job::v1::JobSpec& spec) { return spec.kind() == "generate"; }

}  // namespace freshet

#endif  // FRESHET_JOB_JOB_KIND_H_
