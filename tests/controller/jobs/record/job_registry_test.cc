#include "controller/jobs/record/job_registry.h"

#include <functional>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/datastore/failing_event_log.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/in_memory_job_records.h"

namespace freshet {
namespace {

class JobRegistryTest : public testing::Test {
 protected:
  JobRegistryTest() { registry_ = MakeRegistry(7); }
  std::unique_ptr<JobRegistry> MakeRegistry(int64_t fence) {
    return std::make_unique<JobRegistry>(records_, events_, fence, clock_);
  }
  JobRecord NewRecord(const std::string& id) {
    job::v1::JobSpec spec;
    spec.set_name(id);
    return NewJobRecord(id, spec, 0, clock_.Now());
  }
  std::vector<std::string> Keys(const std::string& id) { return events_.Keys(EventStream(id)); }

  FakeClock clock_;
  InMemoryJobRecords records_;
  FailingEventLog events_;
  std::unique_ptr<JobRegistry> registry_;
};

absl::Status Note(JobRecord& record) {
  AddNotice(record, Severity::kInfo, "kind", "text", absl::FromUnixMicros(1'000'000'000));
  return absl::OkStatus();
}

TEST_F(JobRegistryTest, KeepsWhatItIsGiven) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  ASSERT_TRUE(registry_->Create(NewRecord("b")).ok());
  EXPECT_EQ(registry_->Get("a")->spec().name(), "a");
  EXPECT_EQ(registry_->List()->size(), 2U);
  EXPECT_EQ(registry_->Create(NewRecord("a")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(registry_->Get("c").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobRegistryTest, AppendsEachEventOnce) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  ASSERT_TRUE(registry_->Change("a", Note).ok());
  ASSERT_TRUE(registry_->Change("a", Note).ok());
  EXPECT_THAT(Keys("a"), testing::ElementsAre("state/1", "notice/2", "notice/3"));
}

TEST_F(JobRegistryTest, ALostAppendIsMadeUpForByTheNextChange) {
  events_.away = FailingEventLog::Away::kYes;
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  ASSERT_TRUE(registry_->Change("a", Note).ok());
  events_.away = FailingEventLog::Away::kNo;
  EXPECT_TRUE(Keys("a").empty());
  ASSERT_TRUE(registry_->Change("a", [](JobRecord&) { return absl::OkStatus(); }).ok());
  EXPECT_THAT(Keys("a"), testing::ElementsAre("state/1", "notice/2"));
}

TEST_F(JobRegistryTest, ALostAppendIsMadeUpForByTheNextLeader) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  events_.away = FailingEventLog::Away::kYes;
  ASSERT_TRUE(registry_->Change("a", Note).ok());
  events_.away = FailingEventLog::Away::kNo;
  const auto next = MakeRegistry(8);
  ASSERT_TRUE(next->Replay(*next->Get("a")).ok());
  EXPECT_THAT(Keys("a"), testing::ElementsAre("state/1", "notice/2"));
}

TEST_F(JobRegistryTest, TellsOfEachEndOnce) {
  std::vector<job::v1::JobState> ends;
  JobRegistry registry(records_, events_, 7, clock_,
                       [&](job::v1::JobState state) { ends.push_back(state); });
  ASSERT_TRUE(registry.Create(NewRecord("a")).ok());
  ASSERT_TRUE(registry.Change("a", Note).ok());
  EXPECT_TRUE(ends.empty());
  const auto cancel = [this](JobRecord& record) { return WantCancelled(record, "", clock_.Now()); };
  ASSERT_TRUE(registry.Change("a", cancel).ok());
  ASSERT_TRUE(registry.Change("a", cancel).ok());
  ASSERT_TRUE(registry.Change("a", Note).ok());  // ended jobs can still be changed
  EXPECT_THAT(ends, testing::ElementsAre(job::v1::JOB_STATE_CANCELLED));
  // A resumed job can end again.
  ASSERT_TRUE(
      registry.Change("a", [this](JobRecord& record) { return WantResumed(record, clock_.Now()); })
          .ok());
  ASSERT_TRUE(registry.Change("a", cancel).ok());
  EXPECT_EQ(ends.size(), 2U);
}

TEST_F(JobRegistryTest, AnEndThatIsNotWrittenIsNotTold) {
  std::vector<job::v1::JobState> ends;
  JobRegistry former(records_, events_, 7, clock_,
                     [&](job::v1::JobState state) { ends.push_back(state); });
  ASSERT_TRUE(former.Create(NewRecord("a")).ok());
  ASSERT_TRUE(MakeRegistry(8)->Change("a", Note).ok());
  EXPECT_FALSE(
      former
          .Change("a",
                  [this](JobRecord& record) { return WantCancelled(record, "", clock_.Now()); })
          .ok());
  EXPECT_TRUE(ends.empty());
}

absl::Status Remove(const JobRemoval&) { return absl::OkStatus(); }

TEST_F(JobRegistryTest, AFormerLeaderCannotWrite) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  ASSERT_TRUE(MakeRegistry(8)->Change("a", Note).ok());
  EXPECT_EQ(registry_->Change("a", Note).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(registry_->Delete(*registry_->Get("a"), Remove).code(),
            absl::StatusCode::kFailedPrecondition);
}

// Calls `on_create` before it creates a record, and can lose the reply of a deletion.
class ObservedJobRecords final : public JobRecordStore {
 public:
  absl::StatusOr<int64_t> Create(const std::string& id, const std::string& value,
                                 int64_t fence) override {
    on_create(id);
    return records_.Create(id, value, fence);
  }
  absl::StatusOr<int64_t> Update(const std::string& id, int64_t revision, const std::string& value,
                                 int64_t fence) override {
    return records_.Update(id, revision, value, fence);
  }
  absl::StatusOr<StoredRecord> Get(const std::string& id) override { return records_.Get(id); }
  absl::StatusOr<std::vector<StoredRecord>> List() override { return records_.List(); }
  absl::Status Delete(const std::string& id, int64_t fence) override {
    const absl::Status deleted = records_.Delete(id, fence);
    return lose_reply ? absl::UnavailableError("no reply") : deleted;
  }
  absl::Status Fence(int64_t fence) override { return records_.Fence(fence); }

  std::function<void(const std::string&)> on_create = [](const std::string&) {};
  bool lose_reply = false;

 private:
  InMemoryJobRecords records_;
};

TEST_F(JobRegistryTest, ACreationDelaysChangesOfItsJobOnly) {
  ObservedJobRecords records;
  JobRegistry registry(records, events_, 7, clock_, nullptr, absl::ZeroDuration());
  records.on_create = [&](const std::string& id) {
    if (id != "job/a") return;
    EXPECT_TRUE(registry.Create(NewRecord("b")).ok());
    EXPECT_TRUE(registry.Change("b", Note).ok());
    EXPECT_TRUE(absl::IsNotFound(registry.Change("c", Note).status()));
    EXPECT_TRUE(absl::IsUnavailable(registry.Change("a", Note).status()));
  };
  const auto in_time = [&registry] {
    EXPECT_TRUE(absl::IsUnavailable(registry.Change("a", Note).status()));
    return false;
  };
  ASSERT_TRUE(registry.Create(NewRecord("a"), in_time).ok());
  EXPECT_TRUE(registry.Change("a", Note).ok());
}

TEST_F(JobRegistryTest, ADeletionWhoseReplyIsLostIsKnown) {
  ObservedJobRecords records;
  JobRegistry registry(records, events_, 7, clock_);
  ASSERT_TRUE(registry.Create(NewRecord("a")).ok());
  records.lose_reply = true;
  EXPECT_TRUE(absl::IsUnavailable(registry.Delete(*registry.Get("a"), Remove)));
  EXPECT_TRUE(absl::IsNotFound(registry.Get("a").status()));
  EXPECT_TRUE(registry.HasDeleted("a"));
  EXPECT_FALSE(registry.HasDeleted("b"));
}

TEST_F(JobRegistryTest, NothingIsCreatedForACallerThatHasGivenUp) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(registry_->Create(NewRecord("a"), [] { return true; })));
  EXPECT_TRUE(absl::IsNotFound(registry_->Change("a", Note).status()));
}

TEST_F(JobRegistryTest, AReaderCannotWrite) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  const auto reader = MakeRegistry(-1);
  EXPECT_TRUE(reader->Get("a").ok());
  EXPECT_FALSE(reader->Change("a", Note).ok());
}

TEST_F(JobRegistryTest, AChangeThatLosesARaceIsTriedAgainOnTheNewRecord) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  int calls = 0;
  const auto record = registry_->Change("a", [&](JobRecord& current) {
    // A concurrent write, once.
    if (++calls == 1) {
      EXPECT_TRUE(MakeRegistry(7)->Change("a", Note).ok());
    }
    current.set_step(5);
    return absl::OkStatus();
  });
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(record->step(), 5);
  EXPECT_EQ(record->recent_events_size(), 2);
}

