#include "rollout/engine/device_weights.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/word_digest.h"
#include "gtest/gtest.h"
#include "model/tensor_digest.h"
#include "tests/contract/weight_version.h"

namespace freshet {
namespace {

constexpr auto kOnePiece = static_cast<int64_t>(kDigestPieceBytes);

at::Tensor View(const WeightBytes& bytes, at::ScalarType type) {
  const auto elements =
      static_cast<int64_t>(bytes->size()) / static_cast<int64_t>(at::elementSize(type));
  return at::from_blob(
      const_cast<std::byte*>(bytes->data()), {elements}, [bytes](void*) {}, type);
}

// The CPU stands for the GPU, its memory for the trainer's copy there: `copy` has these bytes.
DeviceCopy CopyWith(const WeightBytes& bytes) {
  DeviceCopy copy;
  copy.data = bytes->data();
  copy.device = at::Device(at::kCPU).index();
  copy.digest = WordDigest(*bytes);
  copy.owner_lives = [] { return true; };
  return copy;
}

WeightBytes With(const WeightBytes& bytes, DeviceCopy copy) {
  return std::make_shared<const WeightArena>(bytes->data(), bytes->size(), bytes, -1,
                                             std::move(copy));
}

bool Holds(const at::Tensor& flat, const WeightBytes& bytes) {
  return std::equal(bytes->begin(), bytes->end(), static_cast<const std::byte*>(flat.data_ptr()));
}

TEST(DeviceWeights, ComputesTheDigestOfTheBytes) {
  for (const int64_t size : {int64_t{0}, int64_t{4}, int64_t{12}, kOnePiece - 4, kOnePiece,
                             kOnePiece + 4, 3 * kOnePiece + 20}) {
    const WeightBytes bytes = PatternBytes(size, 1);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      EXPECT_EQ(DigestOf(View(bytes, type)), WordDigest(*bytes)) << size << " " << type;
    }
  }
}

TEST(DeviceWeights, LoadsTheCopy) {
  const WeightBytes bytes = PatternBytes(kOnePiece + 6, 1);
  const at::Tensor flat = at::zeros_like(View(bytes, at::kBFloat16));
  EXPECT_TRUE(LoadDeviceCopy(CopyWith(bytes), flat).ok());
  EXPECT_TRUE(Holds(flat, bytes));
}

TEST(DeviceWeights, NoticesOtherBytesAndAnOwnerThatHasEnded) {
  const WeightBytes bytes = PatternBytes(kOnePiece + 6, 1);
  const at::Tensor flat = at::zeros_like(View(bytes, at::kBFloat16));
  DeviceCopy copy = CopyWith(bytes);
  const WeightBytes torn = Torn(bytes, 7);
  copy.data = torn->data();
  EXPECT_EQ(LoadDeviceCopy(copy, flat).code(), absl::StatusCode::kDataLoss);
  copy = CopyWith(bytes);
  copy.owner_lives = [] { return false; };
  flat.zero_();
  EXPECT_EQ(LoadDeviceCopy(copy, flat).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(flat.count_nonzero().item<int64_t>(), 0);
}

TEST(DeviceWeights, TakesTheCopyOfItsDeviceInItsFormat) {
  const WeightBytes host = PatternBytes(4096, 1);
  const WeightBytes other = PatternBytes(4096, 2);
  // Its digest is that of `other`, so that it shows which bytes were taken.
  const DeviceCopy copy = CopyWith(other);
  const at::Tensor flat = at::zeros_like(View(host, at::kBFloat16));
  CopyWeights(*With(host, copy), View(host, at::kBFloat16), flat);
  EXPECT_TRUE(Holds(flat, other));
  DeviceCopy elsewhere = copy;
  elsewhere.device = 3;
  CopyWeights(*With(host, elsewhere), View(host, at::kBFloat16), flat);
  EXPECT_TRUE(Holds(flat, host));
  const at::Tensor floats = at::zeros({2048}, at::kFloat);
  CopyWeights(*With(host, copy), View(host, at::kBFloat16), floats);
  EXPECT_TRUE(at::allclose(floats, View(host, at::kBFloat16).to(at::kFloat), /*rtol=*/0,
                           /*atol=*/0, /*equal_nan=*/true));
}

TEST(DeviceWeights, TakesTheVerifiedBytesIfTheCopyIsNotUsable) {
  const WeightBytes host = PatternBytes(4096, 1);
  const WeightBytes torn = Torn(host, 7);
  const at::Tensor flat = at::zeros_like(View(host, at::kBFloat16));
  DeviceCopy copy = CopyWith(host);
  copy.data = torn->data();
  CopyWeights(*With(host, copy), View(host, at::kBFloat16), flat);
  EXPECT_TRUE(Holds(flat, host));
  flat.zero_();
  copy = CopyWith(torn);
  copy.owner_lives = [] { return false; };
  CopyWeights(*With(host, copy), View(host, at::kBFloat16), flat);
  EXPECT_TRUE(Holds(flat, host));
  flat.zero_();
  CopyWeights(*host, View(host, at::kBFloat16), flat);
  EXPECT_TRUE(Holds(flat, host));
}

}  // namespace
}  // namespace freshet
