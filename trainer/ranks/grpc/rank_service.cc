#include "trainer/ranks/grpc/rank_service.h"

#include <sys/socket.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/message_socket.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "services/runtime/bidi_reactor.h"
#include "trainer/ranks/grpc/socket_bytes.h"

namespace freshet {
namespace {

using trainer::v1::RankBytes;

constexpr size_t kMaxQueue = 4;  // messages that wait to be sent
// An upper bound: rank 0 ends the group of a rank that hangs.
constexpr absl::Duration kTakenWithin = absl::Hours(1);

// This end of a rank's socket, whose other end goes to the pool, and what is to be written to it.
struct RankPipe {
  explicit RankPipe(UniqueFd fd) : socket(std::move(fd)) {}

  const UniqueFd socket;
  Mutex mu;
  CondVar changed;
  std::optional<std::string> received ABSL_GUARDED_BY(mu);
  bool ended ABSL_GUARDED_BY(mu) = false;

  // Nullopt: the stream has ended.
  std::optional<std::string> Next() {
    const MutexLock lock(mu);
    while (!received.has_value() && !ended) changed.WaitFor(mu, absl::Hours(1));
    return std::exchange(received, std::nullopt);
  }
  void End() {
    ::shutdown(socket.get(), SHUT_RDWR);  // tells the user of the rank
    const MutexLock lock(mu);
    ended = true;
    changed.NotifyAll();
  }
};

// One rank's stream. It ends when the socket's other end is closed. Two detached threads move the
// bytes, because a reactor must not block to join them. They end with the stream and hold it
// weakly.
class RankStream final : public runtime::BidiReactor<RankBytes, RankBytes> {
 public:
  explicit RankStream(std::shared_ptr<JoinedRanks> joined)
      : BidiReactor(kMaxQueue), joined_(std::move(joined)) {}

  static grpc::ServerBidiReactor<RankBytes, RankBytes>* Start(
      const std::shared_ptr<RankStream>& stream) {
    stream->weak_ = stream;
    return Open(stream);
  }

 protected:
  Reading OnMessage(const RankBytes& message) override {
    if (pipe_ == nullptr) {
      Begin(message);
      return Reading::kContinue;
    }
    const MutexLock lock(pipe_->mu);
    pipe_->received = message.data();
    pipe_->changed.NotifyAll();
    return Reading::kPause;
  }

  void OnEnd() override {
    if (pipe_ == nullptr) return;
    joined_->Remove(rank_, id_);
    pipe_->End();
    FRESHET_LOG(Info) << "event=rank_left rank=" << rank_;
  }

 private:
  void Begin(const RankBytes& hello) {
    if (hello.ranks() != joined_->ranks() || hello.rank() < 1 || hello.rank() >= hello.ranks()) {
      return Finish(InvalidArgument("rank ", hello.rank(), " of ", hello.ranks(),
                                    ": this trainer has ranks 0 to ", joined_->ranks() - 1));
    }
    if (hello.version() != Version()) {
      return Finish(FailedPrecondition("this trainer has version ", Version(), ", rank ",
                                       hello.rank(), " has ", hello.version()));
    }
    auto ends = SocketPair();
    if (!ends.ok()) return Finish(ends.status());
    pipe_ = std::make_shared<RankPipe>(std::move(ends->first));
    rank_ = hello.rank();
    std::thread([pipe = pipe_, weak = weak_] { SendToRank(*pipe, weak); }).detach();
    std::thread([pipe = pipe_, weak = weak_] { TakeFromRank(*pipe, weak); }).detach();
    Send(RankBytes());  // accepted
    id_ = joined_->Add(rank_, std::move(ends->second));
    FRESHET_LOG(Info) << "event=rank_joined rank=" << rank_;
  }

  static void SendToRank(RankPipe& pipe, const std::weak_ptr<RankStream>& weak) {
    RankBytes message;
    while (ReadSome(pipe.socket.get(), kRankBytes, *message.mutable_data())) {
      const auto stream = weak.lock();
      if (stream == nullptr ||
          stream->Send(message, kTakenWithin) != runtime::SendResult::kQueued) {
        break;
      }
    }
    pipe.End();
    if (const auto stream = weak.lock(); stream != nullptr) stream->Finish(absl::OkStatus());
  }

  static void TakeFromRank(RankPipe& pipe, const std::weak_ptr<RankStream>& weak) {
    while (const std::optional<std::string> bytes = pipe.Next()) {
      if (!SendAll(pipe.socket.get(), *bytes)) return;
      if (const auto stream = weak.lock(); stream != nullptr) stream->ResumeReading();
    }
  }

  const std::shared_ptr<JoinedRanks> joined_;
  std::weak_ptr<RankStream> weak_;
  std::shared_ptr<RankPipe> pipe_;  // null before the first message
  int rank_ = 0;
  int64_t id_ = 0;
};

}  // namespace

grpc::ServerBidiReactor<RankBytes, RankBytes>* GrpcRankService::Join(
    grpc::CallbackServerContext* /*context*/) {
  return RankStream::Start(std::make_shared<RankStream>(joined_));
}

}  // namespace freshet
