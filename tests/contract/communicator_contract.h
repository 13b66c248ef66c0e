#ifndef FRESHET_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_H_

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "collective/communicator.h"
#include "gtest/gtest.h"

namespace freshet {

// What every Communicator promises. `Maker::Make(rank, size, group)` connects one rank; `group`
// distinguishes the groups of a test. Ranks are threads.
template <typename Maker>
class CommunicatorContract : public testing::Test {
 protected:
  using Group = std::vector<std::unique_ptr<Communicator>>;

  Group Connect(int size) {
    Group group(static_cast<size_t>(size));
    const int number = groups_++;
    ForEachRank(size, [&](int rank) {
      auto made = maker_.Make(rank, size, number);
      ASSERT_TRUE(made.ok()) << made.status();
      group[static_cast<size_t>(rank)] = *std::move(made);
    });
    return group;
  }
  static void ForEachRank(int size, const std::function<void(int rank)>& call) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) threads.emplace_back([&call, rank] { call(rank); });
  }
  static void ForEachRank(Group& group, const std::function<void(Communicator&)>& call) {
    ForEachRank(static_cast<int>(group.size()),
                [&](int rank) { call(*group[static_cast<size_t>(rank)]); });
  }
  // Numbers of which every sum of four is exact.
  static std::vector<float> Numbers(size_t count, int rank) {
    std::vector<float> numbers(count);
    for (size_t i = 0; i < count; ++i) {
      numbers[i] = static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 1001);
    }
    return numbers;
  }
  static std::vector<float> Sum(size_t count, int size) {
    std::vector<float> sum(count);
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<float> numbers = Numbers(count, rank);
      for (size_t i = 0; i < count; ++i) sum[i] += numbers[i];
    }
    return sum;
  }

  static constexpr absl::Duration kLong = absl::Minutes(2);
  static constexpr absl::Duration kShort = absl::Milliseconds(300);
  static constexpr std::array<int, 3> kSizes = {1, 2, 4};
  // One that is not a multiple of any buffer, and more than all buffers.
  static constexpr std::array<size_t, 4> kCounts = {0, 1, 1000, (size_t{2} << 20) + 3};
  Maker maker_;
  std::atomic<int> groups_ = 0;
};

TYPED_TEST_SUITE_P(CommunicatorContract);

TYPED_TEST_P(CommunicatorContract, AllReduceSumsOverTheRanks) {
  for (const int size : this->kSizes) {
    auto group = this->Connect(size);
    for (const size_t count : this->kCounts) {
      this->ForEachRank(group, [&](Communicator& rank) {
        std::vector<float> data = this->Numbers(count, rank.rank());
        ASSERT_EQ(rank.AllReduce(data, this->kLong), absl::OkStatus());
        EXPECT_TRUE(data == this->Sum(count, size)) << size << " ranks, " << count << " numbers";
      });
    }
  }
}

TYPED_TEST_P(CommunicatorContract, AllReduceGivesEveryRankTheSameBits) {
  constexpr int kRanks = 4;
  auto group = this->Connect(kRanks);
  std::vector<std::vector<float>> results(kRanks);
  this->ForEachRank(group, [&](Communicator& rank) {
    std::vector<float> data(10'001);
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = 1.0F / static_cast<float>(i + 3 + static_cast<size_t>(rank.rank()));
    }
    ASSERT_EQ(rank.AllReduce(data, this->kLong), absl::OkStatus());
    results[static_cast<size_t>(rank.rank())] = data;
  });
  for (const std::vector<float>& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

TYPED_TEST_P(CommunicatorContract, BroadcastCopiesFromTheRoot) {
  for (const int size : this->kSizes) {
    auto group = this->Connect(size);
    for (int root = 0; root < size; ++root) {
      for (const size_t count : this->kCounts) {
        this->ForEachRank(group, [&](Communicator& rank) {
          std::vector<float> data = this->Numbers(count, rank.rank());
          ASSERT_EQ(rank.Broadcast(std::as_writable_bytes(std::span(data)), root, this->kLong),
                    absl::OkStatus());
          EXPECT_TRUE(data == this->Numbers(count, root)) << size << " ranks, root " << root;
        });
      }
    }
  }
}

TYPED_TEST_P(CommunicatorContract, ReduceScatterGivesEveryRankItsPartOfTheSum) {
  for (const int size : this->kSizes) {
    auto group = this->Connect(size);
    for (const size_t count : this->kCounts) {
      this->ForEachRank(group, [&](Communicator& rank) {
        const size_t all = count * static_cast<size_t>(size);
        std::vector<float> own(count);
        ASSERT_EQ(rank.ReduceScatter(this->Numbers(all, rank.rank()), own, this->kLong),
                  absl::OkStatus());
        const std::vector<float> sum = this->Sum(all, size);
        EXPECT_TRUE(std::equal(own.begin(), own.end(),
                               sum.begin() + static_cast<ptrdiff_t>(count) * rank.rank()));
      });
    }
  }
}

TYPED_TEST_P(CommunicatorContract, AllGatherJoinsTheParts) {
  for (const int size : this->kSizes) {
    auto group = this->Connect(size);
    for (const size_t count : this->kCounts) {
      this->ForEachRank(group, [&](Communicator& rank) {
        const std::vector<float> own = this->Numbers(count, rank.rank());
        std::vector<float> all(count * static_cast<size_t>(size));
        ASSERT_EQ(rank.AllGather(std::as_bytes(std::span(own)),
                                 std::as_writable_bytes(std::span(all)), this->kLong),
                  absl::OkStatus());
        for (int other = 0; other < size; ++other) {
          const std::vector<float> part = this->Numbers(count, other);
          EXPECT_TRUE(std::equal(part.begin(), part.end(),
                                 all.begin() + static_cast<ptrdiff_t>(count) * other));
        }
      });
    }
  }
}

TYPED_TEST_P(CommunicatorContract, GatherJoinsThePartsOnRankZero) {
  for (const int size : this->kSizes) {
    auto group = this->Connect(size);
    for (const size_t count : this->kCounts) {
      this->ForEachRank(group, [&](Communicator& rank) {
        const std::vector<float> own = this->Numbers(count, rank.rank());
        std::vector<float> all(rank.rank() == 0 ? count * static_cast<size_t>(size) : 0);
        ASSERT_EQ(rank.Gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)),
                              this->kLong),
                  absl::OkStatus());
        for (int from = 0; from < size && rank.rank() == 0; ++from) {
          const std::vector<float> theirs = this->Numbers(count, from);
          EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(),
                                 all.begin() + static_cast<ptrdiff_t>(count) * from));
        }
      });
    }
  }
}

