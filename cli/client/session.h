#ifndef FRESHET_CLI_CLIENT_SESSION_H_
#define FRESHET_CLI_CLIENT_SESSION_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/command_line.h"
#include "base/exit_code.h"
#include "cli/client/job_client.h"

namespace freshet {

// Adds the flags; `flags` must outlive the parse.
void AddConnectionFlags(const Command& command, ConnectionFlags& flags);

// Target from the flags, FRESHET_SERVER and ~/.config/freshet/config.yaml ($XDG_CONFIG_HOME), with
// the cluster token if this user started the cluster on this machine.
absl::StatusOr<ServerTarget> TargetOf(const ConnectionFlags& flags);

// Properties of this process's output.
struct Terminal {
  bool out = false;    // stdout is a terminal
  bool color = false;  // on stdout; false with NO_COLOR
  bool utf8 = false;   // according to the locale
  int width = 80;
};
Terminal DescribeTerminal();

// A connection to a controller, for one command. Only client() is thread-safe.
class Session {
 public:
  // INVALID_ARGUMENT, NOT_FOUND: unusable flags or configuration.
  static absl::StatusOr<Session> Open(const ConnectionFlags& flags);

  JobClient& client() const { return *client_; }
  const ServerTarget& target() const { return client_->target(); }
  // Prints the error, one line each, on stderr and returns its exit code.
  int Fail(const absl::Status& status) const;

 private:
  explicit Session(std::unique_ptr<JobClient> client) : client_(std::move(client)) {}
  std::unique_ptr<JobClient> client_;
};

// Opens a session and runs `body(session)`, which returns the exit code. An unusable target is a
// usage error.
int WithSession(const ConnectionFlags& flags, const std::function<int(const Session&)>& body);

// Adds the flags to `command`, which runs `body` with a session.
void OnSession(const Command& command, ConnectionFlags& flags,
               std::function<int(const Session&)> body);

// Prints "freshet: LINE" to stderr.
void PrintLine(const std::string& line);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_SESSION_H_
