#include "collective/nccl_communicator.h"

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "collective/nccl_backend.h"
#include "tests/collective/fake_nccl.h"
#include "tests/contract/communicator_contract.h"

namespace freshet {
namespace {

constexpr absl::Duration kLong = absl::Minutes(2);
constexpr absl::Duration kShort = absl::Milliseconds(300);

std::shared_ptr<const NcclLibrary> Fake() {
  auto library = NcclLibrary::Load({FRESHET_FAKE_NCCL, FRESHET_FAKE_NCCL});
  EXPECT_TRUE(library.ok()) << library.status();
  return *library;
}

class NcclMaker {
 public:
  absl::StatusOr<std::unique_ptr<Communicator>> Make(int rank, int size, int group) {
    NcclOptions options;
    options.rank = rank;
    options.size = size;
    options.device = rank;
    {
      const MutexLock lock(mu_);
      const auto [found, added] = ids_.try_emplace(group);
      if (added) found->second = *MakeNcclUniqueId(*library_);
      options.id = found->second;
    }
    return ConnectNccl(library_, options);
  }

 private:
  const std::shared_ptr<const NcclLibrary> library_ = Fake();
  Mutex mu_;
  std::map<int, NcclUniqueId> ids_ ABSL_GUARDED_BY(mu_);
};

INSTANTIATE_TYPED_TEST_SUITE_P(Nccl, CommunicatorContract, NcclMaker);

// The data of the tests counts as being on the GPU.
class GpuNcclMaker : public NcclMaker {
 public:
  GpuNcclMaker() { FakeNcclMemoryIsOnGpu(true); }
  ~GpuNcclMaker() { FakeNcclMemoryIsOnGpu(false); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(NcclOnGpu, CommunicatorContract, GpuNcclMaker);

class NcclFaultTest : public testing::Test {
 protected:
  using Group = std::vector<absl::StatusOr<std::unique_ptr<Communicator>>>;

  ~NcclFaultTest() override { FakeNcclFault(FakeFault::kNone, 0, 0); }
  void TearDown() override { EXPECT_EQ(FakeNcclLiveObjects(), 0) << "something is not freed"; }

  Group Connect(absl::Duration timeout = kLong) {
    const NcclUniqueId id = *MakeNcclUniqueId(*library_);
    Group group(2);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        NcclOptions options;
        options.rank = rank;
        options.size = 2;
        options.id = id;
        options.device = rank;
        options.connect_timeout = timeout;
        group[static_cast<size_t>(rank)] = ConnectNccl(library_, options);
      });
    }
    return group;
  }
  // The statuses of two operations that every rank calls. A rank whose first one fails is gone.
  std::vector<absl::Status> TwoOperations(Group group, absl::Duration timeout) {
    std::vector<absl::Status> statuses(2);
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        std::unique_ptr<Communicator> communicator = *std::move(group[rank]);
        for (int i = 0; i < 2 && statuses[rank].ok(); ++i) {
          std::vector<float> data(100, 1.0F);
          statuses[rank] = communicator->AllReduce(data, timeout);
          if (statuses[rank].ok()) {
            EXPECT_EQ(data, std::vector<float>(100, 2.0F));
          }
        }
        EXPECT_EQ(communicator->error(), statuses[rank]);
        EXPECT_EQ(communicator->Barrier(timeout), statuses[rank]);
      });
    }
    threads.clear();
    return statuses;
  }

  const std::shared_ptr<const NcclLibrary> library_ = Fake();
};

TEST_F(NcclFaultTest, AnOperationThatHangsIsAbortedAtTheDeadline) {
  for (const int operation : {0, 1}) {
    FakeNcclFault(FakeFault::kHang, 1, operation);
    const auto statuses = TwoOperations(Connect(), kShort);
    EXPECT_TRUE(absl::IsDeadlineExceeded(statuses[1])) << statuses[1];
    // The other one's deadline passes, or it sees that its peer is gone.
    EXPECT_FALSE(statuses[0].ok());
  }
}

TEST_F(NcclFaultTest, AnOperationThatFailsLaterIsAnErrorOfBoth) {
  FakeNcclFault(FakeFault::kFail, 1, 1);
  const auto statuses = TwoOperations(Connect(), kLong);
  EXPECT_TRUE(absl::IsUnavailable(statuses[0])) << statuses[0];
  EXPECT_TRUE(absl::IsUnavailable(statuses[1])) << statuses[1];
  EXPECT_NE(statuses[0].message().find("remote process exited"), std::string::npos);
  EXPECT_NE(statuses[1].message().find("fake detail"), std::string::npos);
}

