#ifndef FRESHET_BASE_FAULT_POINT_H_
#define FRESHET_BASE_FAULT_POINT_H_

#include <string_view>

namespace freshet {

// Places where a process may be made to die, so that recovery can be tested at each of them.
// Production code calls Reach() at every named place; the default does nothing. Thread-safe.
class FaultPoints {
 public:
  virtual ~FaultPoints() = default;
  virtual void Reach(std::string_view /*point*/) {}
};

}  // namespace freshet

#endif  // FRESHET_BASE_FAULT_POINT_H_
