#include "controller/cluster/log_book.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/base/str_cat.h"

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

TEST(LogBook, FiltersByJobRoleAndWorker) {
  LogBook book;
  book.Add(cluster::v1::ROLE_ROLLOUT, Status("r0", "a", {"1"}));
  book.Add(cluster::v1::ROLE_ROLLOUT, Status("r1", "b", {"2"}));
  book.Add(cluster::v1::ROLE_TRAINER, Status("t", "a", {"3"}));
  EXPECT_EQ(Texts(book.Tail({}, 0)), "1 2 3 ");
  EXPECT_EQ(Texts(book.Tail({"a", "", ""}, 0)), "1 3 ");
  EXPECT_EQ(Texts(book.Tail({"a", "trainer", ""}, 0)), "3 ");
  EXPECT_EQ(Texts(book.Tail({"", "", "r1"}, 0)), "2 ");
  EXPECT_EQ(Texts(book.Tail({}, 2)), "2 3 ");
}

TEST(LogBook, TheControllersOwnLinesBelongToTheJobsThatTheyName) {
  LogBook book;
  book.Add(cluster::v1::ROLE_TRAINER, Status("t", "a", {"1"}));
  std::vector<job::v1::LogEntry> own(4);
  for (job::v1::LogEntry& entry : own) {
    entry.set_role("controller");
    entry.set_worker("controller-1");
  }
  own[0].set_text("at=job_driver.cc:1 job=a state=RUNNING");
  own[1].set_text("job=ab");
  own[2].set_text("nojob=a worker=w");
  own[3].set_text("job=ab error=\"not for job=a here\"");
  book.AddOwn(std::move(own));
  EXPECT_EQ(book.Tail({"", "controller", ""}, 0).entries.size(), 4U);
  EXPECT_EQ(Texts(book.Tail({"a", "", ""}, 0)), "1 at=job_driver.cc:1 job=a state=RUNNING ");
  EXPECT_EQ(Texts(book.Tail({"ab", "", ""}, 0)), "job=ab job=ab error=\"not for job=a here\" ");
}

TEST(LogBook, TakesAllOfItsOwnLinesBeforeThoseOfOthers) {
  LogBook book;
  int taken = 0;
  const OwnLog own = [&taken] {
    std::vector<job::v1::LogEntry> entries;
    if (taken == 5) return entries;
    entries.emplace_back().set_text(StrCat("own-", ++taken));
    return entries;
  };
  book.TakeOwn(own);
  book.Add(cluster::v1::ROLE_TRAINER, Status("t", "a", {"1"}));
  book.TakeOwn(own);
  EXPECT_EQ(Texts(book.Tail({}, 3)), "own-4 own-5 1 ");
  book.TakeOwn({});
}

TEST(LogBook, ASourceThatNeverEndsIsLeft) {
  LogBook book;
  book.TakeOwn([] { return std::vector<job::v1::LogEntry>(1); });
  EXPECT_LE(book.Tail({}, 0).entries.size(), 64U);
}

TEST(LogBook, KeepsTheLastLinesOfEachWorker) {
  LogBookOptions options;
  options.lines_per_worker = 3;
  LogBook book(options);
  book.Add(cluster::v1::ROLE_ROLLOUT, Status("quiet", "", {"q"}));
  for (int i = 0; i < 10; ++i) book.Add(cluster::v1::ROLE_ROLLOUT, Status("r", "", {StrCat(i)}));
  EXPECT_EQ(Texts(book.Tail({}, 0)), "q 7 8 9 ");
}

TEST(LogBook, ForgetsTheWorkerThatWasSilentLongest) {
  LogBookOptions options;
  options.max_workers = 2;
  LogBook book(options);
  for (const char* worker : {"a", "b", "c"}) {
    book.Add(cluster::v1::ROLE_ROLLOUT, Status(worker, "", {worker}));
  }
  EXPECT_EQ(Texts(book.Tail({}, 0)), "b c ");
}

TEST(LogBook, CutsLongLinesAndTellsOfLostOnes) {
  LogBookOptions options;
  options.max_line_bytes = 20;
  LogBook book(options);
  auto status = Status("r", "", {std::string(100, 'x')});
  status.set_log_lines_lost(7);
  book.Add(cluster::v1::ROLE_ROLLOUT, status);
  const LogPage page = book.Tail({}, 0);
  ASSERT_EQ(page.entries.size(), 2U);
  EXPECT_THAT(page.entries[0].text(), testing::StartsWith("7 lines were lost"));
  EXPECT_EQ(page.entries[1].text().size(), 20U);
}

TEST(LogBook, CutsNoCharacterInTwo) {
  LogBookOptions options;
  options.max_line_bytes = 4;
  LogBook book(options);
  book.Add(cluster::v1::ROLE_ROLLOUT, Status("r", "", {"abc\xc3\xa9"}));
  EXPECT_EQ(Texts(book.Tail({}, 0)), "abc ");
}

TEST(LogBook, AReaderGoesOnWhereItWas) {
  LogBook book;
  book.Add(cluster::v1::ROLE_ROLLOUT, Status("r", "", {"1"}));
  const LogPage first = book.Tail({}, 0);
  std::jthread writer([&book] { book.Add(cluster::v1::ROLE_ROLLOUT, Status("r", "", {"2"})); });
  EXPECT_EQ(Texts(book.Next({}, first.position, absl::Seconds(10))), "2 ");
}

TEST(LogBook, CloseEndsTheWait) {
  LogBook book;
  std::jthread closer([&book] { book.Close(); });
  EXPECT_EQ(Texts(book.Next({}, 0, absl::Hours(1))), "");
}

}  // namespace
}  // namespace freshet
