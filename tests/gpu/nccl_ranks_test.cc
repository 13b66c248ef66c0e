// NCCL between processes that share one GPU. Runs where FRESHET_TEST_DEVICE names a GPU.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/str_cat.h"
#include "collective/nccl_communicator.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr int kRanks = 2;
constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Seconds(3);
constexpr int kSecondsUntilKilled = 120;  // a rank that hangs fails the test

// A rank's work: returns what is wrong, or "".
using Work = std::function<std::string(Communicator& rank)>;

std::string RunRank(int rank, const std::array<int, 2>& pipe, const Work& work) {
  // NCCL refuses two ranks on one GPU of one host.
  setenv("NCCL_HOSTID", StrCat("rank", rank).c_str(), 1);
  auto library = NcclLibrary::Load({});
  if (!library.ok()) return std::string(library.status().message());
  NcclOptions options;
  options.rank = rank;
  options.size = kRanks;
  options.connect_timeout = kLong;
  auto* id = options.id.bytes.data();
  const size_t size = options.id.bytes.size();
  if (rank == 0) {
    const auto made = MakeNcclUniqueId(**library);
    if (!made.ok()) return std::string(made.status().message());
    options.id = *made;
    if (write(pipe[1], id, size) != static_cast<ssize_t>(size)) return "cannot send the id";
  } else if (read(pipe[0], id, size) != static_cast<ssize_t>(size)) {
    return "no id came";
  }
  const auto communicator = ConnectNccl(*library, options);
  if (!communicator.ok()) return std::string(communicator.status().message());
  return work(**communicator);
}

class NcclRanksTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* device = std::getenv("FRESHET_TEST_DEVICE");
    if (device == nullptr || std::string(device) == "cpu") {
      GTEST_SKIP() << "needs a GPU: set FRESHET_TEST_DEVICE=cuda";
    }
  }

  // Runs `work` in kRanks processes. CUDA must not be in use in this one.
  static void ForEachRank(const Work& work) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    std::vector<pid_t> children;
    for (int rank = 0; rank < kRanks; ++rank) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        alarm(kSecondsUntilKilled);
        const std::string wrong = RunRank(rank, pipe, work);
        if (!wrong.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, wrong.c_str());
        _exit(wrong.empty() ? 0 : 1);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    close(pipe[0]);
    close(pipe[1]);
  }
};

float Number(size_t i, int rank) {
  return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 1001);
}

std::string CheckOperations(Communicator& rank) {
  const int own = rank.rank();
  for (const size_t count : {size_t{1}, size_t{1000}, (size_t{20} << 20) + 3}) {
    std::vector<float> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = Number(i, own);
    absl::Status status = rank.AllReduce(data, kLong);
    if (!status.ok()) return StrCat("all-reduce: ", status.message());
    for (size_t i = 0; i < count; ++i) {
      if (data[i] != Number(i, 0) + Number(i, 1)) return StrCat("all-reduce: element ", i);
    }
    for (size_t i = 0; i < count; ++i) data[i] = Number(i, own);
    status = rank.Broadcast(std::as_writable_bytes(std::span(data)), /*root=*/1, kLong);
    if (!status.ok()) return StrCat("broadcast: ", status.message());
    for (size_t i = 0; i < count; ++i) {
      if (data[i] != Number(i, 1)) return StrCat("broadcast: element ", i);
    }
    std::vector<float> parts(count * kRanks);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = Number(i, own);
    status = rank.ReduceScatter(parts, data, kLong);
    if (!status.ok()) return StrCat("reduce-scatter: ", status.message());
    for (size_t i = 0; i < count; ++i) {
      const size_t place = static_cast<size_t>(own) * count + i;
      if (data[i] != Number(place, 0) + Number(place, 1)) {
        return StrCat("reduce-scatter: element ", i);
      }
    }
    status = rank.AllGather(std::as_bytes(std::span(data)),
                            std::as_writable_bytes(std::span(parts)), kLong);
    if (!status.ok()) return StrCat("all-gather: ", status.message());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] != Number(i, 0) + Number(i, 1)) return StrCat("all-gather: element ", i);
    }
  }
  const absl::Status status = rank.Barrier(kLong);
  return status.ok() ? "" : StrCat("barrier: ", status.message());
}

TEST_F(NcclRanksTest, EveryOperationBetweenTwoProcesses) { ForEachRank(CheckOperations); }

TEST_F(NcclRanksTest, ARankThatDiesIsAnErrorBeforeTheDeadlineOrAtIt) {
  ForEachRank([](Communicator& rank) -> std::string {
    std::vector<float> data(size_t{20} << 20);
    absl::Status status = rank.AllReduce(data, kLong);
    if (!status.ok()) return std::string(status.message());
    if (rank.rank() == 1) _exit(0);  // with its GPU memory and connections
    const absl::Time start = SystemClock::Get().Now();
    status = rank.AllReduce(data, kShort);
    const absl::Duration waited = SystemClock::Get().Now() - start;
    std::printf("a dead rank was noticed after %s: %s\n", absl::FormatDuration(waited).c_str(),
                status.ToString().c_str());
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      return StrCat("all-reduce with a dead rank: ", status.ToString());
    }
    return rank.Barrier(kShort) == status ? "" : "a later operation has another error";
  });
}

TEST_F(NcclRanksTest, ARankThatHangsIsAnErrorAtTheDeadline) {
  ForEachRank([](Communicator& rank) -> std::string {
    std::vector<float> data(size_t{20} << 20);
    absl::Status status = rank.AllReduce(data, kLong);
    if (!status.ok()) return std::string(status.message());
    if (rank.rank() == 1) {
      // Calls when the other one no longer waits.
      sleep(2 * static_cast<unsigned>(absl::ToInt64Seconds(kShort)));
      status = rank.AllReduce(data, kShort);
      return status.ok() ? "an all-reduce without the other rank succeeded" : "";
    }
    status = rank.AllReduce(data, kShort);
    return absl::IsDeadlineExceeded(status)
               ? ""
               : StrCat("all-reduce with a hung rank: ", status.ToString());
  });
}

TEST_F(NcclRanksTest, BroadcastOfHostMemoryInGigabytesPerSecond) {
  ForEachRank([](Communicator& rank) -> std::string {
    constexpr size_t kBytes = size_t{830} << 20;
    std::vector<std::byte> data(kBytes);
    for (int round = 0; round < 4; ++round) {
      const absl::Time start = SystemClock::Get().Now();
      const absl::Status status = rank.Broadcast(data, /*root=*/0, kLong);
      if (!status.ok()) return std::string(status.message());
      if (rank.rank() == 0) {
        const double seconds = absl::ToDoubleSeconds(SystemClock::Get().Now() - start);
        std::printf("broadcast of %zu MB: %.3f s, %.2f GB/s\n", kBytes >> 20, seconds,
                    static_cast<double>(kBytes) / seconds / 1e9);
        std::fflush(stdout);
      }
    }
    return "";
  });
}

}  // namespace
}  // namespace freshet
