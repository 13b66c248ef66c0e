#ifndef FRESHET_BASE_MEMORY_PLAN_H_
#define FRESHET_BASE_MEMORY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace freshet {

// What a process needs memory for, and how many bytes at most.
struct MemoryItem {
  enum class Place {
    kDevice,   // where it computes
    kDivided,  // there, and divisible among the ranks of a sharded trainer
    kHost,
  };
  std::string name;
  int64_t bytes = 0;
  Place place = Place::kDevice;
};
using MemoryPlan = std::vector<MemoryItem>;

int64_t TotalBytes(const MemoryPlan& plan);

// INVALID_ARGUMENT naming the total, the limit and the largest items if the plan needs more than
// `limit` bytes. `process`: such as "the trainer".
absl::Status CheckMemory(const std::string& process, const MemoryPlan& plan, int64_t limit);

}  // namespace freshet

#endif  // FRESHET_BASE_MEMORY_PLAN_H_
