#ifndef FRESHET_BASE_MEMORY_PLAN_H_
#define FRESHET_BASE_MEMORY_PLAN_H_

#include <cstdint>
#include <initializer_list>
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
  bool is_upper_bound = false;  // samples of other lengths need less
};
using MemoryPlan = std::vector<MemoryItem>;

// Sizes whose product or sum does not fit are INT64_MAX. All are at least 0.
int64_t ProductOfSizes(std::initializer_list<int64_t> sizes);
int64_t SumOfSizes(int64_t a, int64_t b);

int64_t TotalBytes(const MemoryPlan& plan);

// Such as "1.5 GiB".
std::string BytesText(int64_t bytes);

struct MemoryCheck {
  // INVALID_ARGUMENT, naming total, limit and largest items: the items that are no upper bounds
  // exceed the limit.
  absl::Status status;
  std::string warning;  // the total exceeds the limit only with upper bounds; else ""
};
// `process`: such as "the trainer". Pure.
MemoryCheck CheckMemory(const std::string& process, const MemoryPlan& plan, int64_t limit);

// Logs the warning and returns the status.
absl::Status WarnOrFail(const MemoryCheck& check);

// The items of a process that computes on a GPU, by the memory that they are in. Pure.
struct GpuMemoryPlan {
  MemoryPlan gpu, host;
};
GpuMemoryPlan DivideByPlace(const MemoryPlan& plan);

}  // namespace freshet

#endif  // FRESHET_BASE_MEMORY_PLAN_H_
