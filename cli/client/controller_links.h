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

// Connections to the controllers of a cluster, and the one in use. Any controller works, because
// standbys forward calls to the leader. Thread-safe.
class ControllerLinks {
 public:
  struct Link {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
  };

  // Connects lazily. Errors as for runtime::MakeChannel; INVALID_ARGUMENT: no address.
  static absl::StatusOr<std::unique_ptr<ControllerLinks>> Create(
      const std::vector<std::string>& addresses, const runtime::ChannelOptions& options);

  // The controller to call: a connected one if there are several. Skipping an unreachable one may
  // take a second. If none is reachable, the one used last.
  Link Choose() ABSL_LOCKS_EXCLUDED(mu_);
  // Reports the result of a call on `link`. Switches to the next controller if this one did not
  // answer, or to the named leader if its address is known.
  void Report(const Link& link, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether to retry soon, here or elsewhere, because the leader is changing. `repeatable`: the
  // call may be executed twice.
  bool MayTryAgain(const absl::Status& status, bool repeatable) const;

 private:
  explicit ControllerLinks(std::vector<Link> links) : links_(std::move(links)) {}

  const std::vector<Link> links_;
  Mutex mu_;
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_CONTROLLER_LINKS_H_
