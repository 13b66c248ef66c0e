#include "trainer/ranks/rank_follower.h"

#include <algorithm>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "collective/relay_communicator.h"
#include "trainer/ranks/command_reader.h"
#include "trainer/ranks/rank_group.h"
#include "trainer/ranks/rank_work.h"
#include "trainer/ranks/shard_sender.h"
#include "trainer/ranks/stored_samples.h"

namespace freshet {
namespace {

using trainer::v1::RankCommand;
using trainer::v1::RankReport;
using trainer::v1::RankStart;
using trainer::v1::RankWork;

constexpr absl::Duration kReportPeriod = absl::Seconds(1);
constexpr absl::Duration kReportTimeout = absl::Seconds(5);
constexpr absl::Duration kStartTimeout = absl::Seconds(60);
// For rank 0 to send them; it may be sending to other ranks.
constexpr absl::Duration kTokensTimeout = absl::Minutes(10);

// Tells rank 0 every second, and at every change, what this rank does.
class Reports {
 public:
  Reports(MessageSocket& socket, std::function<void()> on_orphaned) : socket_(socket) {
    thread_ = std::jthread([this, on_orphaned = std::move(on_orphaned)](std::stop_token stop) {
      while (!stop.stop_requested()) {
        if (!Send().ok()) return on_orphaned();
        ended_.WaitFor(kReportPeriod);
      }
    });
  }
  ~Reports() {
    thread_.request_stop();
    ended_.Notify();
  }

  void Set(RankReport::State state, int64_t step, const std::string& error = "") {
    {
      const MutexLock lock(mu_);
      report_.set_state(state);
      report_.set_step(step);
      report_.set_error(ValidUtf8(error, kMaxTextBytes));
      report_.clear_phase();
    }
    (void)Send();  // the thread notices if rank 0 is gone
  }
  void SendShardSent(const trainer::v1::ShardSent& sent) {
    RankReport report;
    *report.mutable_shard_sent() = sent;
    const MutexLock lock(mu_);
    // The result must not be missing: rank 0 then sees that the link is lost.
    if (!socket_.Send(report, kReportTimeout).ok()) socket_.Shutdown();
  }
  void SendNeedsTokens(const std::string& reason) {
    RankReport report;
    report.set_needs_tokens(ValidUtf8(reason, kMaxTextBytes));
    const MutexLock lock(mu_);
    if (!socket_.Send(report, kReportTimeout).ok()) socket_.Shutdown();
  }
  absl::Status SendChunk(RelayGroup group, std::string bytes, absl::Duration timeout) {
    RankReport report;
    if (group == RelayGroup::kTraining) {
      report.set_collective(std::move(bytes));
    } else {
      report.set_background(std::move(bytes));
    }
    const MutexLock lock(mu_);
    return socket_.Send(report, timeout);
  }
  void SetPhase(RankPhase phase) {
    {
      const MutexLock lock(mu_);
      report_.set_phase(PhaseText(phase));
      const std::string collective = CollectiveText(phase);
      if (!collective.empty()) report_.set_last_collective(collective);
    }
    (void)Send();
  }

 private:
  absl::Status Send() {
    const MutexLock lock(mu_);
    return socket_.Send(report_, kReportTimeout);
  }

  MessageSocket& socket_;
  Mutex mu_;
  RankReport report_ ABSL_GUARDED_BY(mu_);
  Notification ended_;
  std::jthread thread_;
};

// A group's link to rank 0.
class FollowerLinks final : public RelayLinks {
 public:
  FollowerLinks(RelayGroup group, RelayInbox& inbox, Reports& reports)
      : group_(group), inbox_(inbox), reports_(reports) {}

  absl::Status Send(int /*rank*/, std::string bytes, absl::Duration timeout) override {
    return reports_.SendChunk(group_, std::move(bytes), timeout);
  }
  absl::StatusOr<std::string> Receive(int /*rank*/, absl::Duration timeout) override {
    return inbox_.Take(timeout);
  }
  void Close() override { inbox_.Fail(absl::UnavailableError("the group has ended")); }

 private:
  const RelayGroup group_;
  RelayInbox& inbox_;
  Reports& reports_;
};

// The communicators in use, and those that connect, for the thread that notices that rank 0 is
// gone.
class CurrentCommunicators {
 public:
  // Those that are not null.
  void Set(std::vector<Communicator*> communicators) {
    const MutexLock lock(mu_);
    communicators_ = std::move(communicators);
    if (orphaned_) AbortAll();
  }
  // Stop is requested when rank 0 is gone.
  std::stop_token connecting() const { return connecting_.get_token(); }
  void Abort() {
    connecting_.request_stop();
    const MutexLock lock(mu_);
    orphaned_ = true;
    AbortAll();
  }

