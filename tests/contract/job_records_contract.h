#ifndef FRESHET_TESTS_CONTRACT_JOB_RECORDS_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_JOB_RECORDS_CONTRACT_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/str_cat.h"
#include "datastore/job_records.h"
#include "gtest/gtest.h"

namespace freshet {

// The implementation under test. `create` returns an empty store, or null if not available.
struct JobRecordsBackend {
  std::string name;
  std::function<std::shared_ptr<JobRecordStore>()> create;
};
inline void PrintTo(const JobRecordsBackend& backend, std::ostream* out) { *out << backend.name; }

class JobRecordsContract : public testing::TestWithParam<JobRecordsBackend> {
 protected:
  void SetUp() override {
    records_ = GetParam().create();
    if (records_ == nullptr) GTEST_SKIP() << "the backend is not installed";
  }
  JobRecordStore& records() { return *records_; }

 private:
  std::shared_ptr<JobRecordStore> records_;
};

TEST_P(JobRecordsContract, CreatedRecordIsReadBack) {
  const std::string value("{\"a\":\0 1}\r\n 7 ", 14);
  const auto revision = records().Create("job-1", value, 1);
  ASSERT_TRUE(revision.ok()) << revision.status();
  EXPECT_GE(*revision, 1);
  const auto record = records().Get("job-1");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->id, "job-1");
  EXPECT_EQ(record->revision, *revision);
  EXPECT_EQ(record->value, value);
}

TEST_P(JobRecordsContract, SecondCreateIsRefusedAndChangesNothing) {
  ASSERT_TRUE(records().Create("j", "first", 1).ok());
  EXPECT_EQ(records().Create("j", "second", 1).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(records().Get("j")->value, "first");
}

TEST_P(JobRecordsContract, UpdateNeedsTheRevisionItRead) {
  const int64_t first = *records().Create("j", "1", 1);
  const auto second = records().Update("j", first, "2", 1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GT(*second, first);
  EXPECT_EQ(records().Update("j", first, "lost", 1).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(records().Get("j")->value, "2");
  EXPECT_EQ(records().Get("j")->revision, *second);
}

TEST_P(JobRecordsContract, UpdateAndGetOfNothingAreNotFound) {
  EXPECT_EQ(records().Update("j", 1, "x", 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(records().Get("j").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(JobRecordsContract, DeletedRecordIsGoneAndItsRevisionNeverComesAgain) {
  const int64_t first = *records().Create("j", "x", 1);
  EXPECT_TRUE(records().Delete("j", 1).ok());
  EXPECT_EQ(records().Get("j").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(records().Delete("j", 1).ok());
  const int64_t second = *records().Create("j", "y", 1);
  EXPECT_GT(second, first);
  EXPECT_EQ(records().Update("j", first, "z", 1).status().code(), absl::StatusCode::kAborted);
}

TEST_P(JobRecordsContract, ListGivesAllById) {
  EXPECT_TRUE(records().List()->empty());
  for (int i = 99; i >= 0; --i) {
    ASSERT_TRUE(records().Create(StrCat("job-", 1000 + i), StrCat("value ", i), 1).ok());
  }
  const auto all = records().List();
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 100u);
  for (size_t i = 0; i < all->size(); ++i) {
    EXPECT_EQ((*all)[i].id, StrCat("job-", 1000 + i));
    EXPECT_EQ((*all)[i].value, StrCat("value ", i));
    EXPECT_EQ((*all)[i].revision, records().Get((*all)[i].id)->revision);
  }
}

TEST_P(JobRecordsContract, OlderFenceIsRefusedInEveryWrite) {
  const int64_t revision = *records().Create("j", "x", 5);
  EXPECT_TRUE(records().Update("j", revision, "y", 5).ok());
  const auto refused = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(records().Create("k", "x", 4).status().code(), refused);
  EXPECT_EQ(records().Update("j", revision + 1, "z", 4).status().code(), refused);
  EXPECT_EQ(records().Delete("j", 4).code(), refused);
  EXPECT_EQ(records().Fence(4).code(), refused);
  EXPECT_EQ(records().Get("j")->value, "y");
  EXPECT_EQ(records().Get("k").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(JobRecordsContract, FenceAloneShutsOutTheFormerLeader) {
  ASSERT_TRUE(records().Create("j", "x", 1).ok());
  EXPECT_TRUE(records().Fence(2).ok());
  EXPECT_TRUE(records().Fence(2).ok());
  EXPECT_EQ(records().Delete("j", 1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(records().Delete("j", 2).ok());
}

TEST_P(JobRecordsContract, FenceCountsAlsoWhenTheWriteIsRefusedForAnotherReason) {
  EXPECT_EQ(records().Update("j", 1, "x", 7).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(records().Create("j", "x", 6).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(JobRecordsContract, BadArgumentsAreRefused) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(records().Create("", "x", 1).status().code(), bad);
  EXPECT_EQ(records().Create(std::string(kMaxRecordIdBytes + 1, 'j'), "x", 1).status().code(), bad);
  EXPECT_EQ(records().Create("j", std::string(kMaxRecordBytes + 1, 'x'), 1).status().code(), bad);
  EXPECT_EQ(records().Create("j", "x", -1).status().code(), bad);
  EXPECT_EQ(records().Fence(kMaxFence + 1).code(), bad);
  EXPECT_TRUE(records().Create(std::string(kMaxRecordIdBytes, 'j'), "", kMaxFence).ok());
}

TEST_P(JobRecordsContract, OfConcurrentUpdatesOfOneRevisionExactlyOneWins) {
  int64_t revision = *records().Create("j", "0", 1);
  for (int round = 0; round < 20; ++round) {
    std::vector<absl::StatusCode> codes(4);
    {
      std::vector<std::jthread> threads;
      for (size_t t = 0; t < codes.size(); ++t) {
        threads.emplace_back([&, t] {
          codes[t] = records().Update("j", revision, StrCat(round, "/", t), 1).status().code();
        });
      }
    }
    EXPECT_EQ(std::count(codes.begin(), codes.end(), absl::StatusCode::kOk), 1);
    EXPECT_EQ(std::count(codes.begin(), codes.end(), absl::StatusCode::kAborted), 3);
    revision = records().Get("j")->revision;
  }
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_JOB_RECORDS_CONTRACT_H_