TEST_F(JobRegistryTest, ARefusedChangeWritesNothing) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  const auto refused = registry_->Change("a", [](JobRecord& record) {
    record.set_step(9);
    return absl::FailedPreconditionError("no");
  });
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(registry_->Get("a")->step(), 0);
}

TEST_F(JobRegistryTest, DeletionIsOfOneJobAndLeavesALaterOneOfItsIdAlone) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  const JobRecord former = *registry_->Get("a");
  int removed = 0;
  const auto remove = [&](const JobRemoval& removal) {
    ++removed;
    EXPECT_EQ(removal.generation, former.store_generation());
    EXPECT_TRUE(registry_->Get("a").ok()) << "the record keeps the id until the rest is gone";
    return absl::OkStatus();
  };
  ASSERT_TRUE(registry_->Delete(former, remove).ok());
  ASSERT_TRUE(registry_->Delete(former, remove).ok());
  EXPECT_EQ(registry_->Get("a").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  ASSERT_TRUE(registry_->Delete(former, remove).ok());
  EXPECT_TRUE(registry_->Get("a").ok());
  EXPECT_EQ(removed, 1);
}

TEST_F(JobRegistryTest, GenerationsGrowFromOneRecordToTheNextAndFromOneLeaderToTheNext) {
  ASSERT_TRUE(registry_->Create(NewRecord("a")).ok());
  ASSERT_TRUE(registry_->Create(NewRecord("b")).ok());
  ASSERT_TRUE(MakeRegistry(8)->Create(NewRecord("c")).ok());
  const auto generation = [this](const char* id) { return registry_->Get(id)->store_generation(); };
  EXPECT_GT(generation("a"), 0);
  EXPECT_GT(generation("b"), generation("a"));
  EXPECT_GT(generation("c"), generation("b"));
  const JobRemoval removal = registry_->Removal(*registry_->Get("b"));
  EXPECT_EQ(removal.job, "b");
  EXPECT_EQ(removal.generation, generation("b"));
  EXPECT_EQ(removal.fence, 7);
}

TEST_F(JobRegistryTest, ABrokenRecordIsToldAndNotGuessed) {
  ASSERT_TRUE(records_.Create("job/x", "\xff\xff\xff", 7).ok());
  EXPECT_EQ(registry_->Get("x").status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace freshet
