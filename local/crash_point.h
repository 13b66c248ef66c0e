#ifndef FRESHET_LOCAL_CRASH_POINT_H_
#define FRESHET_LOCAL_CRASH_POINT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fault_point.h"

namespace freshet {

// "" gives points that do nothing; "POINT:N" gives points that kill this process with SIGKILL when
// POINT is reached for the N-th time, after a line on stderr that says so. INVALID_ARGUMENT for
// anything else. Points are listed at TrainerLoop.
absl::StatusOr<std::unique_ptr<FaultPoints>> MakeFaultPoints(const std::string& crash_at);

}  // namespace freshet

#endif  // FRESHET_LOCAL_CRASH_POINT_H_
