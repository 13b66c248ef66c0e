#include "services/sandbox/service/worker_pool.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet::sandbox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Far longer than anything takes on a busy machine.
constexpr absl::Duration kPatience = absl::Minutes(2);

// A program and what became of it.
class Call {
 public:
  Call(WorkerPool& pool, const std::string& code, std::stop_token abandoned = {}) {
    v1::Program program;
    program.set_code(code);
    program.add_inputs();
    program.set_run_ms(1);
    pool.Run(
        std::move(program),
        [this](absl::StatusOr<v1::Outcome> outcome) {
          outcome_ = std::move(outcome);
          done_.Notify();
        },
        std::move(abandoned));
  }
  absl::StatusOr<v1::Outcome> Await() {
    if (!done_.WaitFor(kPatience)) return absl::InternalError("no answer");
    return *outcome_;
  }

 private:
  std::optional<absl::StatusOr<v1::Outcome>> outcome_;
  Notification done_;
};

class WorkerPoolTest : public testing::Test {
 protected:
  WorkerPoolTest() : folder_(StrCat(testing::TempDir(), "/pool-", ::getpid())) {
    std::filesystem::create_directories(folder_);
    options_.argv = {StrCat(FRESHET_BIN_DIR, "/fake_sandbox_worker"), "works"};
    options_.start.set_folder(folder_);
  }
  ~WorkerPoolTest() override {
    pool_ = nullptr;
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "a worker's folder is left";
    std::filesystem::remove_all(folder_);
  }
  WorkerPool& Start() {
    auto pool = WorkerPool::Start(options_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    return *pool_;
  }
  static std::string OutputOf(absl::StatusOr<v1::Outcome> outcome) {
    return outcome.ok() ? outcome->runs(0).standard_output() : Message(outcome.status());
  }

  // Until the process has ended, or only its exit code is left.
  static void AwaitEnd(const std::string& process) {
    for (std::string state = "R"; state != "Z"; std::this_thread::yield()) {
      std::ifstream stat(StrCat("/proc/", process, "/stat"));
      std::string pid, name;
      if (!(stat >> pid >> name >> state)) return;
    }
  }

  const std::string folder_;
  WorkerPoolOptions options_;
  std::unique_ptr<WorkerPool> pool_;
};

TEST_F(WorkerPoolTest, RunsPrograms) {
  options_.workers = 2;
  WorkerPool& pool = Start();
  EXPECT_THAT(pool.layers(), ElementsAre("none"));
  Call a(pool, "a"), b(pool, "b"), c(pool, "c");
  EXPECT_EQ(OutputOf(a.Await()), "a");
  EXPECT_EQ(OutputOf(b.Await()), "b");
  EXPECT_EQ(OutputOf(c.Await()), "c");
  EXPECT_EQ(pool.counters().programs, 3);
  EXPECT_EQ(pool.counters().lost_workers, 0);
}

TEST_F(WorkerPoolTest, DoesNotStartWhereProgramsCannotBeConfined) {
  options_.argv.back() = "refuses";
  const auto pool = WorkerPool::Start(options_);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(pool.status()), HasSubstr("programs cannot be confined here"));
}

TEST_F(WorkerPoolTest, AWorkerThatIsLostCostsItsOwnProgramOnly) {
  WorkerPool& pool = Start();
  for (const char* code : {"dies", "fails", "forges"}) {
    const auto lost = Call(pool, code).Await();
    EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable) << code;
    EXPECT_EQ(OutputOf(Call(pool, "next").Await()), "next") << code;
  }
  EXPECT_EQ(pool.counters().lost_workers, 3);
}

TEST_F(WorkerPoolTest, AWorkerThatHasEndedIsReplacedBeforeItsNextProgram) {
  WorkerPool& pool = Start();
  for (int i = 0; i < 3; ++i) {
    const auto outcome = Call(pool, "retires").Await();
    ASSERT_EQ(OutputOf(outcome), "retires");
    AwaitEnd(outcome->runs(0).standard_error());
  }
  EXPECT_EQ(pool.counters().lost_workers, 0);
}

TEST_F(WorkerPoolTest, CountsProgramsThatALimitEnds) {
  WorkerPool& pool = Start();
  for (const char* code : {"loops", "ends", "loops"}) ASSERT_TRUE(Call(pool, code).Await().ok());
  EXPECT_EQ(pool.counters().limited[v1::CommandResult::END_TIME_LIMIT], 2);
  EXPECT_EQ(pool.counters().limited[v1::CommandResult::END_EXITED], 0);
}

TEST_F(WorkerPoolTest, RefusesWhatIsTooMuch) {
  options_.max_queued = 1;
  options_.max_wait = kPatience;
  WorkerPool& pool = Start();
  Call running(pool, "hangs");
  while (pool.busy() == 0) std::this_thread::yield();
  Call waiting(pool, "waits");
  EXPECT_EQ(Call(pool, "refused").Await().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.counters().refused, 1);
  pool_ = nullptr;  // does not wait for the program
  EXPECT_EQ(running.Await().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(waiting.Await().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(WorkerPoolTest, DoesNotRunWhatNobodyWaitsFor) {
  options_.max_wait = kPatience;
  WorkerPool& pool = Start();
  std::stop_source gone;
  gone.request_stop();
  EXPECT_EQ(Call(pool, "dies", gone.get_token()).Await().status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(pool.counters().lost_workers, 0);
}

TEST_F(WorkerPoolTest, EndsAProgramWhoseCallerLeaves) {
  options_.max_wait = kPatience;
  WorkerPool& pool = Start();
  std::stop_source gone;
  Call running(pool, "hangs", gone.get_token());
  while (pool.busy() == 0) std::this_thread::yield();
  gone.request_stop();
  EXPECT_EQ(running.Await().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(OutputOf(Call(pool, "next").Await()), "next");
  EXPECT_EQ(pool.counters().lost_workers, 0);
}

TEST_F(WorkerPoolTest, WhatNobodyWaitsForTakesNoRoom) {
  options_.max_queued = 1;
  options_.max_wait = kPatience;
  WorkerPool& pool = Start();
  std::stop_source left, gone;
  Call running(pool, "hangs", left.get_token());
  while (pool.busy() == 0) std::this_thread::yield();
  Call waiting(pool, "waits", gone.get_token());
  gone.request_stop();
  Call next(pool, "next");
  EXPECT_EQ(waiting.Await().status().code(), absl::StatusCode::kCancelled);
  left.request_stop();
  EXPECT_EQ(OutputOf(next.Await()), "next");
  EXPECT_EQ(pool.counters().refused, 0);
}

TEST_F(WorkerPoolTest, AProgramWaitsSoLongForAWorker) {
  options_.max_wait = -absl::Seconds(1);
  EXPECT_EQ(Call(Start(), "late").Await().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pool_->counters().refused, 1);
}

}  // namespace
}  // namespace freshet::sandbox
