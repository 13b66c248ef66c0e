#ifndef FRESHET_BASE_FAULT_POINT_H_
#define FRESHET_BASE_FAULT_POINT_H_

#include <string_view>

namespace freshet {

// Named points at which tests can crash the process to test recovery. Production code calls Reach()
// at each; the default does nothing. Thread-safe.
class FaultPoints {
 public:
  virtual ~FaultPoints() = default;
  virtual void Reach(std::string_view /*point*/) {}
};

}  // namespace freshet

#endif  // FRESHET_BASE_FAULT_POINT_H_
