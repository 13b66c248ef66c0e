#include "trainer/ranks/command_reader.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

using trainer::v1::RankCommand;

namespace {

constexpr size_t kMostCommands = 8;  // rank 0 is at most a few ahead
constexpr absl::Duration kWaitSlice = absl::Minutes(1);

}  // namespace

CommandReader::CommandReader(MessageSocket& socket) : socket_(socket) {
  thread_ = std::thread([this] {
    const absl::Status ended = Read();
    for (RelayInbox& inbox : inboxes_) inbox.Fail(ended);
    const MutexLock lock(mu_);
    ended_ = ended;
    changed_.NotifyAll();
  });
}

CommandReader::~CommandReader() {
  socket_.Shutdown();
  for (RelayInbox& inbox : inboxes_) inbox.Fail(absl::UnavailableError("this rank ends"));
  thread_.join();
}

absl::Status CommandReader::Read() {
  while (true) {
    RankCommand command;
    // The wait ends at the latest with rank 0's process.
    FRESHET_RETURN_IF_ERROR(socket_.Receive(command, absl::InfiniteDuration()));
    switch (command.command_case()) {
      case RankCommand::kCollective:
        inbox(RelayGroup::kTraining).Put(std::move(*command.mutable_collective()));
        break;
      case RankCommand::kBackground:
        inbox(RelayGroup::kBackground).Put(std::move(*command.mutable_background()));
        break;
      case RankCommand::kStart:
      case RankCommand::kWork:
        FRESHET_RETURN_IF_ERROR(Keep(std::move(command)));
        break;
      case RankCommand::kSendShard:
      case RankCommand::kAbortShard: {
        const MutexLock lock(handling_);
        if (shard_handler_) shard_handler_(command);
        break;
      }
      case RankCommand::COMMAND_NOT_SET:
        return DataLoss("an empty command");
    }
  }
}

void CommandReader::SetShardHandler(std::function<void(const RankCommand&)> handler) {
  const MutexLock lock(handling_);
  shard_handler_ = std::move(handler);
}

absl::Status CommandReader::Keep(RankCommand command) {
  const MutexLock lock(mu_);
  if (commands_.size() >= kMostCommands) return DataLoss("more commands than rank 0 sends");
  commands_.push_back(std::move(command));
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<RankCommand> CommandReader::Next(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const MutexLock lock(mu_);
  while (commands_.empty()) {
    if (!ended_.ok()) return ended_;
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no command came");
    changed_.WaitFor(mu_, std::min(left, kWaitSlice));
  }
  RankCommand command = std::move(commands_.front());
  commands_.pop_front();
  return command;
}

}  // namespace freshet
