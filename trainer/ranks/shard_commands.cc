#include "trainer/ranks/shard_commands.h"

#include <system_error>
#include <utility>

#include "base/str_cat.h"
#include "base/utf8.h"

namespace freshet {

using trainer::v1::AbortShard;
using trainer::v1::RankCommand;
using trainer::v1::SendShard;
using trainer::v1::ShardSent;

namespace {

constexpr size_t kMostWaiting = 16;
constexpr size_t kMostText = 200;  // of a rank's message
constexpr absl::Duration kCommandWait = absl::Minutes(1);

}  // namespace

void ShardCommands::Stop() {
  Fail(absl::CancelledError("the group has ended"));
  std::thread ended;
  {
    const MutexLock lock(mu_);
    ended.swap(thread_);
  }
  if (ended.joinable()) ended.join();
}

absl::Status ShardCommands::PostLocked(RankCommand command) {
  if (!failed_.ok()) return failed_;
  if (commands_.size() >= kMostWaiting) {
    return absl::ResourceExhaustedError("the link to the rank is busy");
  }
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return ResourceExhausted("no thread for the link to the rank: ", error.what());
  }
  commands_.push_back(std::move(command));
  changed_.NotifyAll();
  return absl::OkStatus();
}

void ShardCommands::Send(SendShard order, Done done) {
  absl::Status posted;
  {
    const MutexLock lock(mu_);
    RankCommand command;
    order.set_id(++ids_);
    *command.mutable_send_shard() = std::move(order);
    posted = PostLocked(std::move(command));
    if (posted.ok()) pending_[ids_] = done;
  }
  if (!posted.ok()) done(posted);
}

void ShardCommands::Abort(AbortShard order) {
  RankCommand command;
  *command.mutable_abort_shard() = std::move(order);
  const MutexLock lock(mu_);
  (void)PostLocked(std::move(command));  // its group fails by itself, later
}

void ShardCommands::Run() {
  while (true) {
    RankCommand command;
    {
      const MutexLock lock(mu_);
      while (commands_.empty() && failed_.ok()) changed_.WaitFor(mu_, kCommandWait);
      if (!failed_.ok()) return;
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    const absl::Status sent = send_(command);
    if (!sent.ok() && command.has_send_shard()) End(command.send_shard().id(), sent);
  }
}

void ShardCommands::End(const ShardSent& sent) {
  End(sent.id(), absl::Status(static_cast<absl::StatusCode>(sent.code()),
                              ValidUtf8(sent.message(), kMostText)));
}

void ShardCommands::End(int64_t id, const absl::Status& status) {
  Done done;
  {
    const MutexLock lock(mu_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    done = std::move(found->second);
    pending_.erase(found);
  }
  done(status);
}

void ShardCommands::Fail(const absl::Status& error) {
  std::map<int64_t, Done> pending;
  absl::Status failed;
  {
    const MutexLock lock(mu_);
    failed_.Update(error);
    failed = failed_;
    pending.swap(pending_);
    commands_.clear();
    changed_.NotifyAll();
  }
  for (const auto& [id, done] : pending) done(failed);
}

}  // namespace freshet
