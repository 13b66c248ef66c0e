#include "datastore/redis/redis_subscription.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_subscription_state.h"

namespace freshet {
namespace {

// Whether it is a [kind, channel, count or payload] push: a confirmation or a message.
bool IsPush(const RedisRawReply& reply, std::string_view kind) {
  return !reply.is_error && reply.reply.items.size() == 3 && reply.reply.items[0].text == kind;
}

}  // namespace

RedisSubscription::State::State(std::shared_ptr<RedisDialer> from, std::vector<std::string> names)
    : dialer(std::move(from)),
      channels(std::move(names)),
      wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  FRESHET_CHECK(wake_fd >= 0);
}

RedisSubscription::State::~State() { close(wake_fd); }

absl::Status RedisSubscription::State::Confirm(RedisConnection& opened, const RedisWire& wire,
                                               absl::Time deadline) const {
  FRESHET_RETURN_IF_ERROR(opened.Send(wire, deadline));
  for (size_t i = 0; i < channels.size(); ++i) {
    FRESHET_ASSIGN_OR_RETURN(const std::optional<RedisRawReply> reply,
                             opened.AwaitPush(/*wake_fd=*/-1, deadline));
    if (!reply.has_value()) {
      return StatusOf(absl::StatusCode::kUnavailable,
                      "redis did not confirm the subscription in time");
    }
    if (reply->is_error) return RedisErrorStatus(reply->reply.text, "SUBSCRIBE");
    if (!IsPush(*reply, "subscribe")) return DataLoss("unexpected redis reply to SUBSCRIBE");
  }
  return absl::OkStatus();
}

absl::Status RedisSubscription::State::Open(absl::Time deadline) {
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RedisConnection> opened, dialer->Dial(deadline));
  std::vector<std::string> command = {"SUBSCRIBE"};
  command.insert(command.end(), channels.begin(), channels.end());
  RedisWire wire;
  wire.Append(command);
  const absl::Status confirmed = Confirm(*opened, wire, deadline);
  if (!confirmed.ok()) {
    dialer->NoteUnfit();
    return confirmed;
  }
  dialer->NoteFit();
  connection = std::move(opened);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RedisMessage>> RedisSubscription::State::Await(absl::Time deadline) {
  while (true) {
    FRESHET_ASSIGN_OR_RETURN(std::optional<RedisRawReply> reply,
                             connection->AwaitPush(wake_fd, deadline));
    if (!reply.has_value()) return std::nullopt;
    if (reply->is_error) return RedisErrorStatus(reply->reply.text, "SUBSCRIBE");
    if (!IsPush(*reply, "message")) continue;
    return RedisMessage{std::move(reply->reply.items[1].text),
                        std::move(reply->reply.items[2].text)};
  }
}

RedisSubscription::RedisSubscription(std::unique_ptr<State> state) : state_(std::move(state)) {}
RedisSubscription::~RedisSubscription() = default;

absl::StatusOr<std::optional<RedisMessage>> RedisSubscription::Next(absl::Duration timeout) {
  const absl::Time now = SystemClock::Get().Now();
  const absl::Time deadline = now + timeout;
  if (state_->connection == nullptr) {
    const absl::Duration limit = state_->dialer->options().command_timeout;
    FRESHET_RETURN_IF_ERROR(state_->Open(now + std::min(timeout, limit)));
    return RedisMessage{};
  }
  auto message = state_->Await(deadline);
  if (!message.ok()) {
    state_->connection.reset();
    return message.status();
  }
  if (!message->has_value()) {
    uint64_t count = 0;
    // Clears the wake-up, if there was one; EAGAIN after a timeout.
    [[maybe_unused]] const ssize_t taken = read(state_->wake_fd, &count, sizeof(count));
  }
  return message;
}

void RedisSubscription::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(state_->wake_fd, &one, sizeof(one));
}

}  // namespace freshet
