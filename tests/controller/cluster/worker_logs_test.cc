#include "controller/cluster/worker_logs.h"

#include <thread>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

cluster::v1::WorkerStatus Status(const std::string& worker, const std::string& job,
                                 const std::vector<std::string>& lines) {
  cluster::v1::WorkerStatus status;
  status.set_worker(worker);
  if (!job.empty()) status.add_assignments()->set_assignment_id(job + "/rollout/1");
  for (const std::string& line : lines) status.add_log()->set_text(line);
  return status;
}

std::string Texts(const LogPage& page) {
  std::string text;
  for (const auto& entry : page.entries) text += entry.text() + " ";
  return text;
}

TEST(WorkerLogs, FiltersByJobRoleAndWorker) {
  WorkerLogs registry;
  registry.Add(cluster::v1::ROLE_ROLLOUT, Status("r0", "a", {"1"}));
  registry.Add(cluster::v1::ROLE_ROLLOUT, Status("r1", "b", {"2"}));
  registry.Add(cluster::v1::ROLE_TRAINER, Status("t", "a", {"3"}));
  EXPECT_EQ(Texts(registry.Tail({}, 0)), "1 2 3 ");
  EXPECT_EQ(Texts(registry.Tail({"a", "", ""}, 0)), "1 3 ");
  EXPECT_EQ(Texts(registry.Tail({"a", "trainer", ""}, 0)), "3 ");
  EXPECT_EQ(Texts(registry.Tail({"", "", "r1"}, 0)), "2 ");
  EXPECT_EQ(Texts(registry.Tail({}, 2)), "2 3 ");
}

TEST(WorkerLogs, TheControllersOwnLinesBelongToTheJobsThatTheyName) {
  WorkerLogs registry;
  registry.Add(cluster::v1::ROLE_TRAINER, Status("t", "a", {"1"}));
  std::vector<job::v1::LogEntry> own(4);
  for (job::v1::LogEntry& entry : own) {
    entry.set_role("controller");
    entry.set_worker("controller-1");
  }
  own[0].set_text("at=job_driver.cc:1 job=a state=RUNNING");
  own[1].set_text("job=ab");
  own[2].set_text("nojob=a worker=w");
  own[3].set_text("job=ab error=\"not for job=a here\"");
  registry.AddOwn(std::move(own));
  EXPECT_EQ(registry.Tail({"", "controller", ""}, 0).entries.size(), 4U);
  EXPECT_EQ(Texts(registry.Tail({"a", "", ""}, 0)), "1 at=job_driver.cc:1 job=a state=RUNNING ");
  EXPECT_EQ(Texts(registry.Tail({"ab", "", ""}, 0)), "job=ab job=ab error=\"not for job=a here\" ");
}

TEST(WorkerLogs, TakesAllOfItsOwnLinesBeforeThoseOfOthers) {
  WorkerLogs registry;
  int taken = 0;
  const OwnLog own = [&taken] {
    std::vector<job::v1::LogEntry> entries;
    if (taken == 5) return entries;
    entries.emplace_back().set_text(StrCat("own-", ++taken));
    return entries;
  };
  registry.TakeOwn(own);
  registry.Add(cluster::v1::ROLE_TRAINER, Status("t", "a", {"1"}));
  registry.TakeOwn(own);
  EXPECT_EQ(Texts(registry.Tail({}, 3)), "own-4 own-5 1 ");
  registry.TakeOwn({});
}

TEST(WorkerLogs, ASourceThatNeverEndsIsLeft) {
  WorkerLogs registry;
  registry.TakeOwn([] { return std::vector<job::v1::LogEntry>(1); });
  EXPECT_LE(registry.Tail({}, 0).entries.size(), 64U);
}

TEST(WorkerLogs, KeepsTheLastLinesOfEachWorker) {
  WorkerLogsOptions options;
  options.lines_per_worker = 3;
  WorkerLogs registry(options);
  registry.Add(cluster::v1::ROLE_ROLLOUT, Status("quiet", "", {"q"}));
  for (int i = 0; i < 10; ++i)
    registry.Add(cluster::v1::ROLE_ROLLOUT, Status("r", "", {StrCat(i)}));
  EXPECT_EQ(Texts(registry.Tail({}, 0)), "q 7 8 9 ");
}

TEST(WorkerLogs, ForgetsTheWorkerThatWasSilentLongest) {
  WorkerLogsOptions options;
  options.max_workers = 2;
  WorkerLogs registry(options);
  for (const char* worker : {"a", "b", "c"}) {
    registry.Add(cluster::v1::ROLE_ROLLOUT, Status(worker, "", {worker}));
  }
  EXPECT_EQ(Texts(registry.Tail({}, 0)), "b c ");
}

TEST(WorkerLogs, CutsLongLinesAndTellsOfLostOnes) {
  WorkerLogsOptions options;
  options.max_line_bytes = 20;
  WorkerLogs registry(options);
  auto status = Status("r", "", {std::string(100, 'x')});
  status.set_log_lines_lost(7);
  registry.Add(cluster::v1::ROLE_ROLLOUT, status);
  const LogPage page = registry.Tail({}, 0);
  ASSERT_EQ(page.entries.size(), 2U);
  EXPECT_THAT(page.entries[0].text(), testing::StartsWith("7 lines were lost"));
  EXPECT_EQ(page.entries[1].text().size(), 20U);
}

TEST(WorkerLogs, CutsNoCharacterInTwo) {
  WorkerLogsOptions options;
  options.max_line_bytes = 4;
  WorkerLogs registry(options);
  registry.Add(cluster::v1::ROLE_ROLLOUT, Status("r", "", {"abc\xc3\xa9"}));
  EXPECT_EQ(Texts(registry.Tail({}, 0)), "abc ");
}

TEST(WorkerLogs, AReaderGoesOnWhereItWas) {
  WorkerLogs registry;
  registry.Add(cluster::v1::ROLE_ROLLOUT, Status("r", "", {"1"}));
  const LogPage first = registry.Tail({}, 0);
  std::jthread writer(
      [&registry] { registry.Add(cluster::v1::ROLE_ROLLOUT, Status("r", "", {"2"})); });
  EXPECT_EQ(Texts(registry.Next({}, first.position, absl::Seconds(10))), "2 ");
}

TEST(WorkerLogs, CloseEndsTheWait) {
  WorkerLogs registry;
  std::jthread closer([&registry] { registry.Close(); });
  EXPECT_EQ(Texts(registry.Next({}, 0, absl::Hours(1))), "");
}

}  // namespace
}  // namespace freshet
