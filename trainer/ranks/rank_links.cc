#include "trainer/ranks/rank_links.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/message_socket.h"
#include "base/mutex.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "collective/relay_communicator.h"
#include "trainer/ranks/rank_states.h"
#include "trainer/ranks/relay_inbox.h"
#include "trainer/ranks/shard_commands.h"
#include "weights/transfer_time.h"

namespace freshet {
namespace {

using trainer::v1::RankCommand;
using trainer::v1::RankReport;
using trainer::v1::RankStart;
using trainer::v1::RankWork;

// An upper bound: a rank that hangs is killed after `silence`.
constexpr absl::Duration kSendTimeout = absl::Minutes(10);
constexpr size_t kMaxReportBytes = size_t{2} << 20;  // a chunk of a collective operation

// A link and the thread that listens to it.
class LinkedRank {
 public:
  explicit LinkedRank(RankLink link) : link_(std::move(link)), socket_(std::move(link_.socket)) {}
  ~LinkedRank() { Stop(); }

  // Closes the link and waits for the thread.
  void Stop() {
    ending_.Notify();
    shards_.Fail(absl::CancelledError("the group has ended"));
    Fail(absl::UnavailableError("the group has ended"));
    Kill();
    if (listener_.joinable()) listener_.join();
    shards_.Stop();
    (void)link_.peer->Ending();  // a killed process has given its memory back
  }

  absl::Status Send(const RankCommand& command, absl::Duration timeout) {
    const MutexLock lock(sending_);
    return socket_.Send(command, timeout);
  }
  // See RankGroup::Send.
  absl::Status SendWork(const RankWork& work, RankGroup::MakeWork with_tokens) {
    {
      const MutexLock lock(working_);
      with_tokens_ = std::move(with_tokens);
    }
    RankCommand command;
    *command.mutable_work() = work;
    return Send(command, kSendTimeout);
  }
  ShardCommands& shards() { return shards_; }
  RelayInbox& inbox(RelayGroup group) { return inboxes_[static_cast<size_t>(group)]; }
  int number() const { return link_.number; }

  void Listen(size_t index, const RankLinkOptions& options, RankStates& states) {
    listener_ = std::thread([this, index, start_timeout = options.start_timeout,
                             silence = options.silence, on_loss = options.on_loss, &states] {
      const std::string reason = Hear(index, start_timeout, silence, states);
      if (reason.empty() || ending_.HasBeenNotified()) return;
      const std::string text = StrCat("rank ", link_.number, " ", reason);
      Fail(absl::UnavailableError(text));
      states.Lose(index, text);
      if (on_loss != nullptr) on_loss(link_.number);
    });
  }

 private:
  // Returns how the rank was lost; "" if it has left a group that had failed.
  std::string Hear(size_t index, absl::Duration start_timeout, absl::Duration silence,
                   RankStates& states) {
    RankReport report;
    absl::Duration patience = start_timeout;
    while (true) {
      const absl::Status received = socket_.Receive(report, patience, kMaxReportBytes);
      if (!received.ok()) Kill();
      if (absl::IsUnavailable(received)) return link_.peer->Ending();
      if (absl::IsDeadlineExceeded(received)) {
        return StrCat("has said nothing for ", absl::FormatDuration(patience));
      }
      if (!received.ok()) return Message(received);
      if (report.state() == RankReport::STATE_FAILED) {
        return StrCat("failed: ", ValidUtf8(report.error(), kMaxTextBytes));
      }
      if (report.state() == RankReport::STATE_LEFT) {
        Fail(StatusOf(absl::StatusCode::kUnavailable, "rank ", link_.number,
                      " has left: ", ValidUtf8(report.error(), kMaxTextBytes)));
        return "";
      }
      patience = silence;
      if (report.has_collective()) {
        inbox(RelayGroup::kTraining).Put(std::move(*report.mutable_collective()));
      } else if (report.has_background()) {
        inbox(RelayGroup::kBackground).Put(std::move(*report.mutable_background()));
      } else if (report.has_shard_sent()) {
        shards_.End(report.shard_sent());
      } else if (report.has_needs_tokens()) {
        const absl::Status sent = SendTokens(report.needs_tokens(), silence);
        if (!sent.ok()) {
          Kill();
          return StrCat("takes no tokens: ", Message(sent));
        }
      } else {
        states.Report(index, report);
      }
    }
  }

