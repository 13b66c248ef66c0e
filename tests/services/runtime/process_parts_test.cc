// Small parts: readiness, log ring, executor, backoff, identity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <system_error>

#include "base/backoff.h"
#include "base/log.h"
#include "base/utf8.h"
#include "services/runtime/executor.h"
#include "services/runtime/log_ring.h"
#include "services/runtime/process_identity.h"
#include "services/runtime/readiness.h"

namespace freshet::runtime {
namespace {

constexpr absl::Duration kGuard = absl::Seconds(10);

TEST(Readiness, HoldsWhenEveryConditionHolds) {
  Readiness readiness;
  EXPECT_TRUE(readiness.ready());
  readiness.Set("weights", false, "no version yet");
  readiness.Set("datastore", false, "not reached");
  EXPECT_FALSE(readiness.ready());
  EXPECT_EQ(readiness.Describe(), "datastore: not reached\nweights: no version yet");
  readiness.Set("datastore", true);
  EXPECT_FALSE(readiness.ready());
  readiness.Set("weights", true);
  EXPECT_TRUE(readiness.ready());
  EXPECT_EQ(readiness.Describe(), "ready");
}

TEST(Readiness, TellsItsListenerOfChangesOnly) {
  Readiness readiness;
  std::vector<bool> told;
  readiness.OnChange([&](bool ready) { told.push_back(ready); });
  readiness.Set("a", false, "x");
  readiness.Set("b", false, "y");
  readiness.Set("a", true);
  readiness.Set("b", true);
  EXPECT_EQ(told, (std::vector<bool>{false, true}));
}

TEST(LogRing, KeepsTheNewestLinesAndCountsTheLost) {
  LogRing ring({.max_lines = 2, .max_line_bytes = 3, .max_taken_bytes = 100});
  ring.Add(LogSeverity::kInfo, absl::UnixEpoch(), "one");
  ring.Add(LogSeverity::kWarning, absl::UnixEpoch(), "second");
  ring.Add(LogSeverity::kError, absl::UnixEpoch(), "3");
  const LogRing::Taken taken = ring.Take();
  ASSERT_EQ(taken.lines.size(), 2u);
  EXPECT_EQ(taken.lines[0].text, "sec");
  EXPECT_EQ(taken.lines[1].text, "3");
  EXPECT_EQ(taken.lost, 1);
  EXPECT_EQ(ring.Take().lost, 0);
}

TEST(LogRing, HandsOutAtMostItsBytesAtATimeButAlwaysALine) {
  LogRing ring({.max_lines = 10, .max_line_bytes = 100, .max_taken_bytes = 5});
  for (const char* text : {"123456789", "1234", "12"}) {
    ring.Add(LogSeverity::kInfo, absl::UnixEpoch(), text);
  }
  EXPECT_EQ(ring.Take().lines.size(), 1u);
  EXPECT_EQ(ring.Take().lines.size(), 1u);
  EXPECT_EQ(ring.Take().lines.size(), 1u);
  EXPECT_TRUE(ring.Take().lines.empty());
}

TEST(LogRing, FillsFromTheProcessLog) {
  LogRing ring;
  SetLogSink([&](LogSeverity severity, absl::Time time, std::string_view text) {
    ring.Add(severity, time, text);
    FRESHET_LOG(Info) << "a sink's own line does not come back to it";
  });
  FRESHET_LOG(Warning) << "event=test";
  SetLogSink(nullptr);
  FRESHET_LOG(Info) << "event=unheard";
  const LogRing::Taken taken = ring.Take();
  ASSERT_EQ(taken.lines.size(), 1u);
  EXPECT_EQ(taken.lines[0].severity, LogSeverity::kWarning);
  EXPECT_THAT(taken.lines[0].text,
              ::testing::MatchesRegex("at=process_parts_test.cc:.* event=test"));
}

TEST(Executor, RunsWhatItHasTakenAndRefusesTheRest) {
  Executor executor(1, 2);
  Notification started;
  Notification go;
  std::atomic<int> ran{0};
  ASSERT_TRUE(executor.TrySubmit([&] {
    started.Notify();
    go.WaitFor(kGuard);
    ++ran;
  }));
  ASSERT_TRUE(started.WaitFor(kGuard));
  EXPECT_TRUE(executor.TrySubmit([&] { ++ran; }));
  EXPECT_TRUE(executor.TrySubmit([&] { ++ran; }));
  EXPECT_EQ(executor.queued(), 2u);
  EXPECT_FALSE(executor.TrySubmit([&] { ++ran; }));
  go.Notify();
  executor.Stop();
  EXPECT_EQ(ran, 3);
  EXPECT_FALSE(executor.TrySubmit([&] { ++ran; }));
}

TEST(Backoff, GrowsToItsMaximumAndStartsAgain) {
  Backoff backoff({.initial = absl::Milliseconds(10),
                   .max = absl::Milliseconds(40),
                   .multiplier = 2,
                   .jitter = 0});
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(10));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(20));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(40));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(40));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(10));
}

