#include "services/sandbox/worker/process_tree.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "base/str_cat.h"

namespace freshet::sandbox {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

constexpr int64_t kTooMuch = std::numeric_limits<int64_t>::max() / 2;

File Open(const std::string& path) { return File(std::fopen(path.c_str(), "re")); }

// A process lists the children of each of its threads.
void AddChildren(pid_t parent, const std::vector<pid_t>& except, std::vector<pid_t>& children) {
  const std::string tasks = StrCat("/proc/", parent, "/task");
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(tasks.c_str()));
  if (folder == nullptr) return;  // it has ended
  while (const dirent* task = ::readdir(folder.get())) {
    if (task->d_name[0] == '.') continue;
    const File list = Open(StrCat(tasks, "/", task->d_name, "/children"));
    int child = 0;
    while (list != nullptr && std::fscanf(list.get(), "%d", &child) == 1) {
      if (std::ranges::find(except, child) == except.end()) children.push_back(child);
    }
  }
}

}  // namespace

bool CanListChildren() {
  return Open(StrCat("/proc/self/task/", ::getpid(), "/children")) != nullptr;
}

std::vector<pid_t> Members(const ProcessTree& tree) {
  std::vector<pid_t> found;
  for (const pid_t root : tree.roots) AddChildren(root, tree.except, found);
  for (size_t next = 0; next < found.size() && found.size() <= tree.most; ++next) {
    AddChildren(found[next], tree.except, found);
  }
  return found;
}

namespace {

// Calls `use` with the folder in /proc of each thread of a process: its first thread may have
// ended.
void ForEachThread(pid_t process, absl::FunctionRef<void(const std::string& folder)> use) {
  const std::string tasks = StrCat("/proc/", process, "/task");
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(tasks.c_str()));
  if (folder == nullptr) return;  // it has ended
  while (const dirent* task = ::readdir(folder.get())) {
    if (task->d_name[0] != '.') use(StrCat(tasks, "/", task->d_name));
  }
}

// Whether a thread, given its folder in /proc, has ended or is ending: then it has no memory.
bool HasEnded(const std::string& thread) {
  const File file = Open(thread + "/status");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof(line), file.get()) != nullptr) {
    if (std::string_view(line).starts_with("VmSize:")) return false;
  }
  return true;
}

// What may still be looked at in one measurement; a program with more has too much.
struct Budget {
  int64_t lines = 50'000;
  bool Take() { return --lines >= 0; }
};

// Disk space of a thread's open files without a name, and what its pipes and sockets can hold.
int64_t UnseenBytes(const std::string& thread, Budget& budget) {
  constexpr int64_t kPipeBytes = 64 << 10;
  constexpr int64_t kSocketBytes = 512 << 10;
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir((thread + "/fd").c_str()));
  // What cannot be measured is too much.
  if (folder == nullptr) return HasEnded(thread) ? 0 : kTooMuch;
  int64_t bytes = 0;
  while (const dirent* entry = ::readdir(folder.get())) {
    struct stat about {};
    if (!budget.Take()) return kTooMuch;
    if (::fstatat(::dirfd(folder.get()), entry->d_name, &about, 0) != 0) continue;
    if (S_ISREG(about.st_mode) && about.st_nlink == 0) bytes += about.st_blocks * 512;
    if (S_ISFIFO(about.st_mode)) bytes += kPipeBytes;
    if (S_ISSOCK(about.st_mode)) bytes += kSocketBytes;
  }
  return bytes;
}

