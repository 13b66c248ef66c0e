#ifndef FRESHET_TESTS_TRAINER_RANKS_THREAD_RANKS_H_
#define FRESHET_TESTS_TRAINER_RANKS_THREAD_RANKS_H_

#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/message_socket.h"
#include "base/str_cat.h"
#include "collective/gloo_backend.h"
#include "model/torch_threads.h"
#include "tests/testing/fake_clock.h"
#include "trainer/ranks/rank_follower.h"
#include "trainer/ranks/rank_group.h"

namespace freshet {

// Passes operations on until the given one, at which its rank dies: the connections close. The
// result of reduce-scatter `overflows_at` becomes infinite.
class DyingCommunicator final : public Communicator {
 public:
  DyingCommunicator(std::unique_ptr<Communicator> inner, int dies_at, int overflows_at)
      : inner_(std::move(inner)),
        rank_(inner_->rank()),
        size_(inner_->size()),
        left_(dies_at),
        finite_(overflows_at) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::Status Broadcast(std::span<std::byte> data, int root, absl::Duration timeout) override {
    return Alive() ? inner_->Broadcast(data, root, timeout) : Dead();
  }
  absl::Status AllReduce(std::span<float> data, absl::Duration timeout) override {
    return Alive() ? inner_->AllReduce(data, timeout) : Dead();
  }
  absl::Status ReduceScatter(std::span<const float> data, std::span<float> own,
                             absl::Duration timeout) override {
    if (!Alive()) return Dead();
    const absl::Status status = inner_->ReduceScatter(data, own, timeout);
    if (finite_-- == 0) own[0] = std::numeric_limits<float>::infinity();
    return status;
  }
  absl::Status AllGather(std::span<const std::byte> own, std::span<std::byte> all,
                         absl::Duration timeout) override {
    return Alive() ? inner_->AllGather(own, all, timeout) : Dead();
  }
  absl::Status Gather(std::span<const std::byte> own, std::span<std::byte> all,
                      absl::Duration timeout) override {
    return Alive() ? inner_->Gather(own, all, timeout) : Dead();
  }
  absl::Status Barrier(absl::Duration timeout) override {
    return Alive() ? inner_->Barrier(timeout) : Dead();
  }
  void Abort(const std::string& reason) override {
    if (inner_ != nullptr) inner_->Abort(reason);
  }
  absl::Status error() override { return inner_ == nullptr ? Dead() : inner_->error(); }

 private:
  static absl::Status Dead() { return absl::UnavailableError("this rank is dead"); }
  bool Alive() {
    if (inner_ != nullptr && left_-- == 0) inner_ = nullptr;
    return inner_ != nullptr;
  }

  std::unique_ptr<Communicator> inner_;
  const int rank_;
  const int size_;
  int left_;
  int finite_;
};

constexpr absl::Duration kRankPatience = absl::Minutes(2);

// Connects ranks that die.
class DyingBackend final : public CommunicatorBackend {
 public:
  DyingBackend(std::shared_ptr<CommunicatorBackend> inner, int dies_at, int overflows_at)
      : inner_(std::move(inner)), dies_at_(dies_at), overflows_at_(overflows_at) {}

  absl::StatusOr<std::string> NewRendezvous() override { return inner_->NewRendezvous(); }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace& place) override {
    auto connected = inner_->Connect(place);
    if (!connected.ok()) return connected;
    return std::make_unique<DyingCommunicator>(*std::move(connected), dies_at_, overflows_at_);
  }

 private:
  const std::shared_ptr<CommunicatorBackend> inner_;
  const int dies_at_;
  const int overflows_at_;
};

// Ranks that are threads of the test.
class ThreadRanks final : public RankStarter {
 public:
  using BackendOfRank = std::function<std::shared_ptr<CommunicatorBackend>(int rank)>;

  // The second group, for snapshots, uses Gloo.
  explicit ThreadRanks(
      PolicyLearnerOptions options, BackendOfRank backend = [](int) { return MakeGlooBackend(); })
      : options_(std::move(options)), backend_(std::move(backend)) {}

  // In the next `groups` groups, rank 1 dies at its operation `operation`.
  void Kill(int operation, int groups = 1) {
    dies_at_ = operation;
    dying_groups_ = groups;
  }
  // Ends the current group's second communicator.
  void AbortSnapshots() { group_->second->Abort("a test"); }
  // Waits until rank 1 of the current group has done `step` and waits for work.
  void AwaitIdle(int64_t step) {
    trainer::v1::RankReport report;
    while (report.state() != trainer::v1::RankReport::STATE_IDLE || report.step() != step) {
      ASSERT_TRUE(group_->sockets[0]->Receive(report, kRankPatience).ok());
    }
  }
  // The ranks read their rows with it, unless it is null.
  StoreOpener open_store;
  // Reduce-scatter of rank 1 whose result is infinite; -1: none.
  int overflows_at = -1;
  // Runs when a rank has got its state; `learner` is the rank's.
  std::function<void(int rank, PolicyLearner& learner)> on_made = [](int, PolicyLearner&) {};
  int started() const { return started_; }
  int in_group() const { return in_group_; }
  // How many further ranks there are; those in a group are not ready.
  int available = 100;
  int Ready() const override { return available - in_group_; }
  bool HasOthers(const std::vector<trainer::v1::RankReport>&) const override { return Ready() > 0; }

