#ifndef FRESHET_LOCAL_CRASH_POINT_H_
#define FRESHET_LOCAL_CRASH_POINT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fault_point.h"

namespace freshet {

// "" gives no-op fault points. "POINT:N" gives fault points that print a line to stderr and kill
// this process with SIGKILL when POINT is reached for the N-th time. INVALID_ARGUMENT for anything
// else. For the points see TrainerLoop.
absl::StatusOr<std::unique_ptr<FaultPoints>> MakeFaultPoints(const std::string& crash_at);

}  // namespace freshet

#endif  // FRESHET_LOCAL_CRASH_POINT_H_