TYPED_TEST_P(CommunicatorContract, ABarrierWaitsForAll) {
  auto group = this->Connect(4);
  std::atomic<int> arrived = 0;
  this->ForEachRank(group, [&](Communicator& rank) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      ASSERT_EQ(rank.Barrier(this->kLong), absl::OkStatus());
      EXPECT_GE(arrived.load(), 4 * round);
      ASSERT_EQ(rank.Barrier(this->kLong), absl::OkStatus());
    }
  });
}

TYPED_TEST_P(CommunicatorContract, ArgumentsThatDoNotFitAreRefusedAndTheGroupWorksOn) {
  auto group = this->Connect(2);
  this->ForEachRank(group, [&](Communicator& rank) {
    std::vector<float> three(3);
    std::vector<float> two(2);
    const auto bytes = std::as_writable_bytes(std::span(three));
    for (const int root : {-1, 2}) {
      EXPECT_EQ(rank.Broadcast(bytes, root, this->kLong).code(),
                absl::StatusCode::kInvalidArgument);
    }
    EXPECT_EQ(rank.ReduceScatter(three, two, this->kLong).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank.AllGather(std::as_bytes(std::span(two)), bytes, this->kLong).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank.error(), absl::OkStatus());
    EXPECT_EQ(rank.Barrier(this->kLong), absl::OkStatus());
  });
}

TYPED_TEST_P(CommunicatorContract, ARankThatDoesNotTakePartIsADeadline) {
  auto group = this->Connect(2);
  std::vector<float> data(100);
  const absl::Status late = group[0]->AllReduce(data, this->kShort);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ(group[0]->error(), late);
  EXPECT_EQ(group[0]->Barrier(this->kLong), late) << "the ranks no longer agree on what comes next";
}

TYPED_TEST_P(CommunicatorContract, ARankThatIsGoneIsUnavailable) {
  auto group = this->Connect(3);
  this->ForEachRank(
      group, [&](Communicator& rank) { ASSERT_EQ(rank.Barrier(this->kLong), absl::OkStatus()); });
  group.pop_back();
  this->ForEachRank(group, [&](Communicator& rank) {
    std::vector<float> data(1000);
    const absl::Status gone = rank.AllReduce(data, this->kLong);
    EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable) << gone;
    EXPECT_EQ(rank.error(), gone);
  });
}

TYPED_TEST_P(CommunicatorContract, AbortEndsAnOperationInProgress) {
  auto group = this->Connect(2);
  Notification begins;
  std::jthread waiting([&] {
    std::vector<float> data(100);
    begins.Notify();
    const absl::Status aborted = group[0]->AllReduce(data, this->kLong);
    EXPECT_EQ(aborted, absl::AbortedError("rank 1 hangs"));
  });
  begins.WaitFor(this->kLong);
  group[0]->Abort("rank 1 hangs");
  waiting.join();
  EXPECT_EQ(group[0]->Barrier(this->kLong), absl::AbortedError("rank 1 hangs"));
}

REGISTER_TYPED_TEST_SUITE_P(CommunicatorContract, AllReduceSumsOverTheRanks,
                            AllReduceGivesEveryRankTheSameBits, BroadcastCopiesFromTheRoot,
                            ReduceScatterGivesEveryRankItsPartOfTheSum, AllGatherJoinsTheParts,
                            GatherJoinsThePartsOnRankZero, ABarrierWaitsForAll,
                            ArgumentsThatDoNotFitAreRefusedAndTheGroupWorksOn,
                            ARankThatDoesNotTakePartIsADeadline, ARankThatIsGoneIsUnavailable,
                            AbortEndsAnOperationInProgress);

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_H_
