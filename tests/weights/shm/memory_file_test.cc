#include "weights/shm/memory_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "weights/shm/memory_file_reader.h"

namespace freshet {
namespace {

constexpr int64_t kBytes = 10'007;
constexpr int64_t kBucket = 64;
// The kernel refuses it, as an older one refuses F_SEAL_FUTURE_WRITE.
constexpr int kUnknownSeal = 1 << 30;

VersionForTest Version(int64_t number, int64_t size = kBytes) {
  return MakeVersion({0, number}, 1, size, kBucket);
}

WeightBytes Stage(MemoryFileStager& stager, const VersionForTest& version) {
  WeightManifest manifest;
  auto staged = stager.Stage(*version.bytes, kBucket, manifest);
  EXPECT_TRUE(staged.ok()) << staged.status();
  EXPECT_EQ(manifest.content_hash, version.manifest.content_hash);
  return *staged;
}

// A file of this process as others see it; closes it on destruction.
class OtherEnd {
 public:
  explicit OtherEnd(const std::string& path, int flags = O_RDONLY)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {
    EXPECT_GE(fd_, 0);
  }
  ~OtherEnd() { ::close(fd_); }
  int fd() const { return fd_; }
  // Whether nobody holds a lock; releases its own again.
  bool Free() const { return ::flock(fd_, LOCK_EX | LOCK_NB) == 0 && ::flock(fd_, LOCK_UN) == 0; }

 private:
  const int fd_;
};

// A forked process that has run `task` and lives until it is killed.
class Child {
 public:
  explicit Child(const std::function<int()>& task) {
    int told[2];
    EXPECT_EQ(::pipe(told), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int result = task();
      if (::write(told[1], &result, sizeof(result)) != static_cast<ssize_t>(sizeof(result))) {
        ::_exit(1);
      }
      while (true) ::pause();
    }
    EXPECT_EQ(::read(told[0], &result_, sizeof(result_)), static_cast<ssize_t>(sizeof(result_)));
    ::close(told[0]);
    ::close(told[1]);
  }
  ~Child() { Kill(); }
  pid_t pid() const { return pid_; }
  int result() const { return result_; }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int result_ = -1;
};

// Mappings of memory files in this process, with these permissions.
int Mappings(const std::string& permissions) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:freshet-weights") != std::string::npos &&
        line.find(permissions) != std::string::npos) {
      ++count;
    }
  }
  return count;
}

TEST(MemoryFile, HoldsACopyThatOthersMap) {
  for (const int seal : {F_SEAL_FUTURE_WRITE, kUnknownSeal}) {
    for (const int64_t size : {0, 1, 64, 65, 1'000'003}) {
      const VersionForTest version = Version(1, size);
      MemoryFileStager stager(seal);
      WeightBytes staged = Stage(stager, version);
      EXPECT_EQ(*staged, *version.bytes);
      MemoryFileReader reader;
      const auto mapped = reader.Map(MemoryFilePath(*staged), version.manifest);
      ASSERT_TRUE(mapped.ok()) << mapped.status();
      if (size > 0) {
        EXPECT_NE((*mapped)->data(), staged->data());
      }
      // The mapping outlives the file descriptors.
      staged.reset();
      EXPECT_EQ(**mapped, *version.bytes);
    }
  }
}

TEST(MemoryFile, OutlivesTheProcessThatMadeIt) {
  const VersionForTest version = Version(1);
  MemoryFileStager stager;
  WeightBytes staged;
  Child trainer([&] {
    staged = Stage(stager, version);
    return staged->shared_fd();
  });
  MemoryFileReader reader;
  const auto mapped =
      reader.Map(StrCat("/proc/", trainer.pid(), "/fd/", trainer.result()), version.manifest);
  trainer.Kill();
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ(**mapped, *version.bytes);
}

