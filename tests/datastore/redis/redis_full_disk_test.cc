// The store while the disk of Redis is full. Skipped without the permission to mount.
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <thread>

#include "base/mutex.h"
#include "datastore/retrying_trajectory_store.h"
#include "tests/datastore/redis/redis_store_fixture.h"

namespace freshet {
namespace {

// Redis keeps its data on a small file system, in a mount namespace of this test's own.
class RedisFullDisk : public RedisStoreTest {
 protected:
  RedisFullDisk() { options_.staleness.groups_per_step = 20; }
  // Skips the test where nothing can be mounted.
  void StartOnSmallDisk(const std::string& appendfsync) {
    std::string folder = (std::filesystem::temp_directory_path() / "freshet-disk-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    disk_ = folder;
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=2m") != 0) {
      GTEST_SKIP() << "a file system cannot be mounted here";
    }
    StartServer({{"dir", disk_}, {"appendfsync", appendfsync}});
  }
  void MakeRoom() {
    ASSERT_EQ(::mount("tmpfs", disk_.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
  }
  void TearDown() override {
    if (disk_.empty()) return;
    server_.reset();
    ::umount2(disk_.c_str(), MNT_DETACH);
    std::filesystem::remove(disk_);
  }
  // Puts samples until one is refused; returns why, and counts those that were acknowledged.
  absl::Status Fill(const std::vector<GroupLease>& leases) {
    for (const GroupLease& lease : leases) {
      for (const int32_t index : lease.missing) {
        const absl::Status put = store().PutSample(lease.token, index, ResponseAt(0, 20'000));
        if (!put.ok()) return put;
        ++acknowledged_;
      }
    }
    return absl::OkStatus();
  }

  std::string disk_;
  int64_t acknowledged_ = 0;
};

// redis-server 7.0 exits and has acknowledged nothing that it could not write.
TEST_F(RedisFullDisk, WithFsyncAlwaysTheServerEndsAndAllThatItAcknowledgedIsThere) {
  StartOnSmallDisk("always");
  if (IsSkipped()) return;
  const auto leases = Lease(0, 20);
  EXPECT_EQ(Fill(leases).code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(acknowledged_, 0);
  // A new process reads what is there, but ends at its next write while there is no room.
  ASSERT_TRUE(server_->Restart().ok());
  EXPECT_EQ(Redis({"HLEN", "{job}:stats"}).kind, RedisReply::Kind::kInteger);
  EXPECT_EQ(Fill({leases[19]}).code(), absl::StatusCode::kUnavailable);
  MakeRoom();
  ASSERT_TRUE(server_->Restart().ok());
  EXPECT_EQ(store().Stats()->samples_put, acknowledged_);
  EXPECT_TRUE(Fill(leases).ok());
  EXPECT_EQ(store().Stats()->samples_put, 40);
}

// It goes on answering reads and refuses writes with MISCONF, until a write succeeds again.
TEST_F(RedisFullDisk, WithFsyncEverySecondWritesAreRefusedAndWaitedFor) {
  StartOnSmallDisk("everysec");
  if (IsSkipped()) return;
  const auto leases = Lease(0, 20);
  const absl::Status full = Fill(leases);
  EXPECT_EQ(full.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(full), HasSubstr("MISCONF"));
  EXPECT_TRUE(store().ReadLedger(0, 10).ok());
  Notification waits;
  RetryOptions options;
  options.on_outage = [&waits](const absl::Status&) { waits.Notify(); };
  RetryingTrajectoryStore retrying(store(), SystemClock::Get(), options);
  absl::Status put = absl::UnknownError("not tried");
  std::thread caller([&] {
    put = retrying.PutSample(leases[19].token, leases[19].missing[0], ResponseAt(0, 20'000));
    if (!waits.HasBeenNotified()) waits.Notify();
  });
  EXPECT_TRUE(waits.WaitFor(absl::Seconds(10)));
  MakeRoom();
  caller.join();
  EXPECT_TRUE(put.ok()) << put;
  EXPECT_GT(retrying.retries(), 0);
  EXPECT_TRUE(Fill(leases).ok());
  EXPECT_EQ(store().Stats()->samples_put, 40);
}

}  // namespace
}  // namespace freshet
