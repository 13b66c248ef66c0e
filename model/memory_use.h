#ifndef FRESHET_MODEL_MEMORY_USE_H_
#define FRESHET_MODEL_MEMORY_USE_H_

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "model/torch.h"

namespace freshet {

// What memory is allocated for.
struct MemoryUse {
  std::string item;  // of the memory plan, such as "gradients"
  int64_t planned_bytes = 0;
  at::Device device = at::kCPU;
  std::string change;  // what to change if there is too little, such as "lower KEY"
};

// There is too little memory for a MemoryUse. what() tells its item and size, what the device has,
// and what to change.
class OutOfMemory final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether `error`, of LibTorch or the standard library, is a failed allocation, on the CPU or a
// GPU.
bool IsOutOfMemory(const std::exception& error);

// Call it while `error` is handled: throws OutOfMemory for `use` if it is a failed allocation that
// has no name yet, and otherwise `error` again.
[[noreturn]] void RethrowFor(const std::exception& error, absl::FunctionRef<MemoryUse()> use);

// Returns call(). If it cannot allocate memory, throws OutOfMemory for `use`, or for the use of an
// inner WithMemoryFor.
template <typename Call>
auto WithMemoryFor(absl::FunctionRef<MemoryUse()> use, Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    RethrowFor(error, use);
  }
}

// `error` as a status whose message begins with `what`, such as "training failed".
// RESOURCE_EXHAUSTED: a failed allocation. INTERNAL: any other error.
absl::Status StatusOfException(const std::string& what, const std::exception& error);

}  // namespace freshet

#endif  // FRESHET_MODEL_MEMORY_USE_H_
