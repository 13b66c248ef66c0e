#include "weights/cuda/device_copies.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "base/word_digest.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/testing/log_lines.h"
#include "tests/weights/cuda/fake_gpu.h"
#include "weights/cuda/device_copy_opener.h"
#include "weights/shm/memory_file.h"
#include "weights/shm/memory_file_reader.h"

namespace freshet {
namespace {

constexpr int64_t kSize = 10'007;
constexpr int64_t kPiece = 64;

VersionForTest Numbered(int64_t number, int64_t size = kSize) {
  return MakeVersion({0, number}, 1, size, kPiece);
}

class DeviceCopiesTest : public testing::Test {
 protected:
  DeviceCopiesTest() { copies_.Start(2); }
  WeightBytes StageOn(const VersionForTest& version) {
    WeightManifest manifest;
    return stager_.Stage(*version.bytes, kPiece, manifest).value();
  }
  absl::StatusOr<DeviceOffer> Offer(const WeightBytes& staged, const VersionForTest& version) {
    return copies_.Offer(*staged, version.manifest.content_hash, absl::InfiniteFuture());
  }
  // As an engine takes a version.
  WeightBytes Take(const WeightBytes& staged, const VersionForTest& version,
                   const DeviceOffer& offer) {
    const std::string path = MemoryFilePath(*staged);
    return opener_.Attach(reader_.Map(path, version.manifest).value(), path, offer);
  }
  static bool Holds(const WeightBytes& taken, const VersionForTest& version) {
    if (!taken->device_copy().has_value()) return false;
    const auto* data = static_cast<const std::byte*>(taken->device_copy()->data);
    return std::equal(version.bytes->begin(), version.bytes->end(), data) &&
           taken->device_copy()->digest == WordDigest(*version.bytes);
  }