  // No report is heard meanwhile, so a rank that hangs must not hold it up for long.
  absl::Status SendTokens(const std::string& reason, absl::Duration silence) {
    RankGroup::MakeWork make;
    {
      const MutexLock lock(working_);
      make = std::exchange(with_tokens_, nullptr);
    }
    std::optional<RankWork> work;
    if (make != nullptr) work = make();
    if (!work.has_value()) return DataLoss("it has no work without tokens");
    RankCommand command;
    *command.mutable_work() = *std::move(work);
    if (!std::exchange(needs_tokens_, true)) {
      FRESHET_LOG(Warning) << "event=tokens_sent rank=" << link_.number
                           << " step=" << command.work().step()
                           << " reason=" << LogQuoted(ValidUtf8(reason, kMaxTextBytes));
    }
    return Send(command, silence + TransferTime(static_cast<int64_t>(command.ByteSizeLong())));
  }

  void Kill() {
    socket_.Shutdown();
    link_.peer->Kill();
  }

  void Fail(const absl::Status& error) {
    for (RelayInbox& inbox : inboxes_) inbox.Fail(error);
    shards_.Fail(error);
  }

  RankLink link_;
  MessageSocket socket_;
  Mutex sending_;  // two groups send
  Mutex working_;
  RankGroup::MakeWork with_tokens_ ABSL_GUARDED_BY(working_);  // of the work in hand
  bool needs_tokens_ = false;                                  // once in the group; the listener's
  std::array<RelayInbox, kNumRelayGroups> inboxes_;
  ShardCommands shards_{[this](const RankCommand& command) { return Send(command, kSendTimeout); }};
  Notification ending_;
  std::thread listener_;
};

using LinkedRanks = std::vector<std::shared_ptr<LinkedRank>>;

// What ranks behind links have staged. Their group may end before it.
class LinkedShards final : public WeightShards {
 public:
  LinkedShards(LinkedRanks ranks, int64_t number, std::vector<std::vector<ByteRange>> ranges)
      : ranks_(std::move(ranks)), number_(number), ranges_(std::move(ranges)) {}

  const std::vector<std::vector<ByteRange>>& ranges() const override { return ranges_; }
  const void* senders() const override { return ranks_.front().get(); }
  void Send(size_t sender, const std::string& backend, const SendOrder& order,
            absl::Duration timeout, std::function<void(const absl::Status&)> done) override {
    trainer::v1::SendShard shard;
    shard.set_shard(number_);
    shard.set_backend(backend);
    shard.set_group(order.group);
    shard.set_size(order.size);
    shard.set_rendezvous(order.rendezvous);
    shard.set_piece_bytes(order.piece_bytes);
    *shard.mutable_silence_timeout() = ToDuration(order.silence_timeout);
    *shard.mutable_timeout() = ToDuration(timeout);
    LinkedRank& rank = *ranks_[sender - 1];
    rank.shards().Send(std::move(shard), [done = std::move(done),
                                          number = rank.number()](const absl::Status& status) {
      done(status.ok() ? status
                       : StatusOf(status.code(), "trainer rank ", number, ": ", Message(status)));
    });
  }
  void Abort(size_t sender, const std::string& group, const std::string& reason) override {
    trainer::v1::AbortShard order;
    order.set_group(group);
    order.set_reason(ValidUtf8(reason, kMaxTextBytes));
    ranks_[sender - 1]->shards().Abort(std::move(order));
  }

 private:
  const LinkedRanks ranks_;
  const int64_t number_;
  const std::vector<std::vector<ByteRange>> ranges_;
};

// Rank 0's links of a group. `ranks` must outlive it.
class LeaderLinks final : public RelayLinks {
 public:
  LeaderLinks(const LinkedRanks& ranks, RelayGroup group) : ranks_(ranks), group_(group) {}

  absl::Status Send(int rank, std::string bytes, absl::Duration timeout) override {
    RankCommand command;
    if (group_ == RelayGroup::kTraining) {
      command.set_collective(std::move(bytes));
    } else {
      command.set_background(std::move(bytes));
    }
    return Of(rank).Send(command, timeout);
  }
  absl::StatusOr<std::string> Receive(int rank, absl::Duration timeout) override {
    return Of(rank).inbox(group_).Take(timeout);
  }
  // The group's end closes the sockets, which still carry the ranks' last reports.
  void Close() override {
    for (const std::shared_ptr<LinkedRank>& rank : ranks_) {
      rank->inbox(group_).Fail(absl::UnavailableError("the group has ended"));
    }
  }

