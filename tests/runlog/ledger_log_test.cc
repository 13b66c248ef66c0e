#include "runlog/ledger_log.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

TEST(LedgerLog, AppendsRowsAfterCuttingATornLine) {
  const ScratchFolder folder;
  LedgerRow open;
  open.event = LedgerEvent::kOpen;
  open.job = "arithmetic";
  open.disposition = "wait";
  open.groups_per_step = 2;
  open.group_size = 2;
  LedgerRow durable;
  durable.event = LedgerEvent::kDurable;
  durable.seq = 1;
  durable.digest = InitialDigest();
  folder.Write("ledger.jsonl", LedgerRowToJson(open) + "\n{\"seq\":1,\"ev");
  absl::StatusOr<LedgerLog> log = LedgerLog::Open(folder.File("ledger.jsonl"));
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE(log->Append(durable).ok());
  ASSERT_TRUE(log->Append(std::vector<LedgerRow>()).ok());
  EXPECT_EQ(folder.Read("ledger.jsonl"),
            LedgerRowToJson(open) + "\n" + LedgerRowToJson(durable) + "\n");
}

}  // namespace
}  // namespace freshet