// Whether a process maps a file below `folder` that has no name any more, or too much to look at.
bool MapsNamelessFile(pid_t process, const std::string& folder, Budget& budget) {
  std::ifstream maps(StrCat("/proc/", process, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    if (!budget.Take()) return true;
    if (line.ends_with(" (deleted)") && line.find(folder) != std::string::npos) return true;
  }
  return false;
}

// Memory of a process, from the folder of one of its threads.
struct Memory {
  int64_t anonymous = 0;  // with page tables but without files; 0: the kernel does not tell
  int64_t resident = 0;   // with files
};

Memory ReadMemory(const std::string& thread) {
  const File file = Open(thread + "/status");
  char line[256];
  Memory memory;
  while (file != nullptr && std::fgets(line, sizeof(line), file.get()) != nullptr) {
    long long kilobytes = 0;
    if (std::sscanf(line, "VmRSS: %lld", &kilobytes) == 1) memory.resident = kilobytes << 10;
    for (const char* field : {"RssAnon: %lld", "RssShmem: %lld", "VmPTE: %lld"}) {
      if (std::sscanf(line, field, &kilobytes) == 1) memory.anonymous += kilobytes << 10;
    }
  }
  return memory;
}

// The same from its mappings, which takes longer, for gVisor. All of `resident` if there are too
// many.
int64_t MappedAnonymousBytes(const std::string& thread, int64_t resident, Budget& budget) {
  const File file = Open(thread + "/smaps");
  if (file == nullptr) return HasEnded(thread) ? 0 : resident;
  char line[512];
  int64_t bytes = 0;
  while (std::fgets(line, sizeof(line), file.get()) != nullptr) {
    long long kilobytes = 0;
    if (!budget.Take()) return resident;
    if (std::sscanf(line, "Anonymous: %lld", &kilobytes) == 1) bytes += kilobytes << 10;
  }
  return bytes;
}

}  // namespace

int64_t ResidentBytes(const std::vector<pid_t>& processes, int64_t enough) {
  int64_t bytes = 0;
  std::vector<std::pair<std::string, int64_t>> unclear;  // folder of a thread, resident
  for (const pid_t process : processes) {
    bool found = false;  // threads share their memory, unless the first one has ended
    ForEachThread(process, [&](const std::string& thread) {
      if (found) return;
      const Memory memory = ReadMemory(thread);
      found = memory.resident > 0;
      bytes += memory.anonymous > 0 ? memory.anonymous : memory.resident;
      if (memory.anonymous == 0 && found) unclear.emplace_back(thread, memory.resident);
    });
  }
  Budget budget;
  for (const auto& [thread, resident] : unclear) {
    if (bytes <= enough) break;
    bytes -= resident - MappedAnonymousBytes(thread, resident, budget);
  }
  return bytes;
}

int64_t CountTasks(const std::vector<pid_t>& processes) {
  int64_t tasks = 0;
  for (const pid_t process : processes) {
    ForEachThread(process, [&tasks](const std::string&) { ++tasks; });
  }
  return tasks;
}

int64_t UnseenBytes(const std::vector<pid_t>& processes, const std::string& folder) {
  Budget budget;
  int64_t bytes = 0;
  for (const pid_t process : processes) {
    if (MapsNamelessFile(process, folder, budget)) return kTooMuch;
    int64_t most = 0;  // threads share their descriptors, unless the first one has ended
    ForEachThread(process, [&](const std::string& thread) {
      if (most == 0) most = UnseenBytes(thread, budget);
    });
    if (most == kTooMuch) return kTooMuch;
    bytes += most;
  }
  return bytes;
}

absl::Status KillAll(const ProcessTree& tree, absl::Duration patience, double& cpu_seconds) {
  const absl::Time deadline = absl::Now() + patience;
  while (true) {
    const std::vector<pid_t> left = Members(tree);
    if (left.empty()) return absl::OkStatus();
    for (const pid_t process : left) ::kill(process, SIGKILL);
    for (const pid_t process : left) {
      rusage used{};
      // Only this process's own children: others become so when their parents have ended.
      if (::wait4(process, nullptr, WNOHANG, &used) != process) continue;
      cpu_seconds += static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    if (absl::Now() > deadline) {
      return Internal(left.size(), " processes of the program do not end");
    }
    ::usleep(500);
  }
}

}  // namespace freshet::sandbox