  const std::shared_ptr<FakeGpu> gpu_ = std::make_shared<FakeGpu>();
  MemoryFileStager stager_;
  DeviceCopies copies_{std::make_shared<FakeDeviceMemory>(gpu_)};
  MemoryFileReader reader_;
  DeviceCopyOpener opener_{std::make_shared<FakeDeviceMemory>(gpu_)};
  const VersionForTest first_ = Numbered(1);
  const VersionForTest second_ = Numbered(2);
  const VersionForTest third_ = Numbered(3);
};

TEST_F(DeviceCopiesTest, AnEngineFindsTheVersionOnTheGpu) {
  const WeightBytes staged = StageOn(first_);
  const auto offer = Offer(staged, first_);
  ASSERT_TRUE(offer.ok()) << offer.status();
  EXPECT_EQ(offer->uuid, gpu_->uuid());
  EXPECT_EQ(offer->size, static_cast<uint64_t>(kSize));
  WeightBytes taken = Take(staged, first_, *offer);
  EXPECT_TRUE(Holds(taken, first_));
  EXPECT_EQ(*taken, *first_.bytes);
  EXPECT_TRUE(taken->device_copy()->owner_lives());
  EXPECT_EQ(gpu_->open(), 1);
  taken.reset();
  EXPECT_EQ(gpu_->open(), 0);
}

TEST_F(DeviceCopiesTest, OneVersionIsCopiedOnce) {
  const WeightBytes staged = StageOn(first_);
  ASSERT_TRUE(Offer(staged, first_).ok());
  ASSERT_TRUE(Offer(staged, first_).ok());
  EXPECT_EQ(gpu_->writes(), 1);
}

TEST_F(DeviceCopiesTest, ACopyIsWrittenAgainWithItsFile) {
  WeightBytes staged = StageOn(first_);
  const DeviceOffer former = Offer(staged, first_).value();
  Take(staged, first_, former).reset();
  const int file = staged->shared_fd();
  staged.reset();
  staged = StageOn(second_);
  ASSERT_EQ(staged->shared_fd(), file);
  const DeviceOffer offer = Offer(staged, second_).value();
  EXPECT_EQ(offer.handle, former.handle);
  EXPECT_TRUE(Holds(Take(staged, second_, offer), second_));
  EXPECT_EQ(gpu_->allocations(), 1U);
}

TEST_F(DeviceCopiesTest, ThereAreTwoAtMost) {
  const WeightBytes one = StageOn(first_);
  const WeightBytes two = StageOn(second_);
  const WeightBytes three = StageOn(third_);
  WeightBytes held = Take(one, first_, Offer(one, first_).value());
  const WeightBytes also_held = Take(two, second_, Offer(two, second_).value());
  EXPECT_EQ(Offer(three, third_).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Holds(held, first_));
  held.reset();
  EXPECT_TRUE(Holds(Take(three, third_, Offer(three, third_).value()), third_));
  EXPECT_TRUE(Holds(also_held, second_));
  EXPECT_EQ(gpu_->allocations(), 2U);
  EXPECT_EQ(gpu_->freed_while_open(), 0);
}

TEST_F(DeviceCopiesTest, AJobMayHaveAThirdOne) {
  copies_.Start(3);
  const WeightBytes one = StageOn(first_);
  const WeightBytes two = StageOn(second_);
  const WeightBytes three = StageOn(third_);
  const WeightBytes held = Take(one, first_, Offer(one, first_).value());
  const WeightBytes also_held = Take(two, second_, Offer(two, second_).value());
  EXPECT_TRUE(Offer(three, third_).ok());
}

TEST_F(DeviceCopiesTest, TrimLeavesWhatAnEngineReads) {
  const WeightBytes one = StageOn(first_);
  const WeightBytes two = StageOn(second_);
  WeightBytes held = Take(one, first_, Offer(one, first_).value());
  ASSERT_TRUE(Offer(two, second_).ok());
  copies_.Trim();
  EXPECT_EQ(gpu_->allocations(), 1U);
  EXPECT_TRUE(Holds(held, first_));
  held.reset();
  copies_.Trim();
  EXPECT_EQ(gpu_->allocations(), 0U);
  EXPECT_EQ(gpu_->freed_while_open(), 0);
}

TEST_F(DeviceCopiesTest, TheDeathOfAnEngineGivesTheCopyBack) {
  const WeightBytes staged = StageOn(first_);
  const DeviceOffer offer = Offer(staged, first_).value();
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t engine = ::fork();
  if (engine == 0) {
    const WeightBytes taken = Take(staged, first_, offer);
    const char holds = Holds(taken, first_) ? 'y' : 'n';
    if (::write(told[1], &holds, 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char holds = 0;
  EXPECT_EQ(::read(told[0], &holds, 1), 1);
  EXPECT_EQ(holds, 'y');
  copies_.Trim();
  EXPECT_EQ(gpu_->allocations(), 1U);
  ::kill(engine, SIGKILL);
  ::waitpid(engine, nullptr, 0);
  ::close(told[0]);
  ::close(told[1]);
  copies_.Trim();
  EXPECT_EQ(gpu_->allocations(), 0U);
}

TEST_F(DeviceCopiesTest, AnotherSizeReplacesTheCopies) {
  WeightBytes staged = StageOn(first_);
  ASSERT_TRUE(Offer(staged, first_).ok());
  const VersionForTest larger = Numbered(2, kSize + 1);
  const WeightBytes next = StageOn(larger);
  ASSERT_TRUE(Offer(next, larger).ok());
  EXPECT_EQ(gpu_->allocations(), 1U);
}

TEST_F(DeviceCopiesTest, TakesMemoryFilesThatEnginesLockOnly) {
  MemoryFileStager constant(/*seal=*/0);
  WeightManifest manifest;
  const WeightBytes sealed = constant.Stage(*first_.bytes, kPiece, manifest).value();
  const VersionForTest empty = Numbered(1, 0);
  for (const WeightBytes& bytes : {first_.bytes, sealed, StageOn(empty)}) {
    EXPECT_EQ(Offer(bytes, first_).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(gpu_->allocations(), 0U);
}

TEST_F(DeviceCopiesTest, ACopyThatFailedIsNotOfferedAndIsMadeAgain) {
  const WeightBytes staged = StageOn(first_);
  for (const FakeGpu::Fault fault : {FakeGpu::Fault::kNoExport, FakeGpu::Fault::kNoWrite}) {
    gpu_->Fail(fault);
    EXPECT_EQ(Offer(staged, first_).status().code(), absl::StatusCode::kUnavailable);
  }
  gpu_->Fail(FakeGpu::Fault::kNone);
  EXPECT_TRUE(Holds(Take(staged, first_, Offer(staged, first_).value()), first_));
  EXPECT_EQ(gpu_->allocations(), 1U);
}

TEST_F(DeviceCopiesTest, AFullGpuIsReported) {
  const auto small = std::make_shared<FakeGpu>('a', kSize - 1);
  DeviceCopies copies(std::make_shared<FakeDeviceMemory>(small));
  EXPECT_EQ(copies.Offer(*StageOn(first_), "hash", absl::InfiniteFuture()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

using DeviceCopyOpenerTest = DeviceCopiesTest;

TEST_F(DeviceCopyOpenerTest, WithoutTheCopyTheBytesRemain) {
  const WeightBytes staged = StageOn(first_);
  const DeviceOffer offer = Offer(staged, first_).value();
  const std::string path = MemoryFilePath(*staged);
  const WeightBytes mapped = reader_.Map(path, first_.manifest).value();
  const auto refuses = [&](DeviceCopyOpener& opener, const DeviceOffer& of, const std::string& at) {
    return opener.Attach(mapped, at, of) == mapped;
  };
  DeviceCopyOpener none(absl::UnavailableError("no CUDA runtime"));
  EXPECT_TRUE(refuses(none, offer, path));
  DeviceCopyOpener elsewhere(std::make_shared<FakeDeviceMemory>(std::make_shared<FakeGpu>('b')));
  EXPECT_TRUE(refuses(elsewhere, offer, path));
  DeviceOffer other_size = offer;
  ++other_size.size;
  EXPECT_TRUE(refuses(opener_, other_size, path));
  for (const std::string& handle : {std::string(), std::string(63, 'x'), std::string(64, 'x')}) {
    DeviceOffer other_handle = offer;
    other_handle.handle = handle;
    EXPECT_TRUE(refuses(opener_, other_handle, path));
  }
  EXPECT_TRUE(refuses(opener_, offer, "/proc/1/fd/99999"));
  gpu_->Fail(FakeGpu::Fault::kNoOpen);
  EXPECT_TRUE(refuses(opener_, offer, path));
  EXPECT_EQ(gpu_->open(), 0);
  gpu_->Fail(FakeGpu::Fault::kNone);
  EXPECT_FALSE(refuses(opener_, offer, path));
}

TEST_F(DeviceCopyOpenerTest, LogsAReasonOnce) {
  const WeightBytes staged = StageOn(first_);
  const DeviceOffer offer = Offer(staged, first_).value();
  DeviceCopyOpener none(absl::UnavailableError("no CUDA runtime"));
  const LogLines log;
  for (int i = 0; i < 3; ++i) none.Attach(first_.bytes, MemoryFilePath(*staged), offer);
  const std::vector<std::string> lines = log.With("event=");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("event=no_gpu_copy reason=\"no CUDA runtime\""), std::string::npos)
      << lines[0];
}

TEST_F(DeviceCopyOpenerTest, NoticesThatTheTrainerHasEnded) {
  auto trainer = std::make_unique<MemoryFileStager>();
  WeightManifest manifest;
  WeightBytes staged = trainer->Stage(*first_.bytes, kPiece, manifest).value();
  const WeightBytes taken = Take(staged, first_, Offer(staged, first_).value());
  ASSERT_TRUE(taken->device_copy()->owner_lives());
  // Its descriptor is closed, as when the trainer ends.
  staged.reset();
  trainer.reset();
  EXPECT_FALSE(taken->device_copy()->owner_lives());
}

}  // namespace
}  // namespace freshet
