#include <memory>

#include "tests/contract/event_log_contract.h"
#include "tests/contract/job_records_contract.h"
#include "tests/contract/leader_lease_contract.h"
#include "tests/testing/in_memory_event_log.h"
#include "tests/testing/in_memory_job_records.h"
#include "tests/testing/in_memory_leader_lease.h"

namespace freshet {
namespace {

INSTANTIATE_TEST_SUITE_P(InMemory, JobRecordsContract,
                         testing::Values(JobRecordsBackend{
                             "memory", [] { return std::make_shared<InMemoryJobRecords>(); }}),
                         [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    InMemory, LeaderLeaseContract,
    testing::Values(LeaderLeaseBackend{
        "memory", [](const Clock& clock) { return std::make_shared<InMemoryLeaderLease>(clock); }}),
    [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(InMemory, EventLogContract,
                         testing::Values(EventLogBackend{
                             "memory",
                             [](const EventLogOptions& options) -> std::shared_ptr<EventLog> {
                               return *InMemoryEventLog::Create(options);
                             }}),
                         [](const auto& tested) { return tested.param.name; });

TEST(InMemoryJobRecords, RefusesMoreRecordsThanTheLimit) {
  InMemoryJobRecords records;
  for (int64_t i = 0; i < kMaxRecords; ++i) ASSERT_TRUE(records.Create(StrCat(i), "x", 1).ok());
  EXPECT_EQ(records.Create("more", "x", 1).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace freshet
