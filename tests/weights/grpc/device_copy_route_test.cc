#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/word_digest.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/weights/cuda/fake_gpu.h"
#include "tests/weights/grpc/weight_plane_fixture.h"
#include "weights/cuda/device_copies.h"
#include "weights/cuda/device_copy_opener.h"
#include "weights/grpc/cluster_transport.h"
#include "weights/shm/memory_file.h"

namespace freshet {
namespace {

// A trainer on GPU a with weight_sync.transport cuda_ipc, and engines.
class DeviceCopyRouteTest : public testing::Test {
 protected:
  static std::shared_ptr<DeviceMemory> On(const std::shared_ptr<FakeGpu>& gpu) {
    return std::make_shared<FakeDeviceMemory>(gpu);
  }
  void AddEngine(absl::StatusOr<std::shared_ptr<DeviceMemory>> memory,
                 const std::string& host = kHost) {
    WeightEndpoint endpoint{std::make_shared<WeightSubscriber>(), {}, {}};
    endpoint.device_copies = std::make_shared<DeviceCopyOpener>(std::move(memory));
    engines_.push_back(std::make_unique<TestMember>(StrCat("engine-", engines_.size()),
                                                    std::move(endpoint), host));
  }
  // Publishes version `number`, as a trainer does; returns how many engines have it.
  int64_t Publish(int64_t number) {
    if (transport_ == nullptr) {
      ClusterTransportOptions options{.job = kJob, .route = ClusterRoute::kCudaIpc, .host = kHost};
      if (copies_ != nullptr) copies_->Start(2);
      options.device_copies = copies_;
      transport_ = std::make_unique<ClusterTransport>(std::move(options), TestChannel,
                                                      SystemClock::Get(), &counters_);
      std::vector<WeightMember> members;
      for (const auto& engine : engines_) members.push_back(engine->member());
      transport_->SetMembers(1, std::move(members));
    }
    version_ = MakeVersion({0, number}, 1, 10'007, 64);
    version_.bytes = stager_.Stage(*version_.bytes, 64, version_.manifest).value();
    return transport_->Publish(version_.Committed());
  }
  // What engine `i` has to load; `on_gpu`: from the copy on its GPU.
  void ExpectVersion(size_t i, bool on_gpu) {
    const std::optional<WeightSnapshot> taken = engines_[i]->subscriber().Take();
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(*taken->bytes, *version_.bytes);
    const std::optional<DeviceCopy>& copy = taken->bytes->device_copy();
    ASSERT_EQ(copy.has_value(), on_gpu);
    if (!on_gpu) return;
    EXPECT_TRUE(std::equal(version_.bytes->begin(), version_.bytes->end(),
                           static_cast<const std::byte*>(copy->data)));
    EXPECT_EQ(copy->digest, WordDigest(*version_.bytes));
  }
  int64_t MembersBy(const std::string& route) { return counters_.totals().members[route].members; }

  const std::shared_ptr<FakeGpu> gpu_ = std::make_shared<FakeGpu>('a');
  std::shared_ptr<DeviceCopies> copies_ = std::make_shared<DeviceCopies>(On(gpu_));
  std::vector<std::unique_ptr<TestMember>> engines_;
  MemoryFileStager stager_;
  WeightSyncCounters counters_;
  VersionForTest version_;
  std::unique_ptr<ClusterTransport> transport_;
};

TEST_F(DeviceCopyRouteTest, EnginesOnTheTrainersGpuReadItsCopy) {
  AddEngine(On(gpu_));
  AddEngine(On(std::make_shared<FakeGpu>('b')));
  AddEngine(absl::FailedPreconditionError("this process computes on the CPU"));
  AddEngine(On(gpu_), "another-host");
  for (int64_t number = 1; number <= 5; ++number) {
    ASSERT_EQ(Publish(number), 4);
    ExpectVersion(0, true);
    for (size_t i = 1; i < 4; ++i) ExpectVersion(i, false);
  }
  EXPECT_EQ(MembersBy("cuda_ipc"), 5);
  EXPECT_EQ(MembersBy("shm"), 10);
  EXPECT_EQ(MembersBy("grpc_relay"), 5);
  EXPECT_LE(gpu_->allocations(), 2);
  EXPECT_EQ(gpu_->writes(), 5);
  transport_.reset();
  engines_.clear();
  copies_->Trim();
  EXPECT_EQ(gpu_->allocations(), 0U);
  EXPECT_EQ(gpu_->freed_while_open(), 0);
}

TEST_F(DeviceCopyRouteTest, EveryFailureLeavesTheMemoryFile) {
  AddEngine(On(gpu_));
  int64_t number = 0;
  for (const FakeGpu::Fault fault :
       {FakeGpu::Fault::kNoExport, FakeGpu::Fault::kNoWrite, FakeGpu::Fault::kNoOpen}) {
    gpu_->Fail(fault);
    ASSERT_EQ(Publish(++number), 1);
    ExpectVersion(0, false);
  }
  EXPECT_EQ(MembersBy("shm"), 3);
  gpu_->Fail(FakeGpu::Fault::kNone);
  ASSERT_EQ(Publish(++number), 1);
  ExpectVersion(0, true);
  EXPECT_EQ(MembersBy("cuda_ipc"), 1);
}

TEST_F(DeviceCopyRouteTest, ATrainerWithoutAGpuSharesTheMemoryFile) {
  AddEngine(On(gpu_));
  copies_ = nullptr;
  ASSERT_EQ(Publish(1), 1);
  ExpectVersion(0, false);
  EXPECT_EQ(MembersBy("shm"), 1);
}

TEST_F(DeviceCopyRouteTest, AnEngineThatHoldsVersionsLeavesTheMemoryFile) {
  AddEngine(On(gpu_));
  std::vector<WeightBytes> held;  // as evaluations do
  for (int64_t number = 1; number <= 2; ++number) {
    ASSERT_EQ(Publish(number), 1);
    held.push_back(engines_[0]->subscriber().Take()->bytes);
    EXPECT_TRUE(held.back()->device_copy().has_value());
  }
  ASSERT_EQ(Publish(3), 1);
  ExpectVersion(0, false);
  held.clear();
  ASSERT_EQ(Publish(4), 1);
  ExpectVersion(0, true);
  EXPECT_EQ(gpu_->freed_while_open(), 0);
}

}  // namespace
}  // namespace freshet