TEST(MemoryFile, CannotBeChangedByOthers) {
  for (const int seal : {F_SEAL_FUTURE_WRITE, kUnknownSeal}) {
    MemoryFileStager stager(seal);
    const WeightBytes staged = Stage(stager, Version(1));
    const OtherEnd other(MemoryFilePath(*staged), O_RDWR);
    EXPECT_EQ(::pwrite(other.fd(), "x", 1, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(other.fd(), 10), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::fallocate(other.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::mmap(nullptr, 100, PROT_READ | PROT_WRITE, MAP_SHARED, other.fd(), 0), MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
    const OtherEnd read_only(MemoryFilePath(*staged));
    void* mapped = ::mmap(nullptr, 100, PROT_READ, MAP_SHARED, read_only.fd(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(::mprotect(mapped, 100, PROT_READ | PROT_WRITE), -1);
    ::munmap(mapped, 100);
  }
}

TEST(MemoryFile, IsUsedAgainOnceNobodyHoldsIt) {
  const VersionForTest first = Version(1);
  const VersionForTest second = Version(2);
  MemoryFileStager stager;
  MemoryFileReader reader;
  WeightBytes staged = Stage(stager, first);
  const std::byte* written = staged->data();
  auto mapped = reader.Map(MemoryFilePath(*staged), first.manifest);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const std::byte* read = (*mapped)->data();
  mapped->reset();
  staged.reset();
  staged = Stage(stager, second);
  EXPECT_EQ(staged->data(), written);
  mapped = reader.Map(MemoryFilePath(*staged), second.manifest);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ((*mapped)->data(), read);
  EXPECT_EQ(**mapped, *second.bytes);
}

TEST(MemoryFile, IsNotUsedAgainWhileItsTrainerOrAnEngineHoldsIt) {
  const VersionForTest first = Version(1);
  MemoryFileStager stager;
  MemoryFileReader reader;
  WeightBytes staged = Stage(stager, first);
  const WeightBytes second = Stage(stager, Version(2));
  EXPECT_EQ(*staged, *first.bytes);
  const auto mapped = reader.Map(MemoryFilePath(*staged), first.manifest);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  staged.reset();
  const WeightBytes third = Stage(stager, Version(3));
  EXPECT_EQ(**mapped, *first.bytes);
  EXPECT_EQ(*second, *Version(2).bytes);
  EXPECT_EQ(*third, *Version(3).bytes);
}

TEST(MemoryFile, IsFreeOnceTheEngineThatHeldItIsDead) {
  const VersionForTest version = Version(1);
  MemoryFileStager stager;
  WeightBytes staged = Stage(stager, version);
  const std::byte* written = staged->data();
  MemoryFileReader reader;
  absl::StatusOr<WeightBytes> mapped;
  const std::string path = MemoryFilePath(*staged);
  Child engine([&] {
    mapped = reader.Map(path, version.manifest);
    return mapped.ok() ? 1 : 0;
  });
  ASSERT_EQ(engine.result(), 1);
  EXPECT_FALSE(OtherEnd(path).Free());
  engine.Kill();
  EXPECT_TRUE(OtherEnd(path).Free());
  staged.reset();
  EXPECT_EQ(Stage(stager, Version(2))->data(), written);
}

TEST(MemoryFile, IsFreeOnceItsEngineReleasesItEvenIfAForkInheritedIt) {
  const VersionForTest version = Version(1);
  MemoryFileStager stager;
  const WeightBytes staged = Stage(stager, version);
  MemoryFileReader reader;
  auto mapped = reader.Map(MemoryFilePath(*staged), version.manifest);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const OtherEnd other(MemoryFilePath(*staged));
  const Child fork([] { return 0; });
  EXPECT_FALSE(other.Free());
  mapped->reset();
  EXPECT_TRUE(other.Free());
}

TEST(MemoryFile, AnEngineThatIsLateFindsThatItHoldsAnotherVersion) {
  const VersionForTest first = Version(1);
  MemoryFileStager stager;
  WeightBytes staged = Stage(stager, first);
  const std::string path = MemoryFilePath(*staged);
  staged.reset();
  staged = Stage(stager, Version(2));
  ASSERT_EQ(MemoryFilePath(*staged), path);
  MemoryFileReader reader;
  EXPECT_EQ(reader.Map(path, first.manifest).status().code(), absl::StatusCode::kDataLoss);
  // It holds no lock then.
  EXPECT_TRUE(OtherEnd(path).Free());
}

TEST(MemoryFile, CannotBeReadWhileItIsWritten) {
  const VersionForTest version = Version(1);
  MemoryFileStager stager;
  const WeightBytes staged = Stage(stager, version);
  const OtherEnd writer(MemoryFilePath(*staged));
  ASSERT_EQ(::flock(writer.fd(), LOCK_EX | LOCK_NB), 0);
  MemoryFileReader reader;
  EXPECT_EQ(reader.Map(MemoryFilePath(*staged), version.manifest).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(MemoryFile, ManyFilesLeaveOneFreeAtTheTrainerAndTwoMappedByTheEngine) {
  MemoryFileStager stager;
  {
    MemoryFileReader reader;
    std::vector<WeightBytes> held;
    for (int64_t number = 1; number <= 4; ++number) {
      const VersionForTest version = Version(number);
      held.push_back(Stage(stager, version));
      const auto mapped = reader.Map(MemoryFilePath(*held.back()), version.manifest);
      ASSERT_TRUE(mapped.ok()) << mapped.status();
    }
    EXPECT_EQ(Mappings("rw-s"), 4);
    EXPECT_EQ(Mappings("r--s"), 2);
  }
  EXPECT_EQ(Mappings("r--s"), 0);
  Stage(stager, Version(5));
  EXPECT_EQ(Mappings("rw-s"), 1);
  Stage(stager, Version(6, kBytes + 1));
  EXPECT_EQ(Mappings("rw-s"), 1);
}

TEST(MemoryFile, WithoutTheSealEveryVersionGetsAFileThatNobodyCanChange) {
  const VersionForTest first = Version(1);
  // 0 is a seal that is accepted but has no effect.
  for (const int seal : {kUnknownSeal, 0}) {
    MemoryFileStager stager(seal);
    MemoryFileReader reader;
    WeightBytes staged = Stage(stager, first);
    EXPECT_NE(::fcntl(staged->shared_fd(), F_GET_SEALS) & F_SEAL_WRITE, 0);
    const auto mapped = reader.Map(MemoryFilePath(*staged), first.manifest);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    staged.reset();
    Stage(stager, Version(2));
    EXPECT_EQ(**mapped, *first.bytes);
  }
}

TEST(MemoryFile, HeapBytesAreCopiedAndSharedOnesAreNot) {
  const WeightBytes heap = PatternBytes(1000, 1);
  const auto file = InMemoryFile(heap);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(**file, *heap);
  EXPECT_GE((*file)->shared_fd(), 0);
  EXPECT_EQ(InMemoryFile(*file)->get(), file->get());
}

TEST(MemoryFileReader, RefusesAPathOfAnotherForm) {
  MemoryFileReader reader;
  for (const char* path :
       {"", "/etc/passwd", "/proc/self/fd/3", "/proc/1/fd/3/..", "/proc/1/fd/", "/proc//fd/3",
        "/proc/1/mem", "/proc/1/fd/3 ", "/proc/-1/fd/3", "/proc/1/fd/99999999999", "proc/1/fd/3"}) {
    EXPECT_EQ(reader.Map(path, Version(1).manifest).status().code(),
              absl::StatusCode::kInvalidArgument)
        << path;
  }
}

TEST(MemoryFileReader, SaysThatTheProcessIsOutOfDescriptors) {
  const VersionForTest version = Version(1);
  MemoryFileStager stager;
  const WeightBytes staged = Stage(stager, version);
  const std::string path = MemoryFilePath(*staged);
  MemoryFileReader reader;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = reader.Map(path, version.manifest).status();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(reader.Map(path, version.manifest).ok());
}

TEST(MemoryFileReader, RefusesWhatIsNotASealedFileOfThatSize) {
  const VersionForTest version = Version(1, 4);
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::write(fd, version.bytes->data(), 4), 4);
  const std::string path = StrCat("/proc/", ::getpid(), "/fd/", fd);
  MemoryFileReader reader;
  const auto code = [&](const std::string& at, const VersionForTest& of) {
    return reader.Map(at, of.manifest).status().code();
  };
  constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
  EXPECT_EQ(code(path, version), kUnimplemented);
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(code(path, version), kUnimplemented) << "writable";
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), 0);
  EXPECT_EQ(code(path, version), absl::StatusCode::kOk);
  EXPECT_EQ(code(path, Version(1, 5)), kUnimplemented);
  EXPECT_EQ(code(path, Version(1, 3)), kUnimplemented);
  EXPECT_EQ(code(path, Version(2, 4)), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code(StrCat("/proc/", ::getpid(), "/fd/9999"), version), kUnimplemented);
  ::close(fd);
}

}  // namespace
}  // namespace freshet
