#include "trainer/checkpoint/checkpoint_hook.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/model/test_directory.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointHookTest : public testing::Test {
 protected:
  // A hook that runs this shell script.
  std::unique_ptr<CheckpointHook> Hook(const std::string& script) {
    options_.program = dir_.Write("hook", StrCat("#!/bin/sh\n", script, "\n"));
    EXPECT_EQ(::chmod(options_.program.c_str(), 0700), 0);
    return std::make_unique<CheckpointHook>(
        options_, [this](const HookedCheckpoint& checkpoint, const absl::Status& status) {
          const MutexLock lock(mu_);
          ended_.emplace_back(checkpoint.policy.version, status);
        });
  }
  static HookedCheckpoint Version(int64_t version) {
    return {"job", {2, version}, StrCat("/checkpoints/step-", version)};
  }
  std::vector<std::pair<int64_t, absl::Status>> Ended() {
    const MutexLock lock(mu_);
    return ended_;
  }
  std::string Text(const std::string& name) {
    return ReadFile(dir_.File(name), 1 << 20).value_or("");
  }
  // Waits until scripts have written `text` to the file.
  void Await(const std::string& name, const std::string& text) {
    const absl::Time end = absl::Now() + absl::Minutes(2);
    while (Text(name) != text && absl::Now() < end) std::this_thread::yield();
    ASSERT_EQ(Text(name), text);
  }
  // Ends the script that reads from the fifo "go"; waits until one does.
  void GoOn() {
    const UniqueFd go(::open(dir_.File("go").c_str(), O_WRONLY));
    EXPECT_GE(go.get(), 0);
  }

  TestDirectory dir_;
  CheckpointHookOptions options_;
  Mutex mu_;
  std::vector<std::pair<int64_t, absl::Status>> ended_ ABSL_GUARDED_BY(mu_);
};

TEST_F(CheckpointHookTest, RunsTheProgramForEachCheckpoint) {
  const auto hook =
      Hook("echo $1 $FRESHET_JOB $FRESHET_LINEAGE $FRESHET_VERSION >> " + dir_.File("out"));
  EXPECT_EQ(hook->Doing(), "");
  for (const int64_t version : {3, 4}) {
    hook->Offer(Version(version));
    EXPECT_TRUE(hook->AwaitIdle(absl::Minutes(5)));
  }
  EXPECT_EQ(Text("out"), "/checkpoints/step-3 job 2 3\n/checkpoints/step-4 job 2 4\n");
  ASSERT_EQ(Ended().size(), 2U);
  EXPECT_TRUE(Ended()[0].second.ok() && Ended()[1].second.ok());
  EXPECT_THAT(hook->InUse(), IsEmpty());
}

TEST_F(CheckpointHookTest, TheNewestWaitsWhileOneRuns) {
  ASSERT_EQ(::mkfifo(dir_.File("go").c_str(), 0600), 0);
  const auto hook = Hook(StrCat("echo run >> ", dir_.File("out"), "; cat ", dir_.File("go")));
  hook->Offer(Version(1));
  Await("out", "run\n");
  hook->Offer(Version(2));
  hook->Offer(Version(3));
  EXPECT_THAT(hook->InUse(), ElementsAre(1, 3));
  EXPECT_EQ(hook->Doing(), "the checkpoint hook: version 1");
  ASSERT_EQ(Ended().size(), 1U);
  EXPECT_EQ(Ended()[0].first, 2);
  EXPECT_TRUE(absl::IsAborted(Ended()[0].second));
  EXPECT_FALSE(hook->AwaitIdle(absl::ZeroDuration()));
  GoOn();
  Await("out", "run\nrun\n");
  GoOn();
  EXPECT_TRUE(hook->AwaitIdle(absl::Minutes(5)));
  EXPECT_EQ(Ended().back().first, 3);
}

TEST_F(CheckpointHookTest, TriesAgainAndThenGivesUp) {
  options_.first_pause = absl::Milliseconds(1);
  const auto hook = Hook(StrCat("echo run >> ", dir_.File("out"), "; exit 7"));
  hook->Offer(Version(1));
  EXPECT_TRUE(hook->AwaitIdle(absl::Minutes(5)));
  EXPECT_EQ(Text("out"), "run\nrun\nrun\n");
  ASSERT_EQ(Ended().size(), 1U);
  EXPECT_EQ(Ended()[0].second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(Ended()[0].second), HasSubstr("hook has ended with exit code 7"));
}

TEST_F(CheckpointHookTest, AProgramThatTakesTooLongIsKilled) {
  options_.tries = 1;
  options_.time_limit = absl::Milliseconds(20);
  const auto hook = Hook("sleep 1000");
  hook->Offer(Version(1));
  EXPECT_TRUE(hook->AwaitIdle(absl::Minutes(5)));
  ASSERT_EQ(Ended().size(), 1U);
  EXPECT_THAT(Message(Ended()[0].second), HasSubstr("did not end within 20ms"));
}

TEST_F(CheckpointHookTest, ItsEndKillsTheProgram) {
  auto hook = Hook(StrCat("echo run >> ", dir_.File("out"), "; sleep 1000"));
  hook->Offer(Version(1));
  Await("out", "run\n");
  hook->Offer(Version(2));
  hook = nullptr;
  ASSERT_EQ(Ended().size(), 2U);
  for (const auto& [version, status] : Ended()) EXPECT_TRUE(absl::IsAborted(status)) << version;
}

}  // namespace
}  // namespace freshet