 private:
  void AbortAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (Communicator* communicator : communicators_) {
      if (communicator != nullptr) communicator->Abort("rank 0 has left");
    }
  }
  std::stop_source connecting_;
  Mutex mu_;
  std::vector<Communicator*> communicators_ ABSL_GUARDED_BY(mu_);
  bool orphaned_ ABSL_GUARDED_BY(mu_) = false;
};

// Rank 0 learns that a shard is missing when it is to be sent.
void StageShard(int64_t number, const PolicyLearner& learner, int rank, ShardSender& shards) {
  const std::vector<ByteRange> ranges = learner.ShardRanges()[static_cast<size_t>(rank)];
  const absl::Status staged = shards.Stage(
      number, ranges, [&](std::span<std::byte> shard) { return learner.CopyShard(ranges, shard); });
  if (staged.ok()) return;
  FRESHET_LOG(Warning) << "event=shard_not_staged shard=" << number
                       << " reason=" << LogQuoted(Message(staged));
}

absl::StatusOr<std::vector<SampleView>> ReadsNothing(const std::vector<SampleKey>& /*keys*/) {
  return DataLoss("rank 0 sends work without its tokens");
}

using ReadShare = std::function<absl::StatusOr<Minibatch>(const RankWork& work)>;

// The share of `work`, with tokens from the store, or else from rank 0. `unread`: whether the last
// work's samples could not be read, so that only a change is logged.
absl::StatusOr<Minibatch> ReadOrAwaitShare(const RankWork& work, StoredSamples& samples,
                                           Reports& reports, CommandReader& commands,
                                           bool& unread) {
  reports.SetPhase(RankPhase::kReading);
  absl::StatusOr<Minibatch> share =
      ShareOf(work, [&](const auto& keys) { return samples.Read(work.step(), keys); });
  if (share.ok()) {
    if (std::exchange(unread, false)) {
      FRESHET_LOG(Info) << "event=samples_read step=" << work.step();
    }
    return share;
  }
  const std::string reason = Message(share.status());
  if (!std::exchange(unread, true)) {
    FRESHET_LOG(Warning) << "event=samples_not_read step=" << work.step()
                         << " reason=" << LogQuoted(reason)
                         << " next=" << LogQuoted("rank 0 sends their tokens");
  }
  RelayInbox& inbox = commands.inbox(RelayGroup::kTraining);
  inbox.SetBounded(false);  // chunks of the next operation may come before the tokens
  const absl::Cleanup bound = [&inbox] { inbox.SetBounded(true); };
  reports.SendNeedsTokens(reason);
  // Rank 0 sends no other work meanwhile: it needs this rank for the next collective operation.
  FRESHET_ASSIGN_OR_RETURN(const RankCommand command, commands.Next(kTokensTimeout));
  if (command.work().kind() != work.kind() || command.work().step() != work.step()) {
    return DataLoss("rank 0 sends other work than that whose tokens are missing");
  }
  return ShareOf(command.work(), ReadsNothing);
}

absl::Status Do(const RankWork& work, PolicyLearner& learner, Communicator& communicator,
                ShardSender& shards, const ReadShare& read_share) {
  switch (work.kind()) {
    case RankWork::KIND_PROXIMAL: {
      FRESHET_ASSIGN_OR_RETURN(Minibatch share, read_share(work));
      return GatherProximal(learner, communicator, share, work.largest_share()).status();
    }
    case RankWork::KIND_UPDATE: {
      FRESHET_ASSIGN_OR_RETURN(const Minibatch share, read_share(work));
      return learner.Update(work.step(), share).status();
    }
    case RankWork::KIND_SEND_WEIGHTS:
      return learner.SendWeights();
    case RankWork::KIND_SEND_SNAPSHOT:
      return learner.SendSnapshot();
    case RankWork::KIND_SEND_STATE:
      return learner.SendState();
    case RankWork::KIND_STAGE_SHARD:
      StageShard(work.shard(), learner, communicator.rank(), shards);
      return absl::OkStatus();
    default:
      return DataLoss("work of kind ", static_cast<int>(work.kind()));
  }
}

// Sets `left` if it ends because the group has failed.
absl::Status Work(CommandReader& commands, const RankParts& parts, Reports& reports,
                  CurrentCommunicators& current, bool& left) {
  reports.Set(RankReport::STATE_STARTING, 0);
  FRESHET_ASSIGN_OR_RETURN(RankCommand command, commands.Next(kStartTimeout));
  if (!command.has_start()) return DataLoss("the first command is not to start");
  const RankStart start = command.start();
  SetLogRole(StrCat("rank-", start.number()));
  FRESHET_ASSIGN_OR_RETURN(const auto learner, parts.make_learner(start));
  const auto open =
      [&](const std::string& name) -> absl::StatusOr<std::shared_ptr<CommunicatorBackend>> {
    if (name.empty()) return nullptr;
    return parts.open_backend(name);
  };
  FRESHET_ASSIGN_OR_RETURN(const auto backend, open(start.backend()));
  FRESHET_ASSIGN_OR_RETURN(const auto background_backend, open(start.background_backend()));
  reports.Set(RankReport::STATE_JOINING, 0);
  const auto connect =
      [&](RelayGroup group, CommunicatorBackend* opened,
          const std::string& rendezvous) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    if (opened == nullptr) {
      return MakeRelayCommunicator(
          start.rank(), start.ranks(),
          std::make_shared<FollowerLinks>(group, commands.inbox(group), reports));
    }
    if (rendezvous.empty()) return nullptr;
    return opened->Connect(
        {start.rank(), start.ranks(), rendezvous, kConnectTimeout, current.connecting()});
  };
  FRESHET_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator,
                           connect(RelayGroup::kTraining, backend.get(), start.rendezvous()));
  FRESHET_ASSIGN_OR_RETURN(
      const std::unique_ptr<Communicator> background,
      connect(RelayGroup::kBackground, background_backend.get(), start.background_rendezvous()));
  if (communicator == nullptr) return DataLoss("rank 0 gives no rendezvous");
  current.Set({communicator.get(), background.get()});
  const absl::Cleanup unset = [&] {
    current.Set({});
    learner->SetRanks({});
  };
  learner->SetRanks({communicator.get(), background.get(),
                     [&](RankPhase phase) { reports.SetPhase(phase); }, start.number(),
                     std::max(start.here(), 1)});
  const auto leave = [&](const absl::Status& status) {
    if (!communicator->error().ok()) left = true;
    return status;
  };
  if (const absl::Status synced = learner->SyncFromRankZero(); !synced.ok()) return leave(synced);
  ShardSender shards(parts.open_backend, SystemClock::Get(),
                     [&](const trainer::v1::ShardSent& sent) { reports.SendShardSent(sent); });
  commands.SetShardHandler([&](const RankCommand& about_shard) {
    if (about_shard.has_send_shard()) shards.Send(about_shard.send_shard());
    if (about_shard.has_abort_shard()) shards.Abort(about_shard.abort_shard());
  });
  const absl::Cleanup no_shards = [&] { commands.SetShardHandler({}); };
  StoredSamples samples(parts.open_store, start.job(), SystemClock::Get());
  bool unread = false;
  const ReadShare read_share = [&](const RankWork& work) {
    return start.job().empty() ? ShareOf(work, ReadsNothing)
                               : ReadOrAwaitShare(work, samples, reports, commands, unread);
  };
  int64_t step = 0;
  while (true) {
    reports.Set(RankReport::STATE_IDLE, step);
    // The wait ends at the latest with rank 0's process.
    absl::StatusOr<RankCommand> next = commands.Next(absl::InfiniteDuration());
    if (absl::IsUnavailable(next.status())) return absl::OkStatus();
    FRESHET_ASSIGN_OR_RETURN(command, std::move(next));
    if (!command.has_work()) return DataLoss("a command without work");
    const RankWork& work = command.work();
    step = work.step();
    reports.Set(RankReport::STATE_TRAINING, step);
    const absl::Status done = Do(work, *learner, *communicator, shards, read_share);
    if (const absl::Status failed = communicator->error(); !failed.ok()) return leave(failed);
    // After other errors rank 0 ends the group.
    if (!done.ok() && !absl::IsFailedPrecondition(done)) return done;
  }
}

}  // namespace

absl::Status RunRank(MessageSocket& socket, const RankParts& parts) {
  CurrentCommunicators current;
  CommandReader commands(socket);  // ends after the reports: it shuts the socket down
  Reports reports(socket, [&current, on_orphaned = parts.on_orphaned] {
    current.Abort();
    on_orphaned();
  });
  bool left = false;
  absl::Status status = Work(commands, parts, reports, current, left);
  if (left) {
    reports.Set(RankReport::STATE_LEFT, 0, Message(status));
  } else if (!status.ok()) {
    reports.Set(RankReport::STATE_FAILED, 0, Message(status));
  }
  return status;
}

}  // namespace freshet
