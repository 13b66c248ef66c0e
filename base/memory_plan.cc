#include "base/memory_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kNamedItems = 3;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

std::string Shortage(const std::string& needs, MemoryPlan plan, int64_t limit) {
  std::stable_sort(plan.begin(), plan.end(),
                   [](const MemoryItem& a, const MemoryItem& b) { return a.bytes > b.bytes; });
  std::string items;
  for (size_t i = 0; i < std::min(plan.size(), kNamedItems); ++i) {
    items += StrCat(i == 0 ? "" : ", ", plan[i].name, " ", BytesText(plan[i].bytes));
  }
  return StrCat(needs, " ", BytesText(TotalBytes(plan)), " of memory and may use ",
                BytesText(limit), "; the largest items: ", items, "; see freshet plan");
}

}  // namespace

int64_t ProductOfSizes(std::initializer_list<int64_t> sizes) {
  int64_t product = 1;
  bool fits = true;
  for (const int64_t size : sizes) {
    if (size == 0) return 0;
    fits = !__builtin_mul_overflow(product, size, &product) && fits;
  }
  return fits ? product : kLargest;
}

int64_t SumOfSizes(int64_t a, int64_t b) { return a > kLargest - b ? kLargest : a + b; }

int64_t TotalBytes(const MemoryPlan& plan) {
  int64_t total = 0;
  for (const MemoryItem& item : plan) total = SumOfSizes(total, item.bytes);
  return total;
}

std::string BytesText(int64_t bytes) {
  if (bytes < int64_t{1} << 20) return StrCat(bytes, " bytes");
  if (bytes < int64_t{1} << 30) return absl::StrFormat("%.1f MiB", bytes / double{1 << 20});
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

MemoryCheck CheckMemory(const std::string& process, const MemoryPlan& plan, int64_t limit) {
  MemoryPlan certain = plan;
  std::erase_if(certain, [](const MemoryItem& item) { return item.is_upper_bound; });
  MemoryCheck check;
  if (TotalBytes(certain) > limit) {
    check.status = InvalidArgument(Shortage(process + " needs at least", certain, limit));
  } else if (TotalBytes(plan) > limit) {
    check.warning = Shortage(process + " may need up to", plan, limit);
  }
  return check;
}

absl::Status WarnOrFail(const MemoryCheck& check) {
  if (!check.warning.empty()) {
    FRESHET_LOG(Warning) << "event=memory_may_not_suffice reason=" << LogQuoted(check.warning);
  }
  return check.status;
}

GpuMemoryPlan DivideByPlace(const MemoryPlan& plan) {
  GpuMemoryPlan divided;
  for (const MemoryItem& item : plan) {
    (item.place == MemoryItem::Place::kHost ? divided.host : divided.gpu).push_back(item);
  }
  return divided;
}

}  // namespace freshet
