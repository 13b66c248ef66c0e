#ifndef FRESHET_LOCAL_LOCAL_COMMAND_H_
#define FRESHET_LOCAL_LOCAL_COMMAND_H_

#include <string>
#include <vector>

#include "services/runtime/reward_flags.h"

namespace freshet {

struct LocalCommand {
  std::string job_file;  // empty with --resume
  std::string run_dir;   // empty: runs/NAME
  std::string resume_dir;
  std::vector<std::string> overrides;  // --set
  bool json = false;
  int metrics_port = 0;
  std::string status_listen = "127.0.0.1:0";  // of the status page; "": none
  runtime::RewardFlags rewards;
  std::string crash_at;  // POINT:N, for recovery tests
};

// Runs the command and returns the exit code. Handles SIGINT and SIGTERM: the first drains and
// saves, the second ends the process at once (130).
int RunLocalCommand(const LocalCommand& command);

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_COMMAND_H_