 private:
  LinkedRank& Of(int rank) { return *ranks_[static_cast<size_t>(rank) - 1]; }

  const LinkedRanks& ranks_;
  const RelayGroup group_;
};

class LinkedRankGroup final : public RankGroup {
 public:
  explicit LinkedRankGroup(std::vector<RankLink> links) : states_(links) {
    for (RankLink& link : links) {
      ranks_.push_back(std::make_shared<LinkedRank>(std::move(link)));
    }
  }

  absl::Status Connect(const RankLinkOptions& options) {
    const auto size = static_cast<int>(ranks_.size()) + 1;
    RankStart start = options.start;
    start.set_ranks(size);
    if (options.backend != nullptr) {
      FRESHET_ASSIGN_OR_RETURN(*start.mutable_rendezvous(), options.backend->NewRendezvous());
    }
    if (options.background_backend != nullptr && options.divides_state) {
      FRESHET_ASSIGN_OR_RETURN(*start.mutable_background_rendezvous(),
                               options.background_backend->NewRendezvous());
    }
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i]->Listen(i, options, states_);
      RankCommand command;
      *command.mutable_start() = start;
      command.mutable_start()->set_rank(static_cast<int>(i) + 1);
      command.mutable_start()->set_number(ranks_[i]->number());
      FRESHET_RETURN_IF_ERROR(ranks_[i]->Send(command, kSendTimeout));
    }
    FRESHET_RETURN_IF_ERROR(
        states_.AwaitJoining(options.start_timeout + TransferTime(options.state_bytes)));
    here_ = std::max(start.here(), 1);
    reads_samples_ = !start.job().empty();
    const auto connect =
        [&](RelayGroup group, CommunicatorBackend* backend,
            const std::string& rendezvous) -> absl::StatusOr<std::unique_ptr<Communicator>> {
      if (backend == nullptr) {
        return MakeRelayCommunicator(/*rank=*/0, size,
                                     std::make_shared<LeaderLinks>(ranks_, group));
      }
      if (rendezvous.empty()) return nullptr;
      auto connected =
          backend->Connect({/*rank=*/0, size, rendezvous, kConnectTimeout, states_.connecting()});
      if (!absl::IsAborted(connected.status())) return connected;
      return absl::UnavailableError(states_.AwaitReason(absl::ZeroDuration()));
    };
    FRESHET_ASSIGN_OR_RETURN(
        communicator_, connect(RelayGroup::kTraining, options.backend.get(), start.rendezvous()));
    FRESHET_ASSIGN_OR_RETURN(background_,
                             connect(RelayGroup::kBackground, options.background_backend.get(),
                                     start.background_rendezvous()));
    if (background_ != nullptr) states_.Attach(*background_);
    states_.Attach(*communicator_);
    return absl::OkStatus();
  }

  ~LinkedRankGroup() override {
    states_.Detach();
    communicator_ = nullptr;
    background_ = nullptr;
    for (const std::shared_ptr<LinkedRank>& rank : ranks_) rank->Stop();
  }

  Communicator& communicator() override { return *communicator_; }
  Communicator* background() override { return background_.get(); }
  int here() const override { return here_; }
  bool reads_samples() const override { return reads_samples_; }
  absl::Status Send(int rank, const RankWork& work, MakeWork with_tokens) override {
    LinkedRank& to = *ranks_[static_cast<size_t>(rank) - 1];
    const absl::Status sent = to.SendWork(work, std::move(with_tokens));
    if (sent.ok()) return sent;
    return StatusOf(sent.code(), "rank ", to.number(), " takes no work: ", Message(sent));
  }
  std::shared_ptr<WeightShards> Shards(int64_t number,
                                       std::vector<std::vector<ByteRange>> ranges) override {
    return std::make_shared<LinkedShards>(ranks_, number, std::move(ranges));
  }
  std::string LossReason(absl::Duration patience) override { return states_.AwaitReason(patience); }
  std::vector<RankReport> Reports() const override { return states_.reports(); }

 private:
  RankStates states_;
  LinkedRanks ranks_;
  std::unique_ptr<Communicator> communicator_, background_;
  int here_ = 1;
  bool reads_samples_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> ConnectRanks(std::vector<RankLink> links,
                                                        const RankLinkOptions& options) {
  auto group = std::make_unique<LinkedRankGroup>(std::move(links));
  FRESHET_RETURN_IF_ERROR(group->Connect(options));
  return group;
}

}  // namespace freshet
