#ifndef FRESHET_WEIGHTS_GRPC_RELAY_LINK_H_
#define FRESHET_WEIGHTS_GRPC_RELAY_LINK_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "freshet/weights/v1/weight_service.pb.h"
#include "weights/grpc/event_count.h"

namespace freshet {

// Client side of one Prepare call. Never blocks; notifies `events` of news. Keeps itself alive
// until gRPC is done with it, so that nobody waits for a hanging peer. Confined to one thread,
// except for gRPC's callbacks.
class RelayLink final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  struct News {
    std::vector<weights::v1::MemberResult> results;  // since the last Listen
    bool heard = false;     // the peer accepted or sent something since the last Listen
    bool writable = false;  // Write may be called
    // The first reply's `base`; empty: it named none. Absent before that reply.
    std::optional<std::string> base;
    bool done = false;  // the call ended with `status`
    absl::Status status;
  };

  // Starts the call and writes `header`.
  static std::shared_ptr<RelayLink> Open(const std::shared_ptr<grpc::Channel>& channel,
                                         grpc::ByteBuffer header, absl::Duration timeout,
                                         std::shared_ptr<EventCount> events);

  News Listen() ABSL_LOCKS_EXCLUDED(mu_);
  // Requires that the last News said writable and CloseWrites was not called.
  void Write(grpc::ByteBuffer chunk) ABSL_LOCKS_EXCLUDED(mu_);
  void CloseWrites();
  // Cancels the call unless it has ended. Must be the last call.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  RelayLink(std::shared_ptr<grpc::Channel> channel, std::shared_ptr<EventCount> events)
      : channel_(std::move(channel)), events_(std::move(events)) {}

  void ReleaseHold();

  const std::shared_ptr<grpc::Channel> channel_;
  const std::shared_ptr<EventCount> events_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;  // owned by the pending read
  grpc::ByteBuffer outgoing_;  // owned by the pending write
  std::shared_ptr<RelayLink> self_;
  bool held_ = true;  // gRPC hold of the calling thread; not used by callbacks
  Mutex mu_;
  News news_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool reads_ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_RELAY_LINK_H_
