#include "runlog/jsonl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"

namespace freshet {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 16;

// Offset just after the last newline in the first `size` bytes; 0 if there is none, -1 if the file
// cannot be read.
int64_t EndOfLastWholeLine(int fd, int64_t size) {
  std::vector<char> chunk(kChunkBytes);
  int64_t end = size;
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(kChunkBytes));
    const ssize_t got = ::pread(fd, chunk.data(), static_cast<size_t>(end - begin), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got != end - begin) return -1;
    for (int64_t i = got; i > 0; --i) {
      if (chunk[static_cast<size_t>(i - 1)] == '\n') return begin + i;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

absl::StatusOr<JsonlTail> ForEachLine(
    const std::string& path, size_t max_line_bytes,
    const std::function<absl::Status(int64_t number, std::string_view line)>& row) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path, ": cannot be opened: ", std::strerror(errno));
  std::vector<char> chunk(kChunkBytes);
  std::string pending;
  JsonlTail tail;
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    std::string_view rest(chunk.data(), static_cast<size_t>(file.gcount()));
    while (!rest.empty()) {
      const size_t newline = rest.find('\n');
      pending.append(rest.substr(0, newline));
      if (pending.size() > max_line_bytes) {
        return InvalidArgument(path, ":", tail.lines + 1, ": line longer than the limit of ",
                               max_line_bytes, " bytes");
      }
      if (newline == std::string_view::npos) break;
      rest.remove_prefix(newline + 1);
      FRESHET_RETURN_IF_ERROR(row(++tail.lines, pending));
      pending.clear();
    }
  }
  if (file.bad()) return NotFound(path, ": cannot be read");
  tail.torn_bytes = pending.size();
  return tail;
}

absl::StatusOr<uint64_t> CutTornLine(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) {
    if (errno == ENOENT) return NotFound(path, ": no such file");
    return WriteError(path, errno);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return WriteError(path, errno);
  const int64_t keep = EndOfLastWholeLine(fd.get(), info.st_size);
  if (keep < 0) return FailedPrecondition(path, ": cannot be read back");
  if (keep == info.st_size) return uint64_t{0};
  if (::ftruncate(fd.get(), keep) != 0 || ::fsync(fd.get()) != 0) return WriteError(path, errno);
  return static_cast<uint64_t>(info.st_size - keep);
}

absl::StatusOr<JsonlLog> JsonlLog::Open(const std::string& path) {
  const absl::StatusOr<uint64_t> cut = CutTornLine(path);
  if (!cut.ok() && !absl::IsNotFound(cut.status())) return cut.status();
  FRESHET_ASSIGN_OR_RETURN(LineAppender appender, LineAppender::Open(path));
  return JsonlLog(std::move(appender));
}

}  // namespace freshet
