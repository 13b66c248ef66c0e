#include "services/sandbox/worker/confined_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/sandbox/isolation/send_descriptors.h"
#include "services/sandbox/worker/program_environment.h"

namespace freshet::sandbox {
namespace {

constexpr int kConfineMilliseconds = 30'000;

absl::Status Failed(const char* what) {
  return StatusOf(absl::StatusCode::kUnavailable, what, ": ", std::strerror(errno));
}

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Failed("pipe2");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return std::make_pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

// A file in memory that can only be read.
absl::StatusOr<UniqueFd> MakeInput(std::string_view text) {
  UniqueFd file(::memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return Failed("memfd_create");
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written <= 0) return Failed("writing standard input");
    text.remove_prefix(static_cast<size_t>(written));
  }
  ::lseek(file.get(), 0, SEEK_SET);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) !=
      0) {
    return Failed("F_ADD_SEALS");
  }
  return file;
}

[[noreturn]] void Execute(int control, const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  pointers.reserve(argv.size() + 1);
  for (const std::string& word : argv) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  FreshetConfine(control);
  ::execve(pointers[0], pointers.data(), ProgramEnvironment());
  ::dprintf(STDERR_FILENO, "cannot run %s: %s\n", pointers[0], std::strerror(errno));
  ::_exit(127);
}

absl::Status SendConfinement(int control, FreshetConfinement confinement,
                             const SyscallFilters& filters,
                             const int (&fds)[kFreshetConfinementFds]) {
  confinement.filter_size = filters.first.size();
  confinement.last_filter_size = filters.last.size();
  iovec parts[3] = {{&confinement, sizeof(confinement)},
                    {const_cast<char*>(filters.first.data()), filters.first.size()},
                    {const_cast<char*>(filters.last.data()), filters.last.size()}};
  if (SendDescriptors(control, parts, fds) < 0) return Failed("sending the confinement");
  return absl::OkStatus();
}

// The listener of a process's filter, if `listens`, and which process it is.
absl::Status ReceiveProcess(int control, bool listens, ConfinedProcess& process) {
  pollfd wanted{control, POLLIN, 0};
  if (::poll(&wanted, 1, kConfineMilliseconds) != 1) {
    return absl::UnavailableError("the program's process does not answer");
  }
  char text[256];
  iovec part{text, sizeof(text)};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  const ssize_t got = ::recvmsg(control, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return absl::UnavailableError("the program's process has ended");
  for (cmsghdr* carried = CMSG_FIRSTHDR(&message); carried != nullptr;
       carried = CMSG_NXTHDR(&message, carried)) {
    if (carried->cmsg_level != SOL_SOCKET) continue;
    if (carried->cmsg_type == SCM_RIGHTS) {
      int listener = -1;
      std::memcpy(&listener, CMSG_DATA(carried), sizeof(listener));
      process.listener = UniqueFd(listener);
    } else if (carried->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(carried), sizeof(sender));
      process.pid = sender.pid;
    }
  }
  const bool good = listens ? process.listener.get() >= 0 : got == 1 && text[0] == '\0';
  if (!good) {
    return StatusOf(absl::StatusCode::kUnavailable, "a program cannot be confined: ",
                    std::string_view(text, static_cast<size_t>(got)));
  }
  if (process.pid <= 0) return Internal("a message without its sender");
  process.process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  return process.process.get() < 0 ? Failed("pidfd_open") : absl::OkStatus();
}

// The message of a program in namespaces of its own, whose process this process does not need.
absl::Status AwaitProgram(int control) {
  ConfinedProcess program;
  return ReceiveProcess(control, /*listens=*/false, program);
}

}  // namespace

absl::StatusOr<ConfinedProcess> StartConfined(const ConfinedStart& start) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Failed("socketpair");
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const int yes = 1;
  if (::setsockopt(ours.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0) {
    return Failed("SO_PASSCRED");
  }
  FRESHET_ASSIGN_OR_RETURN(auto output, MakePipe());
  FRESHET_ASSIGN_OR_RETURN(auto error, MakePipe());
  FRESHET_ASSIGN_OR_RETURN(const UniqueFd input, MakeInput(start.input));
  if (start.argv.empty()) {
    if (start.python == nullptr) return absl::UnavailableError("there is no Python process");
    FRESHET_RETURN_IF_ERROR(start.python->Fork(theirs.get()));
  } else {
    const pid_t pid = ::fork();
    if (pid < 0) return Failed("fork");
    if (pid == 0) Execute(theirs.get(), start.argv);
  }
  theirs = UniqueFd();
  const int fds[kFreshetConfinementFds] = {input.get(), output.second.get(), error.second.get(),
                                           start.folder,
                                           start.rules >= 0 ? start.rules : start.folder};
  FRESHET_RETURN_IF_ERROR(SendConfinement(ours.get(), start.confinement, start.filters, fds));
  ConfinedProcess process;
  FRESHET_RETURN_IF_ERROR(ReceiveProcess(ours.get(), start.rules >= 0, process));
  if (start.rules < 0) FRESHET_RETURN_IF_ERROR(AwaitProgram(ours.get()));
  if (::send(ours.get(), "", 1, MSG_NOSIGNAL) != 1) return Failed("starting the program");
  process.output = std::move(output.first);
  process.error = std::move(error.first);
  return process;
}

}  // namespace freshet::sandbox
