#include "model/memory_use.h"

#include <exception>
#include <new>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/memory_limit.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;

MemoryUse CacheUse() { return {"cache", 64 * kMiB, at::kCPU, "lower cache.size"}; }

template <typename Call>
absl::Status StatusAfter(Call&& call) {
  try {
    WithMemoryFor(CacheUse, call);
  } catch (const std::exception& error) {
    return StatusOfException("the work failed", error);
  }
  return absl::OkStatus();
}

std::vector<std::byte> kept_bytes;  // out of the optimizer's sight

constexpr char kNamed[] =
    "RESOURCE_EXHAUSTED: the work failed: no memory for the cache, planned as 64.0 MiB: of .* of "
    "host memory .* are available; lower cache.size; see freshet plan \\(.*";

TEST(MemoryUseDeathTest, LibTorchsAllocatorFails) {
  FRESHET_EXPECT_IN_CHILD(
      {
        LimitMemory(16 * kMiB);
        ExitWith(StatusAfter([] { at::empty({64 * kMiB}, at::kByte); }));
      },
      std::string(kNamed) + "you tried to allocate 67108864 bytes");
}

TEST(MemoryUseDeathTest, NewFails) {
  FRESHET_EXPECT_IN_CHILD(
      {
        LimitMemory(16 * kMiB);
        ExitWith(StatusAfter([] { std::vector<std::byte>(size_t{64 << 20}).swap(kept_bytes); }));
      },
      std::string(kNamed) + "std::bad_alloc\\)");
}

TEST(MemoryUse, TheInnerUseIsNamed) {
  const absl::Status status = StatusAfter([] {
    WithMemoryFor(
        [] {
          return MemoryUse{"page", 1, at::kCPU, "lower page.size"};
        },
        []() -> int { throw std::bad_alloc(); });
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("no memory for the page, planned as 1 bytes"),
                                      HasSubstr("lower page.size"), Not(HasSubstr("cache"))));
}

TEST(MemoryUse, OtherErrorsStayWhatTheyAre) {
  EXPECT_THROW(WithMemoryFor(CacheUse, [] { throw std::invalid_argument("x"); }),
               std::invalid_argument);
  const absl::Status status = StatusAfter([] { at::empty({2}).view({3}); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("the work failed: shape '[3]' is invalid"));
  EXPECT_EQ(WithMemoryFor(CacheUse, [] { return 5; }), 5);
}

// What LibTorch 2.11 throws with CUDA 13.
TEST(MemoryUse, ErrorsOfGpusAreKnown) {
  const c10::SourceLocation here{"f", "file", 1};
  EXPECT_TRUE(IsOutOfMemory(c10::OutOfMemoryError(here, "CUDA out of memory. Tried to allocate")));
  EXPECT_TRUE(IsOutOfMemory(c10::Error(here, "CUDA error: out of memory\nCUDA kernel errors")));
  EXPECT_TRUE(IsOutOfMemory(
      c10::Error(here, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")));
  EXPECT_FALSE(IsOutOfMemory(c10::Error(here, "CUDA error: an illegal memory access")));
  EXPECT_FALSE(IsOutOfMemory(std::runtime_error("CUDA error: out of memory")));
}

TEST(MemoryUse, AnUnnamedShortageIsOneToo) {
  const absl::Status status = StatusOfException("the work failed", std::bad_alloc());
  EXPECT_EQ(status.ToString(), "RESOURCE_EXHAUSTED: the work failed: no memory: std::bad_alloc");
}

}  // namespace
}  // namespace freshet
