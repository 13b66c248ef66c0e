#include "model/memory_use.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <new>

#include "absl/strings/match.h"
#include "base/container_limits.h"
#include "base/memory_plan.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr size_t kMaxCauseLength = 300;

// Without LibTorch's list of calls.
std::string CauseOf(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->msg() : error.what();
  return text.substr(0, std::min(text.find('\n'), kMaxCauseLength));
}

std::string DescribeMemory(at::Device device) {
  if (device.is_cpu()) {
    return StrCat("of ", BytesText(UsableMemory(ReadContainerLimits())), " of host memory ",
                  BytesText(AvailableMemory()), " are available");
  }
  try {
    const auto [free, total] =
        c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
    return StrCat("of ", BytesText(static_cast<int64_t>(total)), " of ", device.str(), " ",
                  BytesText(static_cast<int64_t>(free)), " are free");
  } catch (const std::exception&) {  // the error matters more
    return StrCat("on ", device.str());
  }
}

}  // namespace

bool IsOutOfMemory(const std::exception& error) {
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  if (torch == nullptr) return false;
  // LibTorch has no type for these: its allocator on CPUs; cudaHostAlloc and launches; cuBLAS.
  for (const char* text :
       {"can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"}) {
    if (absl::StrContains(torch->msg(), text)) return true;
  }
  return false;
}

void RethrowFor(const std::exception& error, absl::FunctionRef<MemoryUse()> use) {
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr || !IsOutOfMemory(error)) throw;
  const MemoryUse wanted = use();
  throw OutOfMemory(StrCat("no memory for the ", wanted.item, ", planned as ",
                           BytesText(wanted.planned_bytes), ": ", DescribeMemory(wanted.device),
                           "; ", wanted.change, "; see freshet plan (", CauseOf(error), ")"));
}

absl::Status StatusOfException(const std::string& what, const std::exception& error) {
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) {
    return ResourceExhausted(what, ": ", error.what());
  }
  if (IsOutOfMemory(error)) return ResourceExhausted(what, ": no memory: ", CauseOf(error));
  return Internal(what, ": ", std::string(error.what()).substr(0, kMaxCauseLength));
}

}  // namespace freshet
