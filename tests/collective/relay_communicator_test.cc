#include "collective/relay_communicator.h"

#include <deque>
#include <map>
#include <utility>

#include "absl/time/clock.h"
#include "tests/contract/communicator_contract.h"

namespace freshet {
namespace {

// The connections of a group whose ranks are threads.
class Wires {
 public:
  absl::Status Send(int from, int to, std::string bytes) {
    const MutexLock lock(mu_);
    if (closed_[from] || closed_[to]) return absl::UnavailableError("closed");
    waiting_[{from, to}].push_back(std::move(bytes));
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Receive(int from, int to, absl::Duration timeout) {
    const absl::Time deadline = absl::Now() + timeout;
    const MutexLock lock(mu_);
    std::deque<std::string>& bytes = waiting_[{from, to}];
    while (bytes.empty()) {
      if (closed_[from] || closed_[to]) return absl::UnavailableError("closed");
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("nothing came");
      changed_.WaitFor(mu_, left);
    }
    std::string first = std::move(bytes.front());
    bytes.pop_front();
    return first;
  }
  void Close(int rank) {
    const MutexLock lock(mu_);
    closed_[rank] = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::map<std::pair<int, int>, std::deque<std::string>> waiting_ ABSL_GUARDED_BY(mu_);
  std::map<int, bool> closed_ ABSL_GUARDED_BY(mu_);
};

class WiresOfRank final : public RelayLinks {
 public:
  WiresOfRank(int rank, std::shared_ptr<Wires> wires) : rank_(rank), wires_(std::move(wires)) {}
  absl::Status Send(int rank, std::string bytes, absl::Duration) override {
    return wires_->Send(rank_, rank, std::move(bytes));
  }
  absl::StatusOr<std::string> Receive(int rank, absl::Duration timeout) override {
    return wires_->Receive(rank, rank_, timeout);
  }
  void Close() override { wires_->Close(rank_); }

 private:
  const int rank_;
  const std::shared_ptr<Wires> wires_;
};

class RelayMaker {
 public:
  absl::StatusOr<std::unique_ptr<Communicator>> Make(int rank, int size, int group) {
    return MakeRelayCommunicator(rank, size, std::make_shared<WiresOfRank>(rank, Of(group)));
  }

 private:
  std::shared_ptr<Wires> Of(int group) {
    const MutexLock lock(mu_);
    std::shared_ptr<Wires>& wires = groups_[group];
    if (wires == nullptr) wires = std::make_shared<Wires>();
    return wires;
  }

  Mutex mu_;
  std::map<int, std::shared_ptr<Wires>> groups_ ABSL_GUARDED_BY(mu_);
};

INSTANTIATE_TYPED_TEST_SUITE_P(Relay, CommunicatorContract, RelayMaker);

TEST(RelayCommunicator, ARankThatSendsAnotherSizeEndsTheGroup) {
  RelayMaker maker;
  auto leader = *maker.Make(0, 2, 0);
  auto other = *maker.Make(1, 2, 0);
  std::jthread thread([&] {
    std::vector<float> two(2);
    EXPECT_FALSE(other->AllReduce(two, absl::Minutes(1)).ok());
  });
  std::vector<float> three(3);
  EXPECT_EQ(leader->AllReduce(three, absl::Minutes(1)).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace freshet
