#ifndef FRESHET_CLI_CLIENT_SESSION_H_
#define FRESHET_CLI_CLIENT_SESSION_H_

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "base/exit_code.h"
#include "cli/client/job_client.h"

namespace freshet {

// --server, --context, --ca, --cert, --key, --token-file of a command.
struct ConnectionFlags {
  std::string server, context, ca, cert, key, token_file;
};

// Adds the flags; `flags` must outlive the parse.
void AddConnectionFlags(CLI::App& command, ConnectionFlags& flags);

// Target of the flags, FRESHET_SERVER and ~/.config/freshet/config.yaml ($XDG_CONFIG_HOME), with
// the token of the cluster if this user started it on this machine.
absl::StatusOr<ServerTarget> TargetOf(const ConnectionFlags& flags);

// Where and how this process writes to people.
struct Terminal {
  bool out = false;    // stdout is a terminal
  bool color = false;  // on stdout; never with NO_COLOR
  bool utf8 = false;   // the locale says so
  int width = 80;
};
Terminal DescribeTerminal();

// A connection to a controller, for one command. Confined to one thread, but for client().
class Session {
 public:
  // INVALID_ARGUMENT, NOT_FOUND: what the flags or the configuration name cannot be used.
  static absl::StatusOr<Session> Open(const ConnectionFlags& flags);

  JobClient& client() const { return *client_; }
  const ServerTarget& target() const { return client_->target(); }
  // Prints what the call said, one line per error on stderr; the exit code for it.
  int Fail(const absl::Status& status) const;

 private:
  explicit Session(std::unique_ptr<JobClient> client) : client_(std::move(client)) {}
  std::unique_ptr<JobClient> client_;
};

// Opens a session and runs `body(session)`, which returns the exit code. A target that cannot be
// used is an error of the command line.
int WithSession(const ConnectionFlags& flags, const std::function<int(const Session&)>& body);

// "freshet: LINE" on stderr.
void PrintLine(const std::string& line);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_SESSION_H_
