#ifndef FRESHET_WEIGHTS_WEIGHT_MEMBER_H_
#define FRESHET_WEIGHTS_WEIGHT_MEMBER_H_

#include <string>

namespace freshet {

// A member of a job's weight plane.
struct WeightMember {
  std::string worker;
  std::string address;    // host:port of its WeightService
  std::string work = {};  // its assignment; a new one starts without weights
  std::string site = {};  // workers with a fast network between them; "": those that name none
  bool operator==(const WeightMember&) const = default;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_MEMBER_H_