TEST(Backoff, DrawsWithinItsJitter) {
  Backoff backoff(
      {.initial = absl::Seconds(1), .max = absl::Seconds(1), .jitter = 0.25, .seed = 7});
  bool differs = false;
  const absl::Duration first = backoff.Next();
  for (int i = 0; i < 100; ++i) {
    const absl::Duration wait = backoff.Next();
    EXPECT_GE(wait, absl::Milliseconds(750));
    EXPECT_LE(wait, absl::Seconds(1));
    differs = differs || wait != first;
  }
  EXPECT_TRUE(differs);
}

TEST(ValidUtf8, KeepsWhatIsValidAndMarksTheRest) {
  for (const char* good :
       {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(ValidUtf8(good), good);
  }
  const std::vector<std::pair<const char*, const char*>> bad = {{"a\xff", "a?"},
                                                                {"\xc3", "?"},
                                                                {"\xc0\xaf", "??"},
                                                                {"\x80z", "?z"},
                                                                {"\xe2\x82", "??"},
                                                                {"\xe0\x80\x80", "???"},
                                                                {"\xed\xa0\x80", "???"},
                                                                {"\xf4\x90\x80\x80", "????"},
                                                                {"\xc3(\xc3\xa9", "?(\xc3\xa9"}};
  for (const auto& [text, valid] : bad) EXPECT_EQ(ValidUtf8(text), valid);
}

TEST(ValidUtf8, IsCutBetweenTwoCharacters) {
  EXPECT_EQ(ValidUtf8("abc", 3), "abc");
  EXPECT_EQ(ValidUtf8("abcd", 3), "abc");
  EXPECT_EQ(ValidUtf8("ab\xc3\xa9", 3), "ab");
  EXPECT_EQ(ValidUtf8("ab\xc3\xa9", 4), "ab\xc3\xa9");
  EXPECT_EQ(ValidUtf8("\xf0\x9f\x98\x80", 3), "");
  EXPECT_EQ(ValidUtf8("a\xff\xff", 2), "a?");
}

TEST(ProcessIdentity, IsAnotherOneEachTime) {
  EXPECT_EQ(RandomId().size(), 32u);
  EXPECT_NE(RandomId(), RandomId());
  EXPECT_FALSE(HostName().empty());
}

TEST(HostId, NamesTheSystemAndThePidNamespace) {
  EXPECT_EQ(HostId(), HostId());
  std::error_code error;
  // "pid:[4026531836]"
  const std::string link = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  ASSERT_FALSE(error) << error.message();
  const size_t bracket = link.find('[');
  ASSERT_NE(bracket, std::string::npos) << link;
  const std::string inode = link.substr(bracket + 1, link.size() - bracket - 2);
  EXPECT_THAT(HostId(), ::testing::MatchesRegex("[-0-9a-f]*/" + inode));
  EXPECT_GT(HostId().size(), inode.size() + 30);
}

// Two pods on a node are such processes: both are PID 1, each with its own /proc/1.
TEST(HostId, IsAnotherOneInAnotherPidNamespace) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(77);
    const pid_t child = ::fork();
    if (child < 0) ::_exit(77);
    if (child == 0) {
      const std::string id = HostId();
      ::_exit(::write(ends[1], id.data(), id.size()) == static_cast<ssize_t>(id.size()) ? 0 : 1);
    }
    int status = 0;
    ::_exit(::waitpid(child, &status, 0) == child && status == 0 ? 0 : 1);
  }
  ::close(ends[1]);
  std::string id(256, '\0');
  const ssize_t size = ::read(ends[0], id.data(), id.size());
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "no PID namespaces for this user";
  }
  ASSERT_EQ(status, 0);
  ASSERT_GT(size, 0);
  id.resize(static_cast<size_t>(size));
  EXPECT_NE(id, HostId());
  EXPECT_EQ(id.substr(0, id.find('/')), HostId().substr(0, HostId().find('/')));
}

}  // namespace
}  // namespace freshet::runtime
