#ifndef FRESHET_LOCAL_TEAM_PROCESSES_H_
#define FRESHET_LOCAL_TEAM_PROCESSES_H_

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace freshet {

struct TeamProcess {
  std::string name;
  std::vector<std::string> argv;           // the first is a path
  std::vector<std::string> environment{};  // "NAME=VALUE", added to this process's
};

// How a team has ended.
struct TeamEnd {
  std::string failed;  // the process that failed first; "" if none did by itself
  int exit_code = 0;   // its exit code, or 128 and the number of the signal that ended it
  std::string error;   // its last line on stderr
  std::string killed;  // the first that was killed as it did not end when it was told to
  // After Stop(): one was killed, or ended with kExitInterrupted or by SIGTERM. That is no failure.
  bool interrupted = false;
};

// Processes of one team, which end with kExitJobCancelled if they have saved because they were told
// to stop: that is a failure unless Stop() was called before. If one fails, the others get SIGTERM.
// If one ends with exit code 0, the others get its name as a line on their standard input.
class TeamProcesses {
 public:
  // Takes a line of a process's output, without its newline and with at most 64 KiB. Called by one
  // thread at a time.
  using OnLine = std::function<void(const std::string& name, bool is_error, std::string_view line)>;

  // `grace`: the time between SIGTERM and SIGKILL.
  TeamProcesses(OnLine on_line, absl::Duration grace)
      : on_line_(std::move(on_line)), grace_(grace) {}

  // Starts the processes and waits until all have ended. UNAVAILABLE: one cannot be started; then
  // none runs.
  absl::StatusOr<TeamEnd> Run(const std::vector<TeamProcess>& processes);
  // Makes Run() stop the processes; the second call kills them. Thread-safe, callable at any time.
  void Stop() { ++stops_; }

 private:
  class Child;

  void NoteEnd(Child& child, TeamEnd& end) const;

  const OnLine on_line_;
  const absl::Duration grace_;
  std::atomic<int> stops_{0};
  Mutex mu_;  // for on_line_
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_TEAM_PROCESSES_H_
