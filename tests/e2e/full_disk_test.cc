// Disks that are full or become full during a run. Needs permission to mount; skipped otherwise.
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>

#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Mounts a small file system for the program under test in a private mount namespace.
class FullDiskTest : public FreshetFixture {
 protected:
  void MountDisk(const std::string& size) {
    std::filesystem::create_directory(Path("disk"));
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", Path("disk").c_str(), "tmpfs", 0, ("size=" + size).c_str()) != 0) {
      GTEST_SKIP() << "a file system cannot be mounted here";
    }
    mounted_ = true;
  }
  void Resize(const std::string& size) {
    ASSERT_EQ(::mount("tmpfs", Path("disk").c_str(), "tmpfs", MS_REMOUNT, ("size=" + size).c_str()),
              0);
  }
  void TearDown() override {
    if (mounted_) ::umount2(Path("disk").c_str(), MNT_DETACH);
  }
  ChildResult Run(const TinyJob& job) {
    WriteJob(job);
    return Freshet({"local", "job.yaml", "--run-dir", "disk/run"});
  }
  // Expects a clear error and intact files, and that the run can be resumed with more space.
  void ExpectFullThenResume(const ChildResult& result, int64_t steps) {
    EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("disk/run/"), HasSubstr("No space left on device")));
    EXPECT_THAT(result.out, HasSubstr("--resume disk/run"));
    for (const char* name : {"disk/run/ledger.jsonl", "disk/run/metrics.jsonl"}) {
      const std::string text = folder_.Read(name);
      EXPECT_TRUE(text.empty() || text.back() == '\n') << name << " ends within a line";
      Rows(name);
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Path("disk/run"))) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
    EXPECT_EQ(Freshet({"ledger", "verify", "disk/run"}).exit_code, 0);
    Resize("64m");
    const ChildResult resumed = Freshet({"local", "--resume", "disk/run"});
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    std::filesystem::create_directory_symlink("disk/run", Path("run"));
    ExpectComplete(steps);
  }

 private:
  bool mounted_ = false;
};

TEST_F(FullDiskTest, NothingIsLeftWhenTheRunCannotBegin) {
  MountDisk("16k");
  if (IsSkipped()) return;
  folder_.Write("disk/filler", std::string(16 << 10, 'x'));
  const ChildResult result = Run(MakeTinyJob());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("disk/run"), HasSubstr("No space left on device")));
  EXPECT_FALSE(Exists("disk/run"));
}

TEST_F(FullDiskTest, FullBeforeTheFirstCheckpoint) {
  MountDisk("64k");
  if (IsSkipped()) return;
  ExpectFullThenResume(Run(MakeTinyJob()), 6);
}

TEST_F(FullDiskTest, FullAtALaterCheckpoint) {
  MountDisk("360k");
  if (IsSkipped()) return;
  ExpectFullThenResume(Run(MakeTinyJob()), 6);
}

TEST_F(FullDiskTest, FullInTheMiddleOfTheLedger) {
  MountDisk("500k");
  if (IsSkipped()) return;
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 60}";
  job["checkpoint"] = "{every_steps: 50}";
  job["output"] = "{samples_per_step: 0}";
  ExpectFullThenResume(Run(job), 60);
}

}  // namespace
}  // namespace freshet
