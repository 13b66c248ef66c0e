#include "weights/shm/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"

namespace freshet {
namespace {

constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

// Opens a memory file of this process; closes it on destruction.
class OpenFile {
 public:
  explicit OpenFile(unsigned int flags) : fd_(::memfd_create("test", flags)) {
    EXPECT_EQ(::write(fd_, "abcd", 4), 4);
  }
  ~OpenFile() { ::close(fd_); }
  int fd() const { return fd_; }
  std::string path() const { return StrCat("/proc/", ::getpid(), "/fd/", fd_); }

 private:
  const int fd_;
};

WeightBytes Stage(const VersionForTest& version, WeightManifest& manifest) {
  MemoryFileStager stager;
  auto staged = stager.Stage(*version.bytes, 64, manifest);
  EXPECT_TRUE(staged.ok()) << staged.status();
  return *staged;
}

TEST(MemoryFile, StagesACopyThatVerifies) {
  for (const int64_t size : {0, 1, 64, 65, 1'000'003}) {
    const VersionForTest version = MakeVersion({0, 1}, 1, size, 64);
    WeightManifest manifest;
    const WeightBytes staged = Stage(version, manifest);
    EXPECT_EQ(*staged, *version.bytes);
    EXPECT_EQ(manifest.bucket_hashes, version.manifest.bucket_hashes);
    EXPECT_EQ(manifest.content_hash, version.manifest.content_hash);
    EXPECT_GE(staged->shared_fd(), 0);
  }
}

TEST(MemoryFile, IsMappedWithoutACopyByWhoeverHasItsPath) {
  const VersionForTest version = MakeVersion({0, 1}, 1, 10'007, 64);
  WeightManifest manifest;
  WeightBytes staged = Stage(version, manifest);
  const auto mapped = MapMemoryFile(MemoryFilePath(*staged), 10'007);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_NE((*mapped)->data(), staged->data());
  // The mapping outlives the file descriptors.
  staged.reset();
  EXPECT_EQ(**mapped, *version.bytes);
}

TEST(MemoryFile, OutlivesTheProcessThatMadeIt) {
  const VersionForTest version = MakeVersion({0, 1}, 1, 10'007, 64);
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    WeightManifest manifest;
    MemoryFileStager stager;
    const auto staged = stager.Stage(*version.bytes, 64, manifest);
    const int fd = staged.ok() ? (*staged)->shared_fd() : -1;
    if (::write(told[1], &fd, sizeof(fd)) != static_cast<ssize_t>(sizeof(fd))) ::_exit(1);
    while (true) ::pause();
  }
  int fd = -1;
  ASSERT_EQ(::read(told[0], &fd, sizeof(fd)), static_cast<ssize_t>(sizeof(fd)));
  const auto mapped = MapMemoryFile(StrCat("/proc/", child, "/fd/", fd), 10'007);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(**mapped, *version.bytes);
  EXPECT_TRUE(VerifyBuckets(version.manifest, **mapped).ok());
  ::close(told[0]);
  ::close(told[1]);
}

TEST(MemoryFile, CannotBeChangedByAnyone) {
  WeightManifest manifest;
  const WeightBytes staged = Stage(MakeVersion({0, 1}, 1, 100, 64), manifest);
  EXPECT_EQ(::write(staged->shared_fd(), "x", 1), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::ftruncate(staged->shared_fd(), 10), 0);
  EXPECT_EQ(::mmap(nullptr, 100, PROT_READ | PROT_WRITE, MAP_SHARED, staged->shared_fd(), 0),
            MAP_FAILED);
}

TEST(MemoryFile, HeapBytesAreCopiedAndSharedOnesAreNot) {
  const WeightBytes heap = PatternBytes(1000, 1);
  const auto file = InMemoryFile(heap);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(**file, *heap);
  EXPECT_GE((*file)->shared_fd(), 0);
  EXPECT_EQ(InMemoryFile(*file)->get(), file->get());
}

TEST(MemoryFile, RefusesAPathOfAnotherForm) {
  for (const char* path :
       {"", "/etc/passwd", "/proc/self/fd/3", "/proc/1/fd/3/..", "/proc/1/fd/", "/proc//fd/3",
        "/proc/1/mem", "/proc/1/fd/3 ", "/proc/-1/fd/3", "/proc/1/fd/99999999999", "proc/1/fd/3"}) {
    EXPECT_EQ(MapMemoryFile(path, 4).status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
}

TEST(MemoryFile, RefusesWhatIsNotASealedFileOfThatSize) {
  const OpenFile unsealed(MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(MapMemoryFile(unsealed.path(), 4).status().code(), kUnimplemented);
  ASSERT_EQ(::fcntl(unsealed.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(MapMemoryFile(unsealed.path(), 4).status().code(), kUnimplemented) << "writable";
  ASSERT_EQ(::fcntl(unsealed.fd(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), 0);
  EXPECT_TRUE(MapMemoryFile(unsealed.path(), 4).ok());
  EXPECT_EQ(MapMemoryFile(unsealed.path(), 5).status().code(), kUnimplemented);
  EXPECT_EQ(MapMemoryFile(unsealed.path(), 3).status().code(), kUnimplemented);
  EXPECT_EQ(MapMemoryFile(StrCat("/proc/", ::getpid(), "/fd/9999"), 4).status().code(),
            kUnimplemented);
}

}  // namespace
}  // namespace freshet