  absl::StatusOr<std::unique_ptr<RankGroup>> Start(int ranks) override {
    ++started_;
    if (available == 0) return absl::UnavailableError("no rank has joined");
    ranks = std::min(ranks, available + 1);
    in_group_ = ranks - 1;
    const auto own = backend_(0);
    const auto gloo = MakeGlooBackend();
    const std::string rendezvous = *own->NewRendezvous();
    const std::string second_rendezvous = HasBackground() ? *gloo->NewRendezvous() : "";
    const int dies_at = dying_groups_-- > 0 ? dies_at_ : -1;
    auto group = std::make_unique<Group>(in_group_, open_store != nullptr);
    group_ = group.get();
    for (int rank = 1; rank < ranks; ++rank) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return absl::UnavailableError("no socket pair");
      }
      group->sockets.push_back(std::make_unique<MessageSocket>(UniqueFd(ends[0])));
      group->threads.emplace_back([this, rank, dies_at, fd = ends[1]] {
        MessageSocket socket{UniqueFd(fd)};
        RankParts parts;
        parts.make_learner = [&](const trainer::v1::RankStart&) { return Make(rank); };
        parts.open_store = open_store;
        parts.open_backend = [&](const std::string& name) {
          return std::make_shared<DyingBackend>(name == "gloo" ? MakeGlooBackend() : backend_(rank),
                                                rank == 1 ? dies_at : -1,
                                                rank == 1 ? overflows_at : -1);
        };
        (void)RunRank(socket, parts);
      });
      trainer::v1::RankCommand command;
      command.mutable_start()->set_rank(rank);
      command.mutable_start()->set_number(rank + 5);
      command.mutable_start()->set_ranks(ranks);
      command.mutable_start()->set_backend("tested");
      if (open_store != nullptr) command.mutable_start()->set_job("job");
      command.mutable_start()->set_background_backend("gloo");
      command.mutable_start()->set_rendezvous(rendezvous);
      command.mutable_start()->set_background_rendezvous(second_rendezvous);
      const absl::Status sent = group->sockets.back()->Send(command, kRankPatience);
      if (!sent.ok()) return sent;
    }
    auto connected = own->Connect({0, ranks, rendezvous, kRankPatience});
    if (!connected.ok()) return connected.status();
    group->connected = *std::move(connected);
    if (HasBackground()) {
      auto second = gloo->Connect({0, ranks, second_rendezvous, kRankPatience});
      if (!second.ok()) return second.status();
      group->second = *std::move(second);
    }
    return group;
  }

 private:
  struct Group final : public RankGroup {
    Group(int& ranks, bool by_key) : in_group(ranks), reads(by_key) {}
    ~Group() override {
      in_group = 0;
      connected = nullptr;
      second = nullptr;
      sockets.clear();
    }
    Communicator& communicator() override { return *connected; }
    Communicator* background() override { return second.get(); }
    bool reads_samples() const override { return reads; }
    absl::Status Send(int rank, const trainer::v1::RankWork& work, MakeWork) override {
      trainer::v1::RankCommand command;
      *command.mutable_work() = work;
      return sockets[static_cast<size_t>(rank) - 1]->Send(command, kRankPatience);
    }
    std::shared_ptr<WeightShards> Shards(int64_t, std::vector<std::vector<ByteRange>>) override {
      return nullptr;
    }
    std::string LossReason(absl::Duration) override { return ""; }
    std::vector<trainer::v1::RankReport> Reports() const override { return {}; }

    int& in_group;
    const bool reads;
    std::vector<std::jthread> threads;
    std::vector<std::unique_ptr<MessageSocket>> sockets;
    std::unique_ptr<Communicator> connected, second;
  };

  bool HasBackground() const { return options_.sharding != Sharding::kNone; }
  absl::StatusOr<std::unique_ptr<PolicyLearner>> Make(int rank) {
    UseOneTorchThread();
    auto learner = PolicyLearner::Create(options_, clock_);
    if (learner.ok()) on_made(rank, **learner);
    return learner;
  }

  Group* group_ = nullptr;  // the last one
  FakeClock clock_;
  PolicyLearnerOptions options_;
  const BackendOfRank backend_;
  int started_ = 0;
  int in_group_ = 0;
  int dies_at_ = -1;
  int dying_groups_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TRAINER_RANKS_THREAD_RANKS_H_
