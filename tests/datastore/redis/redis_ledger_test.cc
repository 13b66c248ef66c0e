// The ledger of a long job: Sweep packs it, and it reads as before.
#include <functional>
#include <memory>
#include <string>

#include "tests/datastore/redis/redis_store_fixture.h"

namespace freshet {
namespace {

class RedisLedger : public RedisStoreTest {
 protected:
  RedisLedger() { settings_.ledger_segment_rows = 10; }
  void TrainSteps(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      Produce(options_.staleness.groups_per_step, step - 1);
      Train(step);
    }
  }
  static std::string Lines(TrajectoryStore& store, int64_t after = 0) {
    std::string lines;
    const auto rows = store.ReadLedger(after, 10'000);
    EXPECT_TRUE(rows.ok()) << rows.status();
    for (const LedgerRow& row : *rows) lines += LedgerRowToJson(row) + "\n";
    return lines;
  }
  int64_t Length(const std::string& stream) { return Redis({"XLEN", "{job}:" + stream}).integer; }
  int64_t Memory() {
    return Redis({"MEMORY", "USAGE", "{job}:ledger"}).integer +
           Redis({"MEMORY", "USAGE", "{job}:segments"}).integer;
  }
};

TEST_F(RedisLedger, SweepPacksRowsAndTheyReadAsBefore) {
  options_.staleness.groups_per_step = 10;
  options_.group_size = 10;
  options_.capacity_groups = 1000;
  options_.max_queued_prompts = 1000;
  settings_.ledger_segment_rows = 500;
  OpenEpoch();
  TrainSteps(1, 11);  // 1,101 rows
  const std::string before = Lines(store());
  const int64_t memory = Memory();
  ASSERT_TRUE(store().Sweep().ok());
  EXPECT_EQ(Length("segments"), 2);
  EXPECT_EQ(Length("ledger"), 10) << "less than a segment";
  EXPECT_LT(3 * Memory(), memory) << "of " << memory;
  EXPECT_EQ(Lines(store()), before);
  for (const int64_t after : {1, 499, 500, 501, 502, 1000, 1002, 1100, 1101, 2000}) {
    const auto row = store().ReadLedger(after, 1);
    ASSERT_TRUE(row.ok()) << row.status();
    ASSERT_EQ(row->size(), after < 1101 ? 1u : 0u) << after;
    if (after < 1101) {
      EXPECT_EQ(row->front().seq, after + 1);
    }
  }
}

TEST_F(RedisLedger, TwoSweepsAtOncePackARowOnce) {
  OpenEpoch();
  TrainSteps(1, 5);
  const std::string before = Lines(store());
  const auto other = NewStore();
  // The second page ends the first segment: the other Sweep packs it before this one does.
  int pages = 0;
  settings_.on_script = [&](std::string_view script, absl::Duration) {
    if (script == "read_ledger" && ++pages == 2) {
      ASSERT_TRUE(other->Sweep().ok());
    }
  };
  ASSERT_TRUE(NewStore()->Sweep().ok());
  EXPECT_GE(pages, 2);
  EXPECT_EQ(Length("segments"), 2);
  EXPECT_EQ(Lines(store()), before);
}

TEST_F(RedisLedger, RowsAreTrimmedWithTheSegmentsThatHoldThem) {
  OpenEpoch();
  TrainSteps(1, 10);  // 41 rows
  const std::string before = Lines(store(), 25);
  ASSERT_TRUE(store().Sweep().ok());
  ASSERT_EQ(Length("segments"), 4);
  ASSERT_TRUE(store().TrimLedger(25).ok());
  EXPECT_EQ(Length("segments"), 2);
  EXPECT_EQ(Lines(store()), before);
  ASSERT_TRUE(store().TrimLedger(41).ok());
  EXPECT_EQ(Length("segments"), 0);
  EXPECT_EQ(Lines(store()), "");
  TrainSteps(11, 14);
  ASSERT_TRUE(store().Sweep().ok());
  EXPECT_EQ(Length("segments"), 1);
  EXPECT_EQ(store().ReadLedger(0, 1)->front().seq, 42);
}

TEST_F(RedisLedger, AMissingSegmentIsNamed) {
  OpenEpoch();
  TrainSteps(1, 10);  // 41 rows
  ASSERT_TRUE(store().Sweep().ok());
  ASSERT_EQ(Length("segments"), 4);
  const RedisReply segments = Redis({"XRANGE", "{job}:segments", "-", "+"});
  Redis({"XDEL", "{job}:segments", segments.items[1].items[0].text});
  EXPECT_EQ(store().ReadLedger(0, 100).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(RedisLedger, ADamagedEntryIsNotPacked) {
  OpenEpoch();
  TrainSteps(1, 5);  // 21 rows
  const RedisReply entries = Redis({"XRANGE", "{job}:ledger", "-", "+"});
  Redis({"DEL", "{job}:ledger"});
  for (size_t i = 0; i < entries.items.size(); ++i) {
    std::vector<std::string> command = {"XADD", "{job}:ledger", entries.items[i].items[0].text};
    for (const RedisReply& field : entries.items[i].items[1].items) {
      command.push_back(i == 1 && command.back() == "head" ? "nonsense" : field.text);
    }
    Redis(command);
  }
  ASSERT_TRUE(store().Sweep().ok());
  EXPECT_EQ(Length("segments"), 0);
  EXPECT_EQ(store().ReadLedger(0, 100).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(store().ReadLedger(13, 100).ok());
}

TEST_F(RedisLedger, ADamagedSegmentIsNamedAndNothingElseWaitsForIt) {
  OpenEpoch();
  TrainSteps(1, 3);
  ASSERT_TRUE(store().Sweep().ok());
  Redis({"DEL", "{job}:segments"});
  Redis({"XADD", "{job}:segments", "1-0", "rows", "12 nonsense"});
  EXPECT_EQ(store().ReadLedger(0, 100).status().code(), absl::StatusCode::kDataLoss);
  TrainSteps(4, 7);
  EXPECT_TRUE(store().Sweep().ok());
  Redis({"DEL", "{job}:segments"});
  EXPECT_EQ(store().ReadLedger(0, 100).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace freshet
