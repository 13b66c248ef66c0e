#include "base/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kNamedItems = 3;

}  // namespace

int64_t TotalBytes(const MemoryPlan& plan) {
  return std::accumulate(plan.begin(), plan.end(), int64_t{0},
                         [](int64_t sum, const MemoryItem& item) { return sum + item.bytes; });
}

absl::Status CheckMemory(const std::string& process, const MemoryPlan& plan, int64_t limit) {
  const int64_t total = TotalBytes(plan);
  if (total <= limit) return absl::OkStatus();
  MemoryPlan largest = plan;
  std::stable_sort(largest.begin(), largest.end(),
                   [](const MemoryItem& a, const MemoryItem& b) { return a.bytes > b.bytes; });
  largest.resize(std::min(largest.size(), kNamedItems));
  std::string items;
  for (const MemoryItem& item : largest) {
    items += StrCat(items.empty() ? "" : ", ", item.name, " ", item.bytes);
  }
  return InvalidArgument(process, " needs ", total, " bytes of memory and may use ", limit,
                         "; the largest items: ", items, "; see freshet plan");
}

}  // namespace freshet