TEST_F(NcclFaultTest, AbortReturnsWhileNcclIsStillAborting) {
  Group group = Connect();
  FakeNcclHangAborts(true);
  (*group[0])->Abort("rank 1 is gone");
  EXPECT_EQ((*group[0])->error(), absl::AbortedError("rank 1 is gone"));
  FakeNcclHangAborts(false);
}

TEST_F(NcclFaultTest, ACallThatFailsIsAnErrorOfBoth) {
  FakeNcclFault(FakeFault::kRefuse, 0, 0);
  const auto statuses = TwoOperations(Connect(), kLong);
  EXPECT_TRUE(absl::IsUnavailable(statuses[0])) << statuses[0];
  EXPECT_TRUE(absl::IsUnavailable(statuses[1])) << statuses[1];
}

TEST_F(NcclFaultTest, ACallThatIsAcceptedLateWorks) {
  FakeNcclFault(FakeFault::kLate, 0, 0);
  const auto statuses = TwoOperations(Connect(), kLong);
  EXPECT_EQ(statuses[0], absl::OkStatus());
  EXPECT_EQ(statuses[1], absl::OkStatus());
}

TEST_F(NcclFaultTest, ARankThatDoesNotConnectIsADeadlineOfBoth) {
  FakeNcclFault(FakeFault::kHangToConnect, 1, 0);
  for (const auto& rank : Connect(kShort)) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(rank.status())) << rank.status();
  }
}

TEST_F(NcclFaultTest, ARankWhoseConnectionIsRefusedFails) {
  FakeNcclFault(FakeFault::kRefuseToConnect, 1, 0);
  const auto group = Connect(kShort);
  EXPECT_TRUE(absl::IsUnavailable(group[1].status())) << group[1].status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(group[0].status())) << group[0].status();
}

// Broadcasts to rank 1, which takes `data` in one operation.
class NcclOperationTest : public NcclFaultTest {
 protected:
  std::vector<absl::Status> Broadcast(std::vector<std::byte> data, bool undivided) {
    const auto open = [](int device) {
      return *OpenNcclBackend({FRESHET_FAKE_NCCL, FRESHET_FAKE_NCCL}, device);
    };
    const std::string rendezvous = *open(0)->NewRendezvous();
    std::vector<absl::Status> statuses(2);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        GroupPlace place;
        place.rank = rank;
        place.size = 2;
        place.rendezvous = rendezvous;
        place.undivided = rank == 1 || undivided;
        std::vector<std::byte> received = rank == 0 ? data : std::vector<std::byte>(data.size());
        const auto communicator = *open(rank)->Connect(place);
        absl::Status& status = statuses[static_cast<size_t>(rank)];
        status = communicator->Broadcast(received, 0, kLong);
        EXPECT_EQ(received == data, rank == 0 || status.ok());
      });
    }
    threads.clear();
    return statuses;
  }
};

TEST_F(NcclOperationTest, DataIsDividedUnlessTheGroupWantsOneOperation) {
  std::vector<std::byte> large((size_t{32} << 20) + 1, std::byte{7});
  large.back() = std::byte{9};
  for (const absl::Status& status : Broadcast(large, /*undivided=*/true)) {
    EXPECT_EQ(status, absl::OkStatus());
  }
  for (const absl::Status& status : Broadcast(large, /*undivided=*/false)) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
}

TEST_F(NcclFaultTest, TooLittleMemoryNamesTheBytes) {
  Group group = Connect();
  FakeNcclFault(FakeFault::kNoMemory, 0, 0);
  std::vector<float> data(100);
  const absl::Status full = (*group[0])->AllReduce(data, kLong);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_NE(full.message().find("400 bytes"), std::string::npos) << full;
  EXPECT_EQ(library_->last_cuda_error(), kCudaSuccess) << "LibTorch would take it for its own";
}

TEST(NcclLibrary, AMissingLibraryIsNamed) {
  const absl::Status missing = NcclLibrary::Load({"libno_such.so", FRESHET_FAKE_NCCL}).status();
  EXPECT_TRUE(absl::IsUnavailable(missing)) << missing;
  EXPECT_NE(missing.message().find("libno_such.so"), std::string::npos) << missing;
  const absl::Status other = NcclLibrary::Load({"libc.so.6", FRESHET_FAKE_NCCL}).status();
  EXPECT_NE(other.message().find("ncclGetVersion"), std::string::npos) << other;
}

TEST(ConnectNccl, RefusesARankOutsideOfTheGroup) {
  NcclOptions options;
  options.rank = 2;
  options.size = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectNccl(Fake(), options).status()));
}

}  // namespace
}  // namespace freshet
