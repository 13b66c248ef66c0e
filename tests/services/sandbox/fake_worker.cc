// A worker of WorkerPool that behaves as its argument says, without running anything.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/message_socket.h"
#include "freshet/sandbox/v1/sandbox.pb.h"

using freshet::MessageSocket;
using freshet::UniqueFd;
namespace v1 = freshet::sandbox::v1;

// fake_sandbox_worker refuses: cannot confine programs. Otherwise each program's code says what
// happens: "dies", "hangs", "fails" (an error of the sandbox), "forges" (another nonce), "retires"
// (answers and then ends), "loops" (is ended by the limit of time), or anything else, which comes
// back as the output.
int main(int /*argc*/, char** argv) {
  MessageSocket socket{UniqueFd(STDIN_FILENO)};
  v1::WorkerStart start;
  if (!socket.Receive(start, absl::Seconds(60)).ok()) return 1;
  v1::WorkerReady ready;
  ready.add_layers("none");
  if (std::strcmp(argv[1], "refuses") == 0) ready.set_error("the kernel has no Landlock");
  if (!socket.Send(ready, absl::Seconds(60)).ok()) return 1;
  while (true) {
    v1::Program program;
    if (!socket.Receive(program, absl::InfiniteDuration()).ok()) return 0;
    const std::string& code = program.code();
    if (code == "dies") std::abort();
    if (code == "hangs") ::pause();
    v1::Outcome outcome;
    outcome.set_nonce(code == "forges" ? "another" : program.nonce());
    if (code == "fails") outcome.set_error("a process does not end");
    outcome.add_runs()->set_standard_output(code);
    if (code == "loops") outcome.mutable_runs(0)->set_end(v1::CommandResult::END_TIME_LIMIT);
    outcome.mutable_runs(0)->set_standard_error(std::to_string(::getpid()));
    if (!socket.Send(outcome, absl::Seconds(60)).ok()) return 1;
    if (code == "retires") return 0;
  }
}
