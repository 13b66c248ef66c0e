#ifndef FRESHET_CLI_CLIENT_CONTROLLER_LINKS_H_
#define FRESHET_CLI_CLIENT_CONTROLLER_LINKS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "services/runtime/channel.h"

namespace freshet {

// Connections to the controllers of a cluster, and which of them is used: any will do, since one
// that stands by passes calls on. Thread-safe.
class ControllerLinks {
 public:
  struct Link {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
  };

  // Connects lazily. Errors of runtime::MakeChannel; INVALID_ARGUMENT: no address.
  static absl::StatusOr<std::unique_ptr<ControllerLinks>> Create(
      const std::vector<std::string>& addresses, const runtime::ChannelOptions& options);

  // The controller to call. Of several, one that is connected: those that cannot be reached are
  // passed over, which may take a second for each. When none can, the one that was used last.
  Link Choose() ABSL_LOCKS_EXCLUDED(mu_);
  // What came of a call on `link`. A controller that does not answer is left for the next one, one
  // that says who leads for that one, where it is known here.
  void Report(const Link& link, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether to call again soon, here or elsewhere: who leads is changing. `repeatable`: the call
  // may be made twice.
  bool MayTryAgain(const absl::Status& status, bool repeatable) const;

 private:
  explicit ControllerLinks(std::vector<Link> links) : links_(std::move(links)) {}

  const std::vector<Link> links_;
  Mutex mu_;
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_CONTROLLER_LINKS_H_
