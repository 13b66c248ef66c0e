#include "trainer/ranks/grpc/rank_role.h"

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/message_socket.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "services/runtime/client_stream.h"
#include "trainer/ranks/grpc/rank_service.h"
#include "trainer/ranks/grpc/socket_bytes.h"

namespace freshet {
namespace {

using trainer::v1::RankBytes;
using Stream = runtime::ClientStream<RankBytes, RankBytes>;

constexpr size_t kMaxBuffered = 4;  // messages of rank 0 that this rank has not taken yet
constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);
// An upper bound: rank 0 may compute while this rank waits, and keepalive watches the connection.
constexpr absl::Duration kSendTimeout = absl::Hours(1);
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kMostPause = absl::Seconds(2);

// Passes what `socket` says to the stream until it is closed, and the other way round, beginning
// with `first`.
class Exchange {
 public:
  Exchange(Stream& stream, int socket, RankBytes first)
      : out_([&stream, socket] {
          RankBytes message;
          while (ReadSome(socket, kRankBytes, *message.mutable_data())) {
            if (!stream.Write(message, kSendTimeout).ok()) return stream.Cancel();
          }
          stream.WritesDone();
        }),
        in_([&stream, socket, next = absl::StatusOr<RankBytes>(std::move(first))]() mutable {
          while (next.ok() && SendAll(socket, next->data())) {
            next = stream.Read(absl::InfiniteDuration());
          }
          ::shutdown(socket, SHUT_RDWR);
        }) {}

 private:
  std::jthread out_;
  std::jthread in_;
};

}  // namespace

absl::Status RankRole::Start(const runtime::RoleContext& /*context*/) {
  thread_ = std::jthread([this](std::stop_token stop) {
    Join(std::move(stop));
    ended_.Notify();
  });
  return absl::OkStatus();
}

absl::Status RankRole::Drain(absl::Time deadline) {
  thread_.request_stop();
  if (ended_.WaitFor(deadline - absl::Now())) return absl::OkStatus();
  return absl::DeadlineExceededError("the rank still computes");
}

void RankRole::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void RankRole::Join(std::stop_token stop) {
  Notification stopped;
  const std::stop_callback wake(stop, [&stopped] { stopped.Notify(); });
  std::string logged;
  for (int64_t failures = 0; !stop.stop_requested();) {
    const absl::Status ended = JoinOnce(stop);
    if (stop.stop_requested()) return;
    if (ended.ok()) {
      failures = 0;
      logged.clear();
      continue;
    }
    if (std::exchange(logged, Message(ended)) != Message(ended)) {
      FRESHET_LOG(Warning) << "event=rank_not_joined rank=" << options_.rank
                           << " rank_zero=" << options_.rank_zero
                           << " reason=" << LogQuoted(logged);
    }
    stopped.WaitFor(BackoffDelay(++failures, kFirstPause, kMostPause));
  }
}

absl::Status RankRole::JoinOnce(std::stop_token stop) {
  // A new one, which looks the address up again: rank 0 may have moved.
  FRESHET_ASSIGN_OR_RETURN(const auto channel, options_.connect());
  const auto stub = trainer::v1::RankService::NewStub(channel);
  // A rank waits for its group as long as the connection works, which keepalive watches.
  const auto stream = Stream::Start(
      std::make_unique<grpc::ClientContext>(),
      [&stub](auto* context, auto* reactor) { stub->async()->Join(context, reactor); },
      kMaxBuffered, Stream::OnFull::kWait);
  const std::stop_callback cancel(stop, [&stream] { stream->Cancel(); });
  RankBytes hello;
  hello.set_rank(options_.rank);
  hello.set_ranks(options_.ranks);
  hello.set_version(Version());
  FRESHET_RETURN_IF_ERROR(stream->Write(hello, kAnswerTimeout));
  FRESHET_RETURN_IF_ERROR(stream->Read(kAnswerTimeout).status());
  FRESHET_LOG(Info) << "event=joined rank=" << options_.rank << " rank_zero=" << options_.rank_zero;
  FRESHET_ASSIGN_OR_RETURN(RankBytes first, stream->Read(absl::InfiniteDuration()));
  FRESHET_ASSIGN_OR_RETURN(auto ends, SocketPair());
  const Exchange exchange(*stream, ends.first.get(), std::move(first));
  return options_.run(std::move(ends.second));
}

}  // namespace freshet
