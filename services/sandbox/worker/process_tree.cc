#include "services/sandbox/worker/process_tree.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

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
  for (size_t next = 0; next < found.size(); ++next) AddChildren(found[next], tree.except, found);
  return found;
}

int64_t ResidentBytes(const std::vector<pid_t>& processes) {
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  int64_t pages = 0;
  for (const pid_t process : processes) {
    const File file = Open(StrCat("/proc/", process, "/statm"));
    long long resident = 0;
    if (file != nullptr && std::fscanf(file.get(), "%*s %lld", &resident) == 1) pages += resident;
  }
  return pages * page;
}

int64_t NamelessBytes(const std::vector<pid_t>& processes) {
  int64_t bytes = 0;
  for (const pid_t process : processes) {
    const std::string path = StrCat("/proc/", process, "/fd");
    const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
    if (folder == nullptr) continue;
    while (const dirent* entry = ::readdir(folder.get())) {
      struct stat about {};
      if (::fstatat(::dirfd(folder.get()), entry->d_name, &about, 0) == 0 &&
          S_ISREG(about.st_mode) && about.st_nlink == 0) {
        bytes += about.st_blocks * 512;
      }
    }
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
      return Internal(left.size(), " processes of the program do not end, such as ", left.front());
    }
    ::usleep(500);
  }
}

}  // namespace freshet::sandbox
